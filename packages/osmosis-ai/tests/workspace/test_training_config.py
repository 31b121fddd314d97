from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.config_check import InvalidConfigError
from osmosis_ai.workspace.training_config import (
    STANDARD_OPTIONS,
    Option,
    TrainingFile,
    load_training_config,
    locate_training_config,
)

ROOT = Path(__file__).resolve().parents[4]
GOOD = """\
[experiment]
rollout = "alpha"
entrypoint = "main.py"
model_path = "osmosis/nano"
dataset = "d1"
"""
OPTIONS = (
    Option("advanced.training", "lora_rank", "integer", 16, "Inner size.", least=1, most=1024),
    Option("advanced.training", "algorithm", "string", "grpo", "Loss.", choices=("grpo", "cispo")),
    Option("advanced.training", "std_scaling", "boolean", True, "Scale."),
    Option("advanced.training", "beta", "number", 0.9, "Decay.", least=0, below=1),
)


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    (tmp_path / "configs" / "training").mkdir(parents=True)
    (tmp_path / "rollouts" / "alpha").mkdir(parents=True)
    return tmp_path


def load(work_tree: Path, text: str, options: tuple[Option, ...] | None = OPTIONS) -> TrainingFile:
    path = work_tree / "configs" / "training" / "a.toml"
    path.write_text(text)
    return load_training_config(path, work_tree, options)


def issues(work_tree: Path, text: str) -> dict[str, tuple[str, int | None]]:
    with pytest.raises(InvalidConfigError) as caught:
        load(work_tree, text)
    assert caught.value.details.get("error", "Invalid training config") == "Invalid training config"
    assert caught.value.message.startswith("Invalid training config configs/training/a.toml:\n")
    for issue in caught.value.findings:
        assert f"  - {issue['key']}: {issue['message']}" in caught.value.message
    return {issue["key"]: (issue["message"], issue.get("line")) for issue in caught.value.findings}


def test_a_minimal_file_says_nothing_but_its_experiment(work_tree: Path):
    file = load(work_tree, GOOD)
    assert (file.rollout, file.entrypoint, file.model_path, file.dataset) == ("alpha", "main.py", "osmosis/nano", "d1")
    assert (file.training, file.sampling, file.checkpoints, file.options, file.advanced) == ({}, {}, {}, {}, {})
    assert (file.secret_names, file.env, file.branch, file.commit_sha) == ((), {}, None, None)


def test_every_key_arrives_as_it_was_written(work_tree: Path):
    file = load(
        work_tree,
        GOOD + 'branch = "main"\n[training]\nlr = 1e-5\ntotal_epochs = 2\nn_samples_per_prompt = 4\n'
        "rollout_batch_size = 1\nmax_prompt_length = 100\nmax_response_length = 50\nagent_workflow_timeout_s = 1\n"
        "grader_timeout_s = 0.5\n[sampling]\nrollout_temperature = 0.7\nrollout_top_p = 1\n[checkpoints]\n"
        "eval_interval = 5\ncheckpoint_save_freq = 20\n[advanced]\nx = 1\n[advanced.training]\nlora_rank = 8\n"
        'algorithm = "cispo"\nstd_scaling = false\nbeta = 0\n[env]\nA = "b"\n[secrets]\nrequired = ["KEY"]\n',
    )
    assert set(file.training) | set(file.sampling) | set(file.checkpoints) == {o.key for o in STANDARD_OPTIONS}
    assert file.options == {"lora_rank": 8, "algorithm": "cispo", "std_scaling": False, "beta": 0}
    assert file.advanced == {"x": 1, "training": file.options}
    assert (file.env, file.secret_names, file.branch) == ({"A": "b"}, ("KEY",), "main")


def test_all_findings_come_in_one_report_with_their_lines(work_tree: Path):
    found = issues(
        work_tree,
        """\
[experiment]
rollout = "alpha"
entrypoint = "../x.py"
model_path = "<your-model>"
lr = 1e-5

[training]
lr = 0
total_epochs = 0
n_samples_per_prompt = 1
rollout_batch_size = "8"
rollout_temperature = 1.0
lora_rank = 8
learningrate = 1

[sampling]
rollout_top_p = 1.5

[checkpoint]

[advanced.training]
lora_rnk = 8
algorithm = "ppo"
beta = 1.0

[env]
low = "x"

[secrets]
""",
    )
    assert found["experiment.entrypoint"][1] == 3
    assert "placeholder" in found["experiment.model_path"][0]
    assert found["experiment.dataset"][0] == "is missing"
    assert found["experiment.lr"] == ("is not a recognised key; it belongs under [training]: move lr there", 5)
    assert found["training.lr"] == ("must be a number above 0, at most 1, got 0", 8)
    assert found["training.total_epochs"] == ("must be an integer of 1 or more, got 0", 9)
    assert found["training.n_samples_per_prompt"] == ("must be an integer of 2 or more, got 1", 10)
    assert found["training.rollout_batch_size"] == ("must be an integer of 1 or more, got '8'", 11)
    assert "[sampling]" in found["training.rollout_temperature"][0]
    assert "[advanced.training]" in found["training.lora_rank"][0]
    assert found["training.learningrate"][1] == 14
    assert found["sampling.rollout_top_p"] == ("must be a number above 0, at most 1, got 1.5", 17)
    assert found["checkpoint"] == ("is not a recognised section; did you mean [checkpoints]?", 19)
    assert found["advanced.training.lora_rnk"] == ("is not a recognised key; did you mean lora_rank?", 22)
    assert found["advanced.training.algorithm"] == ("must be one of grpo, cispo, got 'ppo'", 23)
    assert found["advanced.training.beta"] == ("must be a number of 0 or more, below 1, got 1.0", 24)
    assert found["env.low"][1] == 27
    assert "required = []" in found["secrets.required"][0]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("training", "lr = true"), ("training", "lr = nan"), ("training", "lr = -1"), ("training", "lr = inf"),
        ("training", "total_epochs = 1.0"), ("training", "n_samples_per_prompt = true"),
        ("training", "max_prompt_length = 0"), ("training", "max_response_length = -5"),
        ("training", "agent_workflow_timeout_s = 0"), ("training", "grader_timeout_s = '1'"),
        ("sampling", "rollout_temperature = 0"), ("sampling", "rollout_temperature = 11"),
        ("sampling", "rollout_top_p = 0"), ("checkpoints", "eval_interval = 0"),
        ("checkpoints", "checkpoint_save_freq = 0.5"), ("advanced.training", "std_scaling = 1"),
        ("advanced.training", "lora_rank = 2000"), ("advanced.training", "beta = -0.1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_range(work_tree: Path, section: str, line: str):
    key = f"{section}.{line.split(' = ')[0]}"
    option = next(o for o in (*STANDARD_OPTIONS, *OPTIONS) if o.name == key)
    message, at = issues(work_tree, GOOD + f"[{section}]\n{line}\n")[key]
    assert message.startswith(f"must be {option.allowed}, got ")
    assert at == 7


def test_without_a_trainer_the_advanced_table_is_whoever_gets_it(work_tree: Path):
    text = GOOD + "[advanced.training]\nanything = 1\n"
    assert load(work_tree, text, None).options == {"anything": 1}
    assert "advanced.training.anything" in issues(work_tree, text)
    assert "must be a table" in issues(work_tree, GOOD + "[advanced]\ntraining = 3\n")["advanced.training"][0]


def test_defaults_are_allowed_values():
    for option in STANDARD_OPTIONS:
        assert option.default is None or option.problem(option.default) is None, option.name


def test_the_file_lies_under_configs_training(work_tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(work_tree)
    (work_tree / "configs" / "eval").mkdir()
    (work_tree / "configs" / "eval" / "a.toml").write_text(GOOD)
    with pytest.raises(ValidationError, match="must live under `configs/training/`"):
        locate_training_config(Path("configs/eval/a.toml"), work_tree, "osmosis train run")
    (work_tree / "configs" / "training" / "a.toml").write_text(GOOD)
    with pytest.raises(ValidationError, match=r"In configs/training/ there is: a\.toml"):
        locate_training_config(Path("configs/training/b.toml"), work_tree, "osmosis train run")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "workspace-template/configs/training").glob("*.toml")), ids=lambda path: path.stem
)
def test_the_template_files_are_right(path: Path):
    assert load_training_config(path, ROOT / "workspace-template").training["lr"] == 5e-4
