from pathlib import Path

import pytest
from osmosis_cli import make_workspace, osmosis

EXPERIMENT = """\
[experiment]
rollout = "alpha"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "d1"
"""
BENCHMARK = """\
[experiment]
benchmark = "hle"
[[agents]]
[agents.model]
type = "hosted"
base_model = "q"
lora_model_name = "l"
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = make_workspace(tmp_path / "w", origin=None)
    (work / "rollouts/alpha").mkdir()
    (work / "rollouts/alpha/main.py").write_text("raise RuntimeError  # it is not run\n")
    return work


def validate(work: Path, path: str, text: str, *arguments: str):
    (work / path).parent.mkdir(parents=True, exist_ok=True)
    (work / path).write_text(text)
    return osmosis("--json", "config", "validate", path, *arguments, cwd=work)


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("configs/eval/a.toml", f"{EXPERIMENT}[secrets]\nrequired = []\n", "eval"),
        ("configs/training/a.toml", EXPERIMENT, "training"),
        ("configs/benchmark/a.toml", BENCHMARK, "benchmark"),
        ("anywhere.toml", BENCHMARK, "benchmark"),
        ("anywhere.toml", f"{EXPERIMENT}[evaluation]\nn = 2\n[secrets]\nrequired = []\n", "eval"),
        ("anywhere.toml", f"{EXPERIMENT}[sampling]\nrollout_top_p = 0.5\n", "training"),
    ],
)
def test_the_kind_is_found_by_folder_or_sections(work: Path, path: str, text: str, kind: str):
    data = validate(work, path, text).json["data"]
    assert (data["valid"], data["kind"]) == (True, kind)
    warned = "parity" if kind == "benchmark" else f"configs/{kind}/" if path == "anywhere.toml" else ""
    assert warned in " ".join(data["warnings"])


def test_every_finding_has_key_line_and_a_suggestion(work: Path):
    done = validate(work, "configs/training/a.toml", f"{EXPERIMENT}[training]\nlearning = 1\nlr = 'x'\n[smpling]\n")
    assert done.status == 1
    details = done.error["details"]
    assert (details["valid"], details["kind"]) == (False, "training")
    found = {issue["key"]: issue for issue in details["issues"]}
    assert set(found) == {"training.learning", "training.lr", "smpling"}
    assert found["training.lr"]["line"] == 8
    assert "did you mean [sampling]?" in found["smpling"]["message"]


def test_the_rollout_must_exist(work: Path):
    text = EXPERIMENT.replace("alpha", "beta")
    error = validate(work, "configs/training/a.toml", text).error
    assert "rollouts/beta" in error["message"]
    text = EXPERIMENT.replace("main.py", "none.py")
    assert "none.py" in validate(work, "configs/training/a.toml", text).error["message"]


def test_a_file_of_no_kind_is_told_unless_the_kind_is_named(work: Path):
    assert "--kind" in validate(work, "x.toml", EXPERIMENT).error["message"]
    assert validate(work, "x.toml", EXPERIMENT, "--kind", "training").json["data"]["kind"] == "training"


def test_outside_a_repository_the_rollout_is_not_looked_for(tmp_path: Path):
    data = validate(tmp_path, "x.toml", EXPERIMENT, "--kind", "training").json["data"]
    assert "not looked for" in data["warnings"][0]


def test_folders_and_missing_files_are_told(work: Path):
    assert osmosis("--json", "config", "validate", "configs/eval", cwd=work).status in (1, 2)
    error = osmosis("--json", "config", "validate", "none.toml", cwd=work).error
    assert "not found" in error["message"]
