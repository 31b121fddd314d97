"""Whole trainings of a few steps through real rollouts: what is learnt from, kept, gone on from, and said."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from evaluation_workspace import ROOT
from osmosis_ai.errors import ConflictError, NotFoundError, OsmosisError, ValidationError
from osmosis_trainer import embedded_policy
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.loop.alarms import TrainingAlarm
from osmosis_trainer.loop.loop import NoRewardError
from osmosis_trainer.loop.writers import open_writers
from osmosis_trainer.training import SilentTrainingObserver, TrainingRun, read_metrics
from safetensors.numpy import load_file
from training_workspace import make_training, request_for, train


class Watching(SilentTrainingObserver):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.reasons: list[str] = []
        self.steps: list[int] = []

    def warning(self, code: str | None, message: str) -> None:
        self.warnings.append(message)

    def diagnosis(self, text: str) -> None:
        self.reasons.append(text)

    def step(self, step: int, steps: int, values: object) -> None:
        self.steps.append(step)


def lines(run_dir: Path, name: str = "rollouts.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run_dir / name).read_text().splitlines()]


def adapter(run_dir: Path, step: int) -> dict[str, np.ndarray]:
    return load_file(run_dir / f"checkpoints/step_{step}/adapter_model.safetensors")


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal but for what Adam makes of gradients that are themselves rounding."""
    return bool(np.abs(a - b).mean() < 1e-5)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_training(tmp_path)


def test_a_training_learns_validates_and_leaves_an_adapter_that_can_be_evaluated(workspace):
    report = train(workspace, validation_rows=2, eval_interval=2, max_steps=3)
    assert (report.status, report.steps) == ("finished", 3)
    assert sorted(report.training_reward) == [1, 2, 3]
    assert sorted(report.validation_reward) == [0, 2, 3]
    assert sorted(report.checkpoints) == [2, 3]
    assert any(np.abs(value).max() > 0 for name, value in adapter(report.run_dir, 3).items() if "lora_B" in name)
    training = [line for line in read_metrics(report.run_dir) if line["kind"] == "training"]
    # the very weights that drew the tokens give them the same log-probabilities: no token was made anew
    assert all(line["logprob_gap_max"] < 1e-4 for line in training if line["groups_trained"])
    assert all(abs(line["ratio_mean"] - 1) < 1e-4 for line in training if line["groups_trained"])
    rows = lines(report.run_dir)
    held = {line["row"] for line in rows if line["phase"] == "validation"}
    assert len(held) == 2 and not held & {line["row"] for line in rows if line["phase"] == "training"}
    assert report.model_path == "osmosis/nano@run/3"
    embedded_policy("osmosis/nano@run", workspace=workspace)
    embedded_policy(str(report.checkpoints[2].relative_to(workspace)), workspace=workspace)


def test_the_run_decides_how_answers_are_drawn_not_the_agent(workspace):
    report = train(workspace, max_steps=1, rollout_temperature=0.8, rollout_top_p=0.95)
    drawn = [line["sampled_tokens"] for line in lines(report.run_dir)]
    assert max(drawn) > 1  # the agent asks for max_tokens 1
    assert len(set(drawn)) > 1  # and for temperature 0 with a seed, which would make all answers of a group equal
    (step,) = read_metrics(report.run_dir)
    assert step["logprob_gap_mean"] < 1e-4  # the trainer computes the distribution that was sampled from


def test_the_run_decides_how_validation_is_drawn_too(workspace):
    report = train(workspace, max_steps=1, validation_rows=2, validation_samples=4, validation_temperature=1.0)
    first = [line for line in lines(report.run_dir) if line["phase"] == "validation" and line["step"] == 0]
    assert len({line["sampled_tokens"] for line in first}) > 1  # the agent asks for one token, temperature 0 and a seed


def test_more_updates_than_one_learn_more_from_the_same_rollouts(workspace):
    once = train(workspace, "once", max_steps=1)
    twice = train(workspace, "twice", max_steps=1, updates_per_step=2)
    drawn = [sorted(line["sampled_tokens"] for line in lines(run.run_dir)) for run in (once, twice)]
    assert drawn[0] == drawn[1]
    moved = [
        sum(float(np.abs(value).sum()) for name, value in adapter(run.run_dir, 1).items() if "lora_B" in name)
        for run in (once, twice)
    ]
    assert moved[1] > 1.2 * moved[0]


def test_two_turns_are_one_conversation_and_one_datum(tmp_path):
    report = train(make_training(tmp_path, ["twice one", "twice two"]), max_steps=1, max_response_length=120)
    for line in lines(report.run_dir):
        assert line["turns"] == 2
        assert line["branches"] == (1 if not line["cut"] else line["branches"])
    assert read_metrics(report.run_dir)[0]["logprob_gap_max"] < 1e-4


def test_going_on_is_the_same_as_never_having_stopped(workspace):
    whole = train(workspace, "whole", max_steps=4)
    train(workspace, "parts", max_steps=2)
    saved = workspace / ".osmosis/trainings/parts/checkpoints/step_2/state.safetensors"
    twin = workspace / ".osmosis/trainings/whole/checkpoints/step_2/state.safetensors"
    before = load_file(saved)
    parts = train(workspace, "parts", resume=True, max_steps=4)
    assert (parts.steps, sorted(parts.training_reward)) == (4, [1, 2, 3, 4])

    def drawn(report):
        return sorted(
            (r["step"], r["row"], r["sample"], r["sampled_tokens"], r["reward"]) for r in lines(report.run_dir)
        )

    assert drawn(parts) == drawn(whole)
    for name, value in load_file(twin).items():
        assert close(before[name], value)
    for name, value in adapter(whole.run_dir, 4).items():
        assert close(adapter(parts.run_dir, 4)[name], value)


def test_going_on_tells_no_rollout_twice_and_loses_no_validation_pass(workspace):
    options = {"validation_rows": 2, "eval_interval": 1, "staleness": 1}
    run_dir = train(workspace, max_steps=2, **options).run_dir
    told, metrics = lines(run_dir), lines(run_dir, "metrics.jsonl")
    # what a kill leaves: rollouts of the next step begun ahead, the last validation pass half done, the one before late
    ahead = [{**line, "step": 3} for line in told if line["phase"] == "training" and line["step"] == 2]
    half = [line for line in told if line["phase"] == "validation" and line["step"] == 2][1:]
    late = [line for line in metrics if line["kind"] == "validation" and line["step"] == 1]
    begun = [line for line in told if line["phase"] == "training" or line["step"] < 2]
    ended = [line for line in metrics if line["kind"] == "training" or line["step"] < 1]
    for name, records in (("rollouts.jsonl", begun + ahead + half), ("metrics.jsonl", ended + late)):
        (run_dir / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    report = train(workspace, resume=True, max_steps=3, **options)
    assert sorted(report.validation_reward) == [0, 1, 2, 3]
    validated = [line["step"] for line in read_metrics(run_dir) if line["kind"] == "validation"]
    assert sorted(validated) == [0, 1, 2, 3]
    keys = [(line["phase"], line["step"], line["group"], line["sample"]) for line in lines(run_dir)]
    assert len(keys) == len(set(keys))


def test_a_state_is_restored_bit_for_bit(workspace):
    report = train(workspace, max_steps=2)
    state = report.checkpoints[2] / "state.safetensors"
    with TrainingRun.open(request_for(workspace, "run", resume=True, max_steps=4), warn=lambda *_: None) as run:
        assert run.saved is not None

        async def round_trip() -> None:
            await run.engine.load_state("policy", run.saved.state)
            await run.engine.save_state("policy", workspace / "again.safetensors")
            await run.engine.aclose()

        asyncio.run(round_trip())
    assert (workspace / "again.safetensors").read_bytes() == state.read_bytes()


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_used(workspace):
    report = train(workspace, max_steps=3)
    for folder in ("state", "checkpoints"):
        path = report.run_dir / folder / "step_3" / "state.safetensors"
        if path.exists():
            path.write_bytes(path.read_bytes()[:-8] + b"\0" * 8)
    warnings: list[str] = []
    again = train(workspace, resume=True, max_steps=4, warnings=warnings)
    assert again.steps == 4
    assert any("step_3 is damaged: state.safetensors has changed" in text for text in warnings)
    assert sorted(again.training_reward) == [1, 2, 3, 4]
    assert [line["step"] for line in read_metrics(again.run_dir)] == [1, 2, 3, 4]


def test_a_finished_training_has_nothing_to_do(workspace):
    train(workspace, max_steps=1)
    with TrainingRun.open(request_for(workspace, "run", resume=True, max_steps=1), warn=lambda *_: None) as run:
        assert run.complete
        assert run.report().status == "finished"


def test_a_training_killed_after_its_last_step_still_gets_its_checkpoint_and_validation(workspace):
    options = {"validation_rows": 2, "checkpoint_save_freq": 20, "max_steps": 2}
    run_dir = train(workspace, **options).run_dir
    shutil.rmtree(run_dir / "checkpoints")
    ended = [line for line in lines(run_dir, "metrics.jsonl") if (line["kind"], line["step"]) != ("validation", 2)]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ended))
    report = train(workspace, resume=True, **options)
    assert (report.status, sorted(report.checkpoints), sorted(report.validation_reward)) == ("finished", [2], [0, 2])
    assert sorted(report.training_reward) == [1, 2]
    with TrainingRun.open(request_for(workspace, "run", resume=True, **options), warn=lambda *_: None) as run:
        assert run.complete


def test_other_inputs_are_named_when_going_on(workspace):
    train(workspace, max_steps=1)
    with pytest.raises(ConflictError, match=r"changed: lora_rank \(16 is now 8\)"):
        TrainingRun.open(request_for(workspace, "run", resume=True, lora_rank=8), warn=lambda *_: None)
    (workspace / "rollouts/loop/more.py").write_text("")
    with pytest.raises(ConflictError, match="changed: rollout"):
        TrainingRun.open(request_for(workspace, "run", resume=True), warn=lambda *_: None)


def test_a_name_in_use_and_a_missing_run_are_refused(workspace):
    train(workspace, max_steps=1)
    with pytest.raises(ConflictError, match="Go on with it with --resume"):
        TrainingRun.open(request_for(workspace, "run"), warn=lambda *_: None)
    with pytest.raises(ConflictError, match="no training to go on with"):
        TrainingRun.open(request_for(workspace, "other", resume=True), warn=lambda *_: None)
    shutil.rmtree(workspace / ".osmosis/trainings/run")
    with pytest.raises(NotFoundError, match="There is no training of"):
        TrainingRun.open(request_for(workspace, None, resume=True), warn=lambda *_: None)


def test_without_a_name_the_latest_training_of_the_file_goes_on(workspace):
    train(workspace, "older", max_steps=1)
    train(workspace, "newer", max_steps=1)
    assert train(workspace, None, resume=True, max_steps=2).run_name == "newer"


def test_a_long_prompt_is_named_skipped_and_counted(tmp_path):
    workspace = make_training(tmp_path, ["Say one.", "Say two.", "Say " + "so many words " * 20, "Say four."])
    watching = Watching()
    report = train(workspace, observer=watching, rollout_batch_size=4, max_prompt_length=60)
    assert any(text.startswith("Row 2 is skipped: its prompt has ") for text in watching.warnings)
    (step,) = read_metrics(report.run_dir)
    assert step["samples_long_prompt"] == 4 and step["samples_failed_agent"] == 0
    assert {line["row"] for line in lines(report.run_dir) if line["kind"] == "long_prompt"} == {2}


def test_a_grader_that_never_gives_a_reward_ends_the_training_and_is_named(tmp_path):
    workspace = make_training(tmp_path, label="unset")
    with pytest.raises(NoRewardError, match=r"No rollout of the last 2 steps got a reward[\s\S]*the grader set none"):
        train(workspace)


def test_a_grader_that_fails_is_quoted(tmp_path):
    workspace = make_training(tmp_path, label="broken")
    with pytest.raises(NoRewardError, match=r"All rollouts failed through the grader: .*the grader cannot"):
        train(workspace)


def test_rewards_without_spread_are_explained_and_leave_the_weights_alone(tmp_path):
    workspace = make_training(tmp_path, label="same")
    watching = Watching()
    report = train(workspace, observer=watching, max_steps=2, no_signal_steps=2)
    assert any("2 steps in a row had nothing to learn from" in text for text in watching.warnings)
    assert any("rewards are 0, so no rollout is better" in reason for reason in watching.reasons)
    assert not any(np.any(value) for name, value in adapter(report.run_dir, 2).items() if "lora_B" in name)
    assert read_metrics(report.run_dir)[-1]["groups_without_signal"] == 2
    assert watching.warnings[-1].startswith("No step had anything to learn from, so the adapter changes nothing")


def test_a_training_too_short_for_the_alarm_still_says_why_it_learnt_nothing(tmp_path):
    watching = Watching()
    train(make_training(tmp_path, label="same"), observer=watching, max_steps=1)
    assert watching.warnings == ["No step had anything to learn from, so the adapter changes nothing."]
    assert any("rewards are 0, so no rollout is better" in reason for reason in watching.reasons)


def test_groups_without_signal_are_refilled_as_far_as_allowed(tmp_path):
    workspace = make_training(tmp_path, label="same")
    report = train(workspace, max_steps=1, refill_limit=1.5)
    (step,) = read_metrics(report.run_dir)
    assert (step["groups"], step["groups_refilled"], step["samples"]) == (5, 3, 20)
    assert len({line["row"] for line in lines(report.run_dir)}) == 5


def test_a_failed_agent_has_no_reward_unless_the_run_gives_it_one(tmp_path):
    workspace = make_training(tmp_path, ["raise", "Say two."])
    without = train(workspace, "without", max_steps=1)
    (step,) = read_metrics(without.run_dir)
    assert (step["samples_failed_agent"], step["groups_too_small"], step["samples_graded"]) == (4, 1, 4)
    given = train(workspace, "given", max_steps=1, agent_error_reward=-1.0)
    (step,) = read_metrics(given.run_dir)
    assert (step["groups_too_small"], step["groups_without_signal"]) == (0, 1)
    assert step["training_reward"] >= 0  # what the run gives is no reward of a grader's


def test_what_a_dead_server_took_with_it_is_carried_out_again_with_the_same_tokens(tmp_path):
    workspace = make_training(tmp_path, ["Say one.", "dieonce please"])
    report = train(workspace, "died", max_steps=1)
    (step,) = read_metrics(report.run_dir)
    assert (step["samples_graded"], step["samples_failed_infrastructure"]) == (8, 0)
    assert max(line["attempts"] for line in lines(report.run_dir)) == 2
    again = train(workspace, "lived", max_steps=1)

    def drawn(report):
        return sorted(
            (line["row"], line["sample"], line["sampled_tokens"], line["reward"]) for line in lines(report.run_dir)
        )

    assert drawn(report) == drawn(again)


def test_rollouts_run_ahead_of_training_when_staleness_is_allowed(workspace):
    report = train(workspace, max_steps=3, staleness=1)
    ages = [line["staleness"] for line in read_metrics(report.run_dir)]
    assert ages == [0, 1, 1]
    # ratios are against what the sampler recorded, with the older weights: those of one that recomputed them would be 1
    off = [abs(line["ratio_max"] - line["ratio_min"]) for line in read_metrics(report.run_dir) if "ratio_max" in line]
    assert off[0] < 1e-3 < max(off[1:])
    assert all(line["samples_stale"] == 0 for line in read_metrics(report.run_dir))


def test_checkpoints_are_kept_as_many_as_asked_for(workspace):
    report = train(workspace, max_steps=4, checkpoint_save_freq=1, keep_checkpoints=2)
    assert sorted(report.checkpoints) == [3, 4]


def test_a_dataset_that_is_too_small_is_refused_before_anything_starts(workspace):
    with pytest.raises(ValidationError, match="8 rows and 8 are held out"):
        TrainingRun.open(request_for(workspace, "run", validation_rows=8), warn=lambda *_: None)
    assert not (workspace / ".osmosis").exists()


def test_a_missing_writer_is_refused_before_anything_starts(workspace):
    with pytest.raises(ValidationError, match=r"asks for trackio, which needs trackio\. Install with: pip install"):
        TrainingRun.open(request_for(workspace, "run", writers="trackio"), warn=lambda *_: None)


@pytest.mark.parametrize(("name", "remedy"), [("wandb", "wandb login"), ("mlflow", "MLFLOW_TRACKING_URI")])
def test_a_writer_that_cannot_begin_is_named_with_a_remedy_and_without_the_key(tmp_path, monkeypatch, name, remedy):
    body = "def {}(*_, **__):\n    raise OSError('no server for key s3cret-value-123')\n"
    starts = {"wandb": "def Settings(**_): ...\n" + body.format("init"), "mlflow": body.format("active_run")}
    (tmp_path / f"{name}.py").write_text(starts[name])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("SOME_API_KEY", "s3cret-value-123")
    with pytest.raises(ValidationError, match=f"advanced.training.writers asks for {name}") as caught:
        open_writers([name], tmp_path, "run", {})
    monkeypatch.delitem(sys.modules, name)
    assert remedy in caught.value.message and "no server" in caught.value.message
    assert "s3cret" not in caught.value.message


def test_an_unsupported_model_is_refused_before_anything_starts(workspace, broken_nano):
    folder = broken_nano({"architectures": ["LlamaForCausalLM"]})
    config = workspace / "configs/training/loop.toml"
    config.write_text(config.read_text().replace("osmosis/nano", str(folder)))
    with pytest.raises(ValidationError, match="the NumPy engine runs"):
        TrainingRun.open(request_for(workspace, "run"), warn=lambda *_: None)
    assert not (workspace / ".osmosis").exists()


def test_the_plan_is_told_before_anything_starts_and_learns_from_earlier_trainings(workspace):
    with TrainingRun.open(
        request_for(workspace, "run", eval_interval=1, validation_rows=2), warn=lambda *_: None
    ) as run:
        plan = run.plan
        assert (plan.rows, plan.validation_rows, plan.rows_per_step, plan.steps) == (6, 2, 2, 3)
        assert plan.rollouts == 6 * 4 + 4 * 2  # validated before, and after each of three steps
        assert plan.tokens == plan.rollouts * 24 and plan.seconds
        report = asyncio.run(run.execute({}, SilentTrainingObserver()))
    drawn = [line["sampled_tokens"] for line in lines(report.run_dir) if line["phase"] == "training"]
    with TrainingRun.open(
        request_for(workspace, "next", eval_interval=1, validation_rows=2), warn=lambda *_: None
    ) as run:
        assert run.plan.tokens == int(32 * sum(drawn) / len(drawn))


def test_a_sampler_that_lies_about_its_probabilities_stops_the_training(workspace, monkeypatch):
    from osmosis_trainer.engine import sampler
    from osmosis_trainer.engine.sampling import draw

    def lying(*arguments):
        tokens, logprobs = draw(*arguments)
        return tokens, logprobs + np.float32(0.01)

    monkeypatch.setattr(sampler, "draw", lying)
    with pytest.raises(TrainingAlarm, match=r"trainer and sampler disagree by 1\.00e-02"):
        train(workspace)
    report = TrainingRun.open(request_for(workspace, "run", resume=True), warn=lambda *_: None).report()
    assert report.steps == 0 and not report.checkpoints


def start(workspace: Path, **options: object) -> subprocess.Popen[str]:
    """A training in a process of its own."""
    script = ROOT / "tests/support/training_workspace.py"
    return subprocess.Popen(
        [sys.executable, str(script), str(workspace), "run", json.dumps(options)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )


def wait_for(process: subprocess.Popen[str], event: dict) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if event.items() <= json.loads(line).items():
            return
    raise AssertionError(f"{event} never came; the process ended with {process.wait()}")


def test_an_interrupt_ends_the_step_saves_and_can_be_gone_on_from(workspace):
    with start(workspace, max_steps=50, total_epochs=50) as process:
        wait_for(process, {"step": 2, "rollouts": 1})
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, rest
    assert json.loads(rest.splitlines()[-1]) == {"status": "stopped", "steps": 2}
    report = train(workspace, resume=True, max_steps=3, total_epochs=50)
    assert sorted(report.checkpoints) == [2, 3]


def test_a_second_interrupt_gives_the_rollouts_up_and_keeps_what_was_trained(tmp_path):
    workspace = make_training(tmp_path, ["Say one.", "Say two.", "sleep", "sleep"])
    with start(workspace, max_steps=50, total_epochs=50, rollout_batch_size=1, seed=1) as process:
        wait_for(process, {"step": 1})
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, rest
    assert json.loads(rest.splitlines()[-1])["status"] == "stopped"
    assert list((workspace / ".osmosis/trainings/run/checkpoints").glob("step_*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        {"rollouts": 1, "step": 1},
        {"rollouts": 3, "step": 3},
        {"step": 2},
        {"checkpoint": 2},
        {"rollouts": 8, "step": 2},
    ],
    ids=["before the first step", "in the rollouts", "after a step", "at a checkpoint", "as training begins"],
)
def test_a_killed_training_goes_on_and_loses_no_finished_step(workspace, event):
    with start(workspace, max_steps=50, total_epochs=50) as process:
        wait_for(process, event)
        process.kill()
    report = train(workspace, resume=True, max_steps=4, total_epochs=50)
    assert report.status == "finished"
    steps = [line["step"] for line in read_metrics(report.run_dir)]
    assert steps == [1, 2, 3, 4] or max(steps) > 4
    reference = train(workspace, "reference", max_steps=len(steps), total_epochs=50)
    assert report.training_reward == pytest.approx(
        dict(list(reference.training_reward.items())[: len(steps)]), abs=1e-6
    )
    assert not list((report.run_dir / "state").glob(".*"))


def test_a_full_disk_while_saving_is_said_and_what_was_saved_stays(workspace, monkeypatch):
    train(workspace, max_steps=2)
    from osmosis_trainer.engine import disk

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_atomic", full)
    with pytest.raises(OsmosisError, match="No space left on device"):
        train(workspace, resume=True, max_steps=4)
    monkeypatch.undo()
    assert train(workspace, resume=True, max_steps=4).steps == 4
