"""`rollout init`: five files of a rollout that works, and nothing overwritten or followed by accident."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from osmosis_ai.cli.root import make_root
from osmosis_ai.errors import ConflictError, ValidationError
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT, scaffold_rollout

FILES = (
    "rollouts/my-agent/main.py",
    "rollouts/my-agent/README.md",
    "rollouts/my-agent/pyproject.toml",
    "configs/eval/my-agent.toml",
    "configs/training/my-agent.toml",
)


def snapshot(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


def test_it_writes_five_files_that_carry_the_name(tmp_path):
    result = scaffold_rollout(tmp_path, "my-agent")
    assert sorted(result.files) == sorted(FILES)
    assert result.rollout_dir == tmp_path / "rollouts/my-agent"
    written = snapshot(tmp_path)
    assert sorted(written) == sorted(FILES)
    assert not [path for path, text in written.items() if "__ROLLOUT__" in text]
    evaluation = tomllib.loads(written["configs/eval/my-agent.toml"])
    assert evaluation["experiment"]["rollout"] == "my-agent"
    assert evaluation["experiment"]["entrypoint"] == "main.py"
    assert evaluation["secrets"] == {"required": ["OPENAI_API_KEY"]}
    training = tomllib.loads(written["configs/training/my-agent.toml"])
    assert training["experiment"]["rollout"] == "my-agent"
    project = tomllib.loads(written["rollouts/my-agent/pyproject.toml"])["project"]
    assert project["name"] == "my-agent"
    assert project["dependencies"] == ["osmosis-ai[server]>=0.3.4,<0.4"]


def test_the_commented_sections_are_valid_when_uncommented(tmp_path):
    scaffold_rollout(tmp_path, "my-agent")
    for kind, sections in {
        "eval": {"experiment", "evaluation", "env", "secrets"},
        "training": {"experiment", "training", "sampling", "checkpoints"},
    }.items():
        text = (tmp_path / f"configs/{kind}/my-agent.toml").read_text()
        parsed = tomllib.loads(re.sub(r"^# (?=\[\w+\]\s*(#|$)|(?!branch)\w+ = )", "", text, flags=re.MULTILINE))
        assert sections <= parsed.keys()


def test_the_module_imports_without_side_effects_and_has_the_app(tmp_path):
    scaffold_rollout(tmp_path, "my-agent")
    program = (
        "import importlib.util, json, logging, sys, threading\n"
        "spec = importlib.util.spec_from_file_location('rollout_main', 'main.py')\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print(json.dumps([type(module.app).__name__, threading.active_count(), 'uvicorn' in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "rollouts/my-agent",
        env={**os.environ, "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["FastAPI", 1, False]
    assert done.stderr == ""
    assert sorted(snapshot(tmp_path)) == sorted(FILES)  # nothing else was written, not even under HOME


@pytest.mark.parametrize(
    "name", ["My-agent", "1agent", "-agent", "my_agent", "a/b", "..", "", "agent\n", "default", "ä"]
)
def test_other_names_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(ValidationError, match="rollout"):
        scaffold_rollout(tmp_path, name)
    assert snapshot(tmp_path) == {}


def test_what_is_in_the_way_is_listed_and_untouched(tmp_path):
    scaffold_rollout(tmp_path, "my-agent")
    (tmp_path / "configs/training/my-agent.toml").unlink()
    (tmp_path / "rollouts/my-agent/main.py").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(ConflictError) as caught:
        scaffold_rollout(tmp_path, "my-agent")
    assert "\n  - rollouts/my-agent/\n  - configs/eval/my-agent.toml\n" in caught.value.message
    assert "rollouts/my-agent/" in caught.value.message and "--force" in caught.value.message
    assert snapshot(tmp_path) == before


def test_force_replaces_the_folder_and_the_configs(tmp_path):
    scaffold_rollout(tmp_path, "my-agent")
    (tmp_path / "rollouts/my-agent/old.py").write_text("old")
    (tmp_path / "configs/eval/my-agent.toml").write_text("old")
    (tmp_path / "configs/eval/other.toml").write_text("other")
    scaffold_rollout(tmp_path, "my-agent", force=True)
    written = snapshot(tmp_path)
    assert sorted(written) == sorted([*FILES, "configs/eval/other.toml"])
    assert written["configs/eval/my-agent.toml"] != "old"
    assert written["configs/eval/other.toml"] == "other"


@pytest.mark.parametrize(
    "link", ["rollouts", "rollouts/my-agent", "configs", "configs/eval", "configs/eval/my-agent.toml"]
)
@pytest.mark.parametrize("force", [False, True])
def test_symbolic_links_are_never_followed(tmp_path, link, force):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.txt").write_text("keep")
    work_tree = tmp_path / "tree"
    (work_tree / link).parent.mkdir(parents=True)
    (work_tree / link).symlink_to(outside / "keep.txt" if link.endswith(".toml") else outside)
    with pytest.raises(ConflictError, match="symbolic link"):
        scaffold_rollout(work_tree, "my-agent", force=force)
    assert snapshot(outside) == {"keep.txt": "keep"}
    assert (work_tree / link).is_symlink()


def test_force_refuses_targets_that_are_no_plain_files_or_folders(tmp_path):
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts/my-agent").write_text("a file")
    with pytest.raises(ConflictError, match="not a folder"):
        scaffold_rollout(tmp_path, "my-agent", force=True)
    (tmp_path / "configs/eval/other.toml").mkdir(parents=True)
    with pytest.raises(ConflictError, match="not a plain file"):
        scaffold_rollout(tmp_path, "other", force=True)
    assert (tmp_path / "rollouts/my-agent").read_text() == "a file"
    assert not (tmp_path / "rollouts/other").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    name = "a" * 252  # a folder may be called so, a file with .toml behind it may not
    with pytest.raises(ValidationError, match=r"cannot write .*a\.toml: File name too long"):
        scaffold_rollout(tmp_path, name)


def command_of(words: list[str]) -> click.Command | None:
    """The command that the words after `osmosis` lead to; words behind it are arguments."""
    command: click.Command | None = make_root()
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    return command


def test_every_command_and_option_the_agent_pages_name_exists():
    pages = [p for p in TEMPLATE_ROOT.rglob("*") if p.suffix in (".md", ".toml", ".py")]
    named = 0
    for page in pages:
        for line in page.read_text().splitlines():
            for found in re.finditer(r"(?<![\w/-])osmosis((?: +[a-z][a-z-]*)+)([^`#]*)", line):
                command = command_of(found[1].split())
                assert command is not None and not isinstance(command, click.Group), (page, line)
                options = {name for parameter in command.params for name in parameter.opts} | {
                    "--json",
                    "--plain",
                    "--help",
                }
                assert set(re.findall(r"(?<!\S)--[a-z-]+", found[2])) <= options, (page, line)
                named += 1
    assert named > 40


def test_the_template_agents_are_within_the_rules():
    names = sorted(p.name for p in (TEMPLATE_ROOT / "rollouts").iterdir())
    assert names == [
        "lookup-local-loop",
        "multiply-harbor-strands",
        "multiply-local-loop",
        "multiply-local-openai",
        "multiply-local-strands",
    ]
    for name in names:
        module = ast.parse((TEMPLATE_ROOT / f"rollouts/{name}/main.py").read_text())
        assert "app" in {t.id for n in module.body if isinstance(n, ast.Assign) for t in n.targets if hasattr(t, "id")}
        for kind in ("eval", "training"):
            config = tomllib.loads((TEMPLATE_ROOT / f"configs/{kind}/{name}.toml").read_text())
            assert config["experiment"]["rollout"] == name
        project = tomllib.loads((TEMPLATE_ROOT / f"rollouts/{name}/pyproject.toml").read_text())["project"]
        assert project["name"] == name
    rows = [json.loads(line) for line in (TEMPLATE_ROOT / "data/multiply.jsonl").read_text().splitlines()]
    assert len(rows) == 64 and len({row["user_prompt"] for row in rows}) == 64
