import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import evaluation_workspace as ew
import pytest
from osmosis_ai.evaluation.rows import format_selector
from osmosis_cli import OSMOSIS, Terminal, environment, osmosis
from stub_api import Answer, StubApi

TEMPLATE = Path(__file__).resolve().parents[4] / "workspace-template"
ROWS = [json.loads(line) for line in (TEMPLATE / "data/multiply.jsonl").read_text().splitlines()[:12]]
MULTIPLY = (TEMPLATE / "rollouts/multiply-local-loop/main.py").read_text()
CONFIG = """\
[experiment]
rollout = "loop"
entrypoint = "main.py"
model_path = "osmosis/nano"
dataset = "rows"

[training]
lr = 5e-4
n_samples_per_prompt = 4
rollout_batch_size = 2

[checkpoints]
eval_interval = 2

[advanced.training]
max_steps = 2
validation_rows = 2
"""
RUN = ("train", "run", "configs/training/loop.toml", "--dataset-file", "data/rows.jsonl")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE))


def workspace(tmp_path: Path, config: str = CONFIG, main: str = MULTIPLY) -> Path:
    work = ew.make_workspace(tmp_path / "w", ROWS, model="osmosis/nano", main=main)
    (work / "configs/training/loop.toml").write_text(config)
    return work


def test_a_run_in_json_is_one_object_and_leaves_an_adapter(env, tmp_path: Path):
    work = workspace(tmp_path)
    done = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env, timeout=120)
    assert (done.status, done.stderr) == (0, "")
    result = done.json
    assert (result["status"], result["operation"]) == ("success", "train.run")
    resource = result["resource"]
    run_dir = work / ".osmosis/trainings/r"
    assert {
        "run_name": "r",
        "status": "finished",
        "output_path": str(run_dir),
        "dataset_source": "explicit",
        "steps": 2,
        "total_steps": 2,
        "examples_processed_count": 16,
        "model_path": "osmosis/nano@r/2",
        "cost_usd": 0.0,
        "workspace_directory": str(work),
    }.items() <= resource.items()
    assert [point["step"] for point in resource["training_reward"]] == [1, 2]
    assert [(point["step"], point["rows"]) for point in resource["validation_reward"]] == [(0, 2), (2, 2)]
    (checkpoint,) = resource["checkpoints"]
    assert checkpoint["checkpoint_step"] == 2
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {p.name for p in Path(checkpoint["path"]).iterdir()}
    assert {"action": "eval_run", "model": "osmosis/nano@r/2"} in result["next_steps_structured"]

    again = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env)
    assert again.error["code"] == "CONFLICT" and "--resume" in again.error["message"]
    finished = osmosis("--json", *RUN, "--name", "r", "--resume", "-y", cwd=work, env=env)
    assert (finished.status, finished.json["status"]) == (0, "noop")
    assert finished.json["resource"]["training_reward"] == resource["training_reward"]

    viewed = osmosis("--json", "train", "view", "r", cwd=work, env=env).json["data"]
    assert viewed["training_run"]["current_step"] == 2
    assert (viewed["training_run"]["model_name"], viewed["outcomes"]) == ("osmosis/nano", {"graded": 20})
    assert viewed["checkpoints"] == [{"checkpoint_step": 2}]
    keys = {metric["key"] for metric in viewed["metrics"]}
    assert {"training_reward", "validation_reward", "entropy", "response_length", "total_length"} <= keys
    rewards = next(metric for metric in viewed["metrics"] if metric["key"] == "training_reward")["data"]
    assert [point["value"] for point in rewards] == [point["value"] for point in resource["training_reward"]]
    assert rewards[0]["timestamp"].endswith("Z")

    evaluation = ("eval", "run", "configs/eval/loop.toml", "--dataset-file", "data/rows.jsonl", "--rows", "0-1", "-y")
    evaluated = osmosis("--json", *evaluation, "--model", "osmosis/nano@r", cwd=work, env=env, timeout=120)
    assert evaluated.json["resource"]["succeeded"] == 2, evaluated.stdout


def test_a_dataset_of_the_platform_is_fetched_once_and_trained_on(env, tmp_path: Path):
    work = workspace(tmp_path)
    subprocess.run(["git", "remote", "add", "origin", "https://github.com/acme/demo.git"], cwd=work, check=True)
    rows = (work / "data/rows.jsonl").read_bytes()
    (work / "data/rows.jsonl").unlink()
    with StubApi() as api:
        dataset = {
            "id": f"ds_{uuid4().hex}", "file_name": "rows", "file_size": len(rows), "status": "uploaded",
            "file_format": "jsonl", "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:05:00Z",
        }  # fmt: skip
        api.routes |= {
            "GET /api/cli/datasets/rows": dataset,
            "GET /api/cli/datasets/rows/download": {"presigned_url": f"{api.url}/rows.jsonl"},
            "GET /rows.jsonl": Answer(data=rows),
        }
        platform = {**env, **api.environment()}
        for name in ("first", "second"):
            run = ("train", "run", "configs/training/loop.toml", "--name", name, "--max-steps", "1", "-y")
            done = osmosis("--json", *run, cwd=work, env=platform, timeout=120)
            assert (done.status, done.json["resource"]["steps"]) == (0, 1), done.stderr
            assert (work / ".osmosis/trainings" / name / "metrics.jsonl").stat().st_size
        assert api.calls.count("GET /rows.jsonl") == 1
        assert {asked.headers["x-osmosis-git"] for asked in api.asked if asked.path.startswith("/api")} == {"acme/demo"}
        api.routes["GET /api/cli/datasets/rows"] = {**dataset, "status": "processing"}
        waits = osmosis("--json", *RUN[:3], "-y", cwd=work, env=platform)
        assert waits.error["code"] == "VALIDATION" and "osmosis dataset info rows" in waits.error["message"]
    alone = osmosis("--json", *RUN[:3], "-y", cwd=work, env=env)
    assert alone.error["code"] == "AUTH_REQUIRED" and "--dataset-file FILE" in alone.error["message"]
    runs = {path.name for path in (work / ".osmosis/trainings").iterdir() if not path.name.startswith(".")}
    assert runs == {"first", "second"}


def test_a_redirected_run_tells_a_line_a_step_and_what_to_type_next(env, tmp_path: Path):
    work = workspace(tmp_path)
    (work / "configs/eval/loop.toml").rename(work / "configs/eval/other.toml")
    done = osmosis(*RUN, "--rows", "0-5", "--name", "r", "-y", cwd=work, env=env, timeout=120)
    assert done.status == 0
    assert "\x1b" not in done.stdout + done.stderr
    for said in (
        "4 to train on, 2 held out for validation",
        "2, each 2 rows x 4 rollouts",
        "$0 (the model runs on this machine)",
        "→ Preparing the rollout environment\n",
        "validation before training: reward ",
        "step 1/2 · reward ",
        "step 2/2 · reward ",
        "validation after step 2: reward ",
        "checkpoint after step 2: .osmosis/trainings/r/checkpoints/step_2\n",
    ):
        assert said in done.stderr, said
    assert "⠤⠤ training reward   ◆ validation reward" in done.stdout
    assert "2 rows never trained on" in done.stdout
    assert "osmosis eval run '<eval config>'" not in done.stdout
    held_out = {
        json.loads(line)["row"] for line in (work / ".osmosis/trainings/r/rollouts.jsonl").open() if "valid" in line
    }
    selector = format_selector(sorted({*range(6, 12), *held_out}))  # what no step has seen
    assert f"<eval config> --dataset-file data/rows.jsonl --rows {selector} --model osmosis/nano@r/2" in done.stdout
    assert "osmosis eval compare r-before r-after" in done.stdout
    plain = osmosis("--plain", "train", "view", "r", cwd=work, env=env)
    assert plain.status == 0 and "Training Reward\t" in plain.stdout and "⠤" not in plain.stdout


def test_a_terminal_shows_the_plan_asks_and_draws_while_it_trains(env, tmp_path: Path):
    work = workspace(tmp_path)
    with Terminal(*RUN, "--name", "r", cwd=work, env=env) as terminal:
        terminal.expect("Train 2 steps x model osmosis/nano? [y/N]")
        terminal.send("y\r")
        terminal.expect("rollouts 1/", timeout=90)
        terminal.expect("step 1/2", timeout=60)
        assert terminal.finish(90) == 0
        assert "◆ validation before training" in terminal.text
        assert "⠤⠤ training reward" in terminal.text
        assert "Model Entropy" in terminal.text  # the graphs need 100 columns
        assert "Trained 2 steps." in terminal.text
        assert "\x1b[?25h" in terminal.raw  # the cursor is back


@pytest.mark.parametrize("keys", ["n\r", "\x1b"])
def test_a_declined_training_leaves_nothing(env, tmp_path: Path, keys: str):
    work = workspace(tmp_path)
    with Terminal(*RUN, cwd=work, env=env) as terminal:
        terminal.expect("[y/N]")
        terminal.send(keys)
        assert terminal.finish() == 0
        assert terminal.text.rstrip().endswith("Cancelled.")
    assert [path.name for path in (work / ".osmosis/trainings").iterdir()] == [".locks"]


def test_nobody_to_ask_gets_the_plan_in_the_refusal(env, tmp_path: Path):
    work = workspace(tmp_path)
    done = osmosis("--json", *RUN, "--name", "r", cwd=work, env=env)
    assert (done.status, done.error["code"]) == (1, "INTERACTIVE_REQUIRED")
    assert done.error["details"]["prompt"] == "Train 2 steps x model osmosis/nano?"
    summary = done.error["details"]["summary"]
    assert summary["Rows"] == "10 to train on, 2 held out for validation"
    assert summary["Rollouts"] == "20"
    assert "a guess" in summary["Time"]
    assert summary["Output"] == ".osmosis/trainings/r"
    assert not (work / ".osmosis/trainings/r").exists()


def test_wrong_values_are_told_at_once_before_anything_is_made(env, tmp_path: Path):
    bad = CONFIG.replace("lr = 5e-4", "lr = 0").replace("max_steps = 2", "lora_rnk = 2\nalgorithm = 'ppo'")
    work = workspace(tmp_path, bad.replace("n_samples_per_prompt = 4", "n_samples_per_prompt = 1"))
    done = osmosis("--json", *RUN, "-y", cwd=work, env=env)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert [issue["key"] for issue in done.error["details"]["issues"]] == [
        "training.lr", "training.n_samples_per_prompt", "advanced.training.lora_rnk", "advanced.training.algorithm",
    ]  # fmt: skip
    assert "must be a number above 0" in done.error["message"]
    assert "did you mean lora_rank?" in done.error["message"]
    assert not (work / ".osmosis").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "jax"], "numpy, torch"),
        (["--max-steps", "0"], "--max-steps"),
        (["--rows", "90"], "90"),
        (["--rows", "0-1"], "validation_rows"),
        (["--name", "../x"], "name of a run"),
        (["--name", "none", "--resume"], "no training to go on with"),
        (["--resume"], "leave --resume out"),
        (["--dataset-file", "none.jsonl"], "not a file"),
    ],
)
def test_what_cannot_be_meant_is_refused(env, tmp_path: Path, arguments: list[str], said: str):
    work = workspace(tmp_path)
    done = osmosis("--json", *RUN, *arguments, "-y", cwd=work, env=env)
    assert done.status == 1
    assert done.error["code"] in ("VALIDATION", "CONFLICT", "NOT_FOUND")
    assert said in done.error["message"]
    assert not list((work / ".osmosis/trainings").glob("[!.]*"))


def test_other_advanced_tables_are_kept_with_a_warning(env, tmp_path: Path):
    work = workspace(tmp_path, CONFIG + "\n[advanced.cluster]\nnodes = 2\n")
    done = osmosis("--json", *RUN, "--name", "r", cwd=work, env=env)
    assert "cluster" in done.objects[0]["warning"]["message"]


def test_a_model_that_is_not_here_cannot_be_trained(env, tmp_path: Path):
    work = workspace(tmp_path, CONFIG.replace("osmosis/nano", "openai/gpt-5-mini"))
    done = osmosis("--json", *RUN, "-y", cwd=work, env=env)
    assert done.error["code"] == "VALIDATION" and "openai/gpt-5-mini" in done.error["message"]
    assert "--engine torch" in done.error["message"]
    assert not (work / ".osmosis").exists()


def test_without_a_local_dataset_the_way_around_is_named(tmp_path: Path):
    work = workspace(tmp_path)
    done = osmosis("--json", "train", "run", "configs/training/loop.toml", cwd=work)
    assert done.error["code"] == "VALIDATION" and "--dataset-file" in done.error["message"]


def test_a_missing_trainer_is_answered_with_its_extra(tmp_path: Path):
    work = workspace(tmp_path)
    script = (
        "import sys; sys.modules['osmosis_trainer'] = None\n"
        "from osmosis_ai.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--json", *RUN, "-y"], cwd=work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "VALIDATION"
    assert 'pip install "osmosis-ai[local]"' in error["message"]
    assert error["details"]["extra"] == "local"


def test_an_interrupted_training_ends_with_a_step_and_goes_on(env, tmp_path: Path):
    work = workspace(
        tmp_path,
        CONFIG.replace("max_steps = 2", "max_steps = 40").replace("[training]", "[training]\ntotal_epochs = 9"),
    )
    metrics = work / ".osmosis/trainings/r/metrics.jsonl"
    with subprocess.Popen(
        [OSMOSIS, *RUN, "-y", "--name", "r"], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not (metrics.exists() and b'"kind":"training"' in metrics.read_bytes().replace(b" ", b"")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert b"everything so far is kept" in out
    resume = f"osmosis {' '.join(RUN)} --name r --resume"
    assert resume.encode() in out
    steps = osmosis("--json", "train", "view", "r", cwd=work, env=env).json["data"]["training_run"]["current_step"]
    assert 1 <= steps < 40
    limit = str(steps + 1)
    done = osmosis("--json", *RUN, "--name", "r", "--resume", "--max-steps", limit, "-y", cwd=work, env=env, timeout=90)
    assert (done.status, done.json["resource"]["steps"]) == (0, steps + 1)


def test_ctrl_c_on_a_terminal_ends_with_the_step_and_leaves_it_as_it_was(env, tmp_path: Path):
    config = CONFIG.replace("max_steps = 2", "max_steps = 40").replace("[training]", "[training]\ntotal_epochs = 9")
    work = workspace(tmp_path, config)
    with Terminal(*RUN, "--name", "r", "-y", cwd=work, env=env) as terminal:
        terminal.expect("step 1/40", timeout=90)
        terminal.send("\x03")
        terminal.expect("stopping at the end of this step")
        assert terminal.finish(60) == 1
        assert "everything so far is kept" in terminal.text
        assert "--name r --resume" in terminal.text
        assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")  # the cursor is back


def test_missing_secrets_are_named_and_nothing_is_left(env, tmp_path: Path):
    work = workspace(tmp_path, CONFIG + '\n[secrets]\nrequired = ["MY_KEY", "OTHER"]\n')
    done = osmosis("--json", *RUN, "-y", cwd=work, env={**env, "OTHER": "x"})
    assert done.error["code"] == "INTERACTIVE_REQUIRED"
    assert done.error["details"] == {"missing": ["MY_KEY"], "flags": ["--secrets-file"]}
    assert [path.name for path in (work / ".osmosis/trainings").iterdir()] == [".locks"]


def test_a_flat_reward_is_explained_in_words(env, tmp_path: Path):
    config = CONFIG.replace("max_steps = 2", "max_steps = 1\nno_signal_steps = 1")
    work = workspace(tmp_path, config, MULTIPLY.replace("ctx.set_reward(1.0 if", "ctx.set_reward(0.0 if"))
    done = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env, timeout=120)
    assert done.status == 0
    said = [line["warning"]["message"] for line in done.objects]
    assert any("nothing to learn from" in message for message in said)
    assert any("All 8 rewards are 0" in message for message in said)


def test_a_grader_that_never_rewards_ends_the_training_with_the_cause(env, tmp_path: Path):
    main = MULTIPLY.replace("ctx.set_reward(1.0 if answers and answers[-1] == ctx.label else 0.0)", "pass")
    work = workspace(tmp_path, CONFIG.replace("max_steps = 2", "max_steps = 4"), main)
    done = osmosis(*RUN, "--name", "r", "-y", cwd=work, env=env, timeout=120)
    assert done.status == 1
    assert "ctx.set_reward" in done.stderr
    assert "Traceback" not in done.stderr
    assert "--resume" not in done.stderr  # it would end the same way


def test_failed_rollouts_are_counted_with_their_cause(env, tmp_path: Path):
    main = MULTIPLY.replace(
        "        rollout = get_rollout_context()",
        "        if '72' in ctx.prompt[-1]['content']: raise KeyError('no such tool')\n        rollout = get_rollout_context()",
        1,
    )
    work = workspace(
        tmp_path,
        CONFIG.replace("max_steps = 2", "max_steps = 5").replace("validation_rows = 2", "validation_rows = 0"),
        main,
    )
    done = osmosis("--json", *RUN, "--name", "r", "-y", "--rows", "0-3", cwd=work, env=env, timeout=120)
    resource = done.json["resource"]
    assert resource["outcomes"] == {"graded": 12, "failed": 4}
    (cause,) = resource["causes"]
    assert (cause["fault"], cause["count"]) == ("agent", 4) and "no such tool" in cause["message"]
    viewed = osmosis("--plain", "train", "view", "r", cwd=work, env=env)
    assert "12 graded · 4 failed" in viewed.stdout and "no such tool" in viewed.stdout


def test_a_long_prompt_is_counted_apart_and_blames_no_agent(env, tmp_path: Path):
    work = workspace(
        tmp_path,
        CONFIG.replace("rollout_batch_size = 2", "rollout_batch_size = 2\nmax_prompt_length = 20").replace(
            "max_steps = 2", "max_steps = 4"
        ),
    )
    done = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env, timeout=120)
    assert done.status == 1 and "max_prompt_length" in done.error["message"]
    viewed = osmosis("--plain", "train", "view", "r", cwd=work, env=env)
    assert "with too long a prompt" in viewed.stdout and "agent_error" not in viewed.stdout


def test_a_view_of_a_running_training_leaves_the_line_being_written_out(env, tmp_path: Path):
    work = workspace(tmp_path)
    run = work / ".osmosis/trainings/r"
    run.mkdir(parents=True)
    whole = {"step": 1, "kind": "training", "training_reward": 0.5}
    (run / "metrics.jsonl").write_text(json.dumps(whole) + '\n{"step": 2, "ki')
    assert osmosis("--json", "train", "view", "r", cwd=work, env=env).json["data"]["training_run"]["current_step"] == 1
    (run / "metrics.jsonl").write_text("{broken\n" + json.dumps(whole) + "\n")
    done = osmosis("--json", "train", "view", "r", cwd=work, env=env)
    assert done.error["code"] == "VALIDATION" and "line 1" in done.error["message"]
    (run / "metrics.jsonl").unlink()
    empty = osmosis("train", "view", "r", cwd=work, env=env)
    assert empty.status == 0 and "no metrics yet" in empty.stdout
    missing = osmosis("--json", "train", "view", "rr", cwd=work, env=env)
    assert missing.error["code"] == "NOT_FOUND" and "r" in missing.error["message"]
