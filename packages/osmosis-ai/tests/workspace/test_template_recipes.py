"""`template apply` and `doctor --fix` below the command line: what is written, and what is never touched."""

import io
import tarfile
from pathlib import Path

import pytest
from osmosis_ai.errors import ConflictError, NotFoundError, ValidationError
from osmosis_ai.workspace import template_source
from osmosis_ai.workspace.checkup import AGENT_FILES, missing_paths, repair
from osmosis_ai.workspace.eval_config import load_eval_config
from osmosis_ai.workspace.recipes import CATALOGUE, apply_recipe, recipe_names, recipe_summary
from osmosis_ai.workspace.repository import REQUIRED_DIRECTORIES
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT
from osmosis_ai.workspace.template_source import TemplateSource, open_template
from osmosis_ai.workspace.training_config import load_training_config

SHIPPED = TemplateSource(TEMPLATE_ROOT, "this installation")


def contents(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", recipe_names())
def test_every_starter_of_this_installation_is_whole(tmp_path, name):
    applied = apply_recipe(tmp_path, SHIPPED, name)
    assert set(contents(tmp_path)) == set(applied.files)
    assert {f"rollouts/{name}/main.py", f"configs/eval/{name}.toml", f"configs/training/{name}.toml"} <= set(
        applied.files
    )
    assert recipe_summary(name).endswith(".")
    load_eval_config(tmp_path / f"configs/eval/{name}.toml", tmp_path)
    load_training_config(tmp_path / f"configs/training/{name}.toml", tmp_path)


def test_the_starters_of_the_published_catalogue_are_all_here():
    assert set(CATALOGUE) < set(recipe_names())


def test_applying_twice_changes_nothing_until_it_is_forced(tmp_path):
    apply_recipe(tmp_path, SHIPPED, "multiply-local-loop")
    mine = tmp_path / "rollouts/multiply-local-loop/mine.py"
    mine.write_text("x = 1\n")
    (tmp_path / "configs/eval/multiply-local-loop.toml").write_text("a = 1\n")
    before = contents(tmp_path)
    with pytest.raises(ConflictError) as caught:
        apply_recipe(tmp_path, SHIPPED, "multiply-local-loop")
    assert "  - configs/eval/multiply-local-loop.toml" in caught.value.message
    assert "  - rollouts/multiply-local-loop/" in caught.value.message
    assert "data/multiply.jsonl" not in caught.value.message  # the same bytes are in nobody's way
    assert contents(tmp_path) == before
    apply_recipe(tmp_path, SHIPPED, "multiply-local-loop", force=True)
    assert not mine.exists()


@pytest.mark.parametrize("link", ["rollouts", "data", "configs", "rollouts/multiply-local-loop"])
def test_nothing_is_written_along_a_link(tmp_path, link):
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    (tree / link).parent.mkdir(parents=True)
    (tree / link).symlink_to(outside)
    with pytest.raises(ConflictError, match="symbolic link"):
        apply_recipe(tree, SHIPPED, "multiply-local-loop", force=True)
    assert not contents(outside)


def test_a_folder_of_ones_own_is_a_template(tmp_path):
    source = tmp_path / "tpl"
    for path in ("rollouts/adder-mine/main.py", "configs/eval/adder-mine.toml", "configs/training/adder-mine.toml"):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text("a = 1\n")
    tree = tmp_path / "tree"
    with open_template({"OSMOSIS_WORKSPACE_TEMPLATE_PATH": str(source)}) as found:
        with pytest.raises(NotFoundError, match=r"data/adder\.jsonl"):
            apply_recipe(tree, found, "adder-mine")
        with pytest.raises(NotFoundError, match="Available: adder-mine"):
            apply_recipe(tree, found, "nope")
        (source / "data").mkdir()
        (source / "data/adder.jsonl").write_text("{}\n")
        (source / "rollouts/adder-mine/__pycache__").mkdir()
        (source / "rollouts/adder-mine/__pycache__/main.pyc").write_text("")
        assert "rollouts/adder-mine/__pycache__/main.pyc" not in apply_recipe(tree, found, "adder-mine").files


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            file.addfile(member, io.BytesIO(b"x"))
    return buffer.getvalue()


def test_an_archive_must_be_one_folder_and_stay_in_its_place(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    root = template_source._unpack(archive("tpl-main/AGENTS.md"), place, "https://x")
    assert contents(root) == {"AGENTS.md": b"x"}
    for bad, told in (
        (b"not gzip", "no template archive"),
        (archive("../evil"), "no template archive"),
        (archive("a/x", "b/x"), "must hold one folder"),
    ):
        other = tmp_path / f"other{len(bad)}"
        other.mkdir()
        with pytest.raises(ValidationError, match=told):
            template_source._unpack(bad, other, "https://x")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "environ",
    [
        {"OSMOSIS_WORKSPACE_TEMPLATE_REPO": "https://evil.example/x"},
        {"OSMOSIS_WORKSPACE_TEMPLATE_REF": "../../other"},
        {"OSMOSIS_WORKSPACE_TEMPLATE_REF": "main?x=1"},
    ],
)
def test_a_malformed_repository_or_reference_asks_nobody(environ):
    with pytest.raises(ValidationError, match=next(iter(environ))), open_template(environ):
        pass


def test_a_repair_creates_what_is_missing_and_touches_nothing_else(tmp_path):
    (tmp_path / "AGENTS.md").write_text("mine")
    (tmp_path / "data").mkdir()
    missing = missing_paths(tmp_path)
    assert missing == [*(d for d in REQUIRED_DIRECTORIES if d != "data/"), *AGENT_FILES[1:]]
    written = repair(tmp_path, missing, {})
    assert set(written) == set(contents(tmp_path)) - {"AGENTS.md"}
    assert missing_paths(tmp_path) == []
    assert (tmp_path / "AGENTS.md").read_text() == "mine"
    assert not (tmp_path / "data/.gitkeep").exists()
    assert (tmp_path / "configs/AGENTS.md").read_bytes() == (TEMPLATE_ROOT / "configs/AGENTS.md").read_bytes()


def test_the_skills_that_the_agent_page_names_come_with_it(tmp_path):
    kept = tmp_path / ".claude/skills/read-results/SKILL.md"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    written = repair(tmp_path, missing_paths(tmp_path), {})
    assert ".claude/skills/run-evaluation/SKILL.md" in written and kept.read_text() == "mine"
    named = (tmp_path / "AGENTS.md").read_text()
    for skill in (tmp_path / ".claude/skills").iterdir():
        assert f"`{skill.name}`" in named


def test_a_repair_writes_nothing_when_it_cannot_write_all(tmp_path):
    outside = tmp_path / "outside"
    tree = tmp_path / "tree"
    outside.mkdir()
    tree.mkdir()
    (tree / "configs").symlink_to(outside)
    with pytest.raises(ConflictError, match="configs is a symbolic link"):
        repair(tree, missing_paths(tree), {})
    (tree / "configs").unlink()
    (tree / "rollouts").write_text("a file")
    with pytest.raises(ConflictError, match="rollouts is not a folder"):
        repair(tree, missing_paths(tree), {})
    assert sorted(p.name for p in tree.iterdir()) == ["rollouts"]
    assert not contents(outside)
