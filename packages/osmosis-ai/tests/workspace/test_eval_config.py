import os
from pathlib import Path

import pytest
from osmosis_ai.errors import UsageError, ValidationError
from osmosis_ai.workspace.config_check import InvalidConfigError
from osmosis_ai.workspace.eval_config import EvalConfig, load_eval_config, locate_eval_config

GOOD = """\
[experiment]
rollout = "alpha"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "d1"

[secrets]
required = []
"""


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    (tmp_path / "configs" / "eval").mkdir(parents=True)
    (tmp_path / "rollouts" / "alpha").mkdir(parents=True)
    return tmp_path


def load(work_tree: Path, text: str | bytes) -> EvalConfig:
    path = work_tree / "configs" / "eval" / "a.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_eval_config(path, work_tree)


def issues(work_tree: Path, text: str) -> dict[str, tuple[str, int | None]]:
    with pytest.raises(InvalidConfigError) as caught:
        load(work_tree, text)
    assert caught.value.details.get("error", "Invalid eval config") == "Invalid eval config"
    for issue in caught.value.findings:
        assert f"  - {issue['key']}: {issue['message']}" in caught.value.message
    return {issue["key"]: (issue["message"], issue.get("line")) for issue in caught.value.findings}


def test_defaults_of_a_minimal_file(work_tree: Path):
    config = load(work_tree, GOOD)
    assert (config.rollout, config.entrypoint, config.model_path) == ("alpha", "main.py", "openai/gpt-5-mini")
    assert (config.n, config.limit, config.batch_size, config.pass_threshold) == (1, None, None, 1.0)
    assert (config.agent_timeout_s, config.grader_timeout_s, config.secret_names, config.env) == (None, None, (), {})


def test_every_key_arrives(work_tree: Path):
    config = load(
        work_tree,
        GOOD.replace("required = []", 'required = ["OPENAI_API_KEY"]')
        + "[evaluation]\nlimit = 3\nn = 2\nbatch_size = 4\npass_threshold = 0\nagent_workflow_timeout_s = 10\n"
        "grader_timeout_s = 2.5\n[env]\nLOG_LEVEL = 'debug'\n_X = ''\n[advanced]\na = {b = [1]}\n",
    )
    assert (config.limit, config.n, config.batch_size, config.pass_threshold) == (3, 2, 4, 0.0)
    assert (config.agent_timeout_s, config.grader_timeout_s) == (10.0, 2.5)
    assert config.secret_names == ("OPENAI_API_KEY",)
    assert config.env == {"LOG_LEVEL": "debug", "_X": ""}
    assert config.advanced == {"a": {"b": [1]}}


def test_all_findings_come_in_one_report_with_their_lines(work_tree: Path):
    found = issues(
        work_tree,
        """\
[experiment]
rollout = "<your-rollout>"
entrypoint = "main.py"
dataset = 5
comit_sha = "abc"
limit = 3

[evaluation]
n = 0
pass_threshold = "1"
batchsize = 2

[evaluatoin]

[env]
low = "x"
_OSMOSIS_X = "1"
NUMBER = 3

[secrets]
required = ["lower", "TWICE", "TWICE", "NUMBER2"]
OPENAI_API_KEY = "record"
""",
    )
    assert found["experiment.rollout"] == ("still holds the placeholder <your-rollout>; put your own value there", 2)
    assert found["experiment.model_path"] == ("is missing", 1)
    assert found["experiment.dataset"] == ("must be a string, got 5", 4)
    assert found["experiment.comit_sha"] == ("is not a recognised key; did you mean commit_sha?", 5)
    assert "[evaluation]" in found["experiment.limit"][0]
    assert found["evaluation.n"] == ("must be a positive integer, got 0", 9)
    assert found["evaluation.pass_threshold"] == ("must be a number, got '1'", 10)
    assert found["evaluation.batchsize"] == ("is not a recognised key; did you mean batch_size?", 11)
    assert found["evaluatoin"] == ("is not a recognised section; did you mean [evaluation]?", 13)
    assert found["env.low"][1] == 16
    assert "reserved" in found["env._OSMOSIS_X"][0]
    assert found["env.NUMBER"] == ("must be a string, got 3", 18)
    assert "required = [" in found["secrets.OPENAI_API_KEY"][0]
    assert "secrets.required" in found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("n = 0", "positive integer"), ("n = true", "integer"), ("n = '2'", "integer"), ("n = 2.0", "integer"),
        ("limit = 0", "positive integer"), ("limit = -1", "positive"), ("batch_size = 0", "positive"),
        ("batch_size = 1.5", "integer"), ("pass_threshold = nan", "finite"), ("pass_threshold = -0.1", "0 or more"),
        ("pass_threshold = true", "number"), ("agent_workflow_timeout_s = inf", "finite"),
        ("agent_workflow_timeout_s = 0", "more than 0"), ("grader_timeout_s = -3", "more than 0"),
        (f"grader_timeout_s = {'9' * 400}", "finite"), ("rows = '1-2'", "--rows"),
    ],
)  # fmt: skip
def test_values_of_evaluation_are_checked(work_tree: Path, line: str, said: str):
    key = f"evaluation.{line.split(' = ')[0]}"
    message, at = issues(work_tree, GOOD + f"[evaluation]\n{line}\n")[key]
    assert said in message
    assert at == 10


@pytest.mark.parametrize("rollout", ["", ".", "..", "a/b", "a\\b", "/abs", "out"])
def test_a_rollout_is_one_folder_inside_rollouts(work_tree: Path, rollout: str):
    (work_tree / "rollouts" / "out").symlink_to(work_tree / "configs")
    text = GOOD.replace('"alpha"', f"'{rollout}'")
    assert "experiment.rollout" in issues(work_tree, text)


@pytest.mark.parametrize("entrypoint", ["../beta/main.py", "/etc/passwd", ".", "link.py"])
def test_an_entrypoint_stays_inside_its_rollout(work_tree: Path, entrypoint: str):
    (work_tree / "rollouts" / "alpha" / "link.py").symlink_to(work_tree / "configs")
    assert "experiment.entrypoint" in issues(work_tree, GOOD.replace('"main.py"', f'"{entrypoint}"'))


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ('branch = "a b"', "experiment.branch"),
        ('branch = ""', "experiment.branch"),
        ('commit_sha = "abc"', "experiment.commit_sha"),
        ('commit_sha = "abcdefg"', "experiment.commit_sha"),
        ('branch = "main"\ncommit_sha = "abcdef1"', "experiment"),
    ],
)
def test_branch_and_commit(work_tree: Path, extra: str, key: str):
    assert key in issues(work_tree, GOOD.replace('dataset = "d1"', f'dataset = "d1"\n{extra}'))


def test_secrets_are_a_section_with_a_list(work_tree: Path):
    assert "secrets" in issues(work_tree, GOOD.split("[secrets]")[0])
    assert "secrets.required" in issues(work_tree, GOOD.replace("required = []", ""))
    assert "secrets.required" in issues(work_tree, GOOD.replace("[]", '"A"'))
    assert (
        "exactly one source"
        in issues(work_tree, GOOD.replace("[]", '["A"]') + '[env]\nA = "1"\n')["secrets.required"][0]
    )


def test_sections_must_be_tables(work_tree: Path):
    assert issues(work_tree, "env = 3\n" + GOOD)["env"] == ("must be a table, got 3", 1)
    assert issues(work_tree, "experiment = 'x'\n[secrets]\nrequired = []\n")["experiment"][0].startswith(
        "must be a table"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = 1\n[experiment\n", "line 2"),
        (b"a = 1\nb = \xff\n", "line 2"),
        (b"a = " + b"[" * 3000 + b"]" * 3000, "nested"),
        (b"a = 1\na = 2\n", "Invalid TOML"),
    ],
)
def test_files_that_are_no_toml(work_tree: Path, content: bytes, said: str):
    with pytest.raises(ValidationError, match="Invalid TOML") as caught:
        load(work_tree, content)
    assert said in caught.value.message
    assert "a.toml" in caught.value.message


def test_a_file_of_windows_is_a_file(work_tree: Path):
    assert load(work_tree, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()).rollout == "alpha"


def test_files_that_cannot_be_read(work_tree: Path):
    with pytest.raises(ValidationError, match="not found"):
        load_eval_config(work_tree / "none.toml", work_tree)
    with pytest.raises(UsageError, match="directory"):
        load_eval_config(work_tree, work_tree)


def test_lines_survive_multi_line_values(work_tree: Path):
    text = GOOD + '[advanced]\ntext = """\n[env]\nlow = 1\n"""\nlist = [\n  "a", # ]\n  "]",\n]\n[env]\nlow = "1"\n'
    assert issues(work_tree, text)["env.low"][1] == text.split("\n").index('low = "1"') + 1


def test_the_file_lies_under_configs_eval(work_tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(work_tree)
    inside = work_tree / "configs" / "eval" / "a.toml"
    inside.write_text(GOOD)
    assert locate_eval_config(Path("configs/eval/a.toml"), work_tree, "osmosis eval run") == inside
    (work_tree / "outside.toml").write_text(GOOD)
    (work_tree / "configs" / "eval" / "link.toml").symlink_to(work_tree / "outside.toml")
    for given in ("outside.toml", "configs/eval/../../outside.toml", "configs/eval/link.toml"):
        with pytest.raises(ValidationError, match="must live under"):
            locate_eval_config(Path(given), work_tree, "osmosis eval run")
    (work_tree / "configs" / "eval" / "a.json").write_text("")
    with pytest.raises(ValidationError, match=r"\.toml"):
        locate_eval_config(Path("configs/eval/a.json"), work_tree, "osmosis eval run")
    with pytest.raises(ValidationError, match=r"not found.*\n.*a\.toml"):
        locate_eval_config(Path("configs/eval/b.toml"), work_tree, "osmosis eval run")
    os.chdir(work_tree / "configs")
    assert locate_eval_config(Path("eval/a.toml"), work_tree, "osmosis eval run").samefile(inside)
