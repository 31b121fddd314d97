import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from osmosis_cli import OSMOSIS
from stub_api import StubApi

FRAME = {
    "osmosis_ai",
    "osmosis_ai.cli",
    "osmosis_ai.cli.main",
    "osmosis_ai.cli.output",
    "osmosis_ai.cli.program",
    "osmosis_ai.cli.root",
    "osmosis_ai.cli.tree",
    "osmosis_ai.consts",
    "osmosis_ai.errors",
    "osmosis_ai.extras",
}
COMMAND = {*FRAME, "osmosis_ai.cli.commands", "osmosis_ai.cli.environment"}


def modules_after(arguments: list[str], cwd: Path) -> set[str]:
    """Our modules and the roots of other packages that one command line loads."""
    script = (
        "import sys, json; from osmosis_ai.cli.main import main; status = main(sys.argv[1:]);"
        "print(); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=cwd, capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    ours = {name for name in loaded if name.startswith("osmosis_")}
    foreign = {
        root
        for name in loaded
        if (root := name.partition(".")[0]) not in sys.stdlib_module_names
        and not root.startswith(("osmosis_", "__", "_editable", "_virtualenv", "_distutils_hack"))
    }
    return ours | foreign


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (
            ["--version"],
            {"osmosis_ai", "osmosis_ai.cli", "osmosis_ai.cli.main", "osmosis_ai.consts", "osmosis_ai.extras"},
        ),
        (["--help"], {*FRAME, "click"}),
        (["bogus"], {*FRAME, "click"}),
        (["--json", "bogus"], {*FRAME, "click"}),
        (["eval", "--help"], {*COMMAND, "click"} - {"osmosis_ai.cli.commands"}),
        (
            ["eval", "run", "--help"],
            {*COMMAND, "click", "osmosis_ai.cli.commands.eval_run", "osmosis_ai.cli.results"},
        ),
        (
            ["dataset", "validate", "--help"],
            {*COMMAND, "click", "osmosis_ai.cli.commands.dataset_validate", "osmosis_ai.cli.results"},
        ),
        *(
            ([*words, "--help"], {*COMMAND, "click", f"osmosis_ai.cli.commands.{module}", "osmosis_ai.cli.results"})
            for words, module in (
                (["doctor"], "doctor"),
                (["upgrade"], "upgrade"),
                (["open"], "open"),
                (["template", "apply"], "template_apply"),
                (["dataset", "upload"], "dataset_upload"),
                (["secret", "set"], "secret_set"),
                (["model", "info"], "model_info"),
            )
        ),
        (["benchmark", "runs", "--help"], {*COMMAND, "click"} - {"osmosis_ai.cli.commands"}),
        *(
            (
                [*words, "--help"],
                {*COMMAND, "click", f"osmosis_ai.cli.commands.{'_'.join(words)}", "osmosis_ai.cli.paging"},
            )
            for words in (
                ("train", "submit"),
                ("train", "info"),
                ("train", "list"),
                ("eval", "download"),
                ("eval", "upload"),
                ("eval", "logs"),
                ("benchmark", "submit"),
                ("benchmark", "runs", "stop"),
            )
        ),
    ],
)
def test_each_path_loads_only_what_it_needs(tmp_path: Path, arguments: list[str], allowed: set[str]):
    assert modules_after(arguments, tmp_path) <= allowed


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "rollout", "init", "alpha"],
        ["--json", "dataset", "validate", "d.jsonl"],
        ["--plain", "dataset", "validate", "d.jsonl"],
        ["--json", "eval", "rubric", "-d", "none.jsonl", "-r", "x", "--model", "openai/x"],
        ["--json", "eval", "run", "none.toml", "--dataset-file", "d.jsonl"],
        ["--json", "eval", "view", "none"],
        ["--json", "train", "submit", "none.toml"],
        ["--json", "benchmark", "runs", "list"],
        ["--json", "eval", "upload", "none"],
        ["--json", "config", "validate", "none.toml"],
        ["--json", "template", "list"],
        ["--json", "doctor"],
        ["--json", "dataset", "list"],
        ["--json", "dataset", "upload", "d.jsonl", "--yes"],
        ["--json", "secret", "set", "A_KEY"],
        ["--json", "--workspace", "lab", "model", "list"],
    ],
)
def test_formats_for_programs_never_load_rich_or_frameworks(tmp_path: Path, arguments: list[str]):
    (tmp_path / "d.jsonl").write_text('{"user_prompt": "q", "ground_truth": "a"}\n' * 4)
    assert not modules_after(arguments, tmp_path) & {
        "rich", "pydantic", "httpx", "litellm", "fastapi", "starlette", "uvicorn", "pyarrow", "numpy", "prompt_toolkit",
        "keyring",
    }  # fmt: skip


def test_asking_the_platform_loads_no_drawing_and_no_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    account = {"user": {"id": "u", "email": "a@example.com"}, "expires_at": "2099-01-01T00:00:00Z"}
    with StubApi({"GET /api/cli/verify": account, "GET /api/cli/workspaces": {"workspaces": []}}) as stub:
        for name, value in stub.environment().items():
            monkeypatch.setenv(name, value)
        for command in (["auth", "whoami"], ["workspace", "list"]):
            loaded = modules_after(["--json", *command], tmp_path)
            assert "httpx" in loaded
            assert not loaded & {"rich", "pygments", "pydantic", "keyring", "prompt_toolkit"}


def cpu_s(command: list[str], cwd: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_at_most_eight_bare_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert os.access(OSMOSIS, os.X_OK)
    cpu_s([str(OSMOSIS), "--help"], tmp_path)  # compiles the bytecode
    bare, helped = [], []
    for _ in range(12):
        bare.append(cpu_s([sys.executable, "-c", "pass"], tmp_path))
        helped.append(cpu_s([str(OSMOSIS), "--help"], tmp_path))
    assert min(helped) <= 8 * min(bare)
