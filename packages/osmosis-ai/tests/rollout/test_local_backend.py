"""LocalBackend: slots, deadlines, grading, and every way an agent can go wrong without taking the process along."""

import asyncio
import re
import sys
import threading
import time

import pytest
from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    ExecutionRequest,
    Grader,
    GraderConfig,
    LocalBackend,
    RolloutContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.backend import artifacts, containment
from osmosis_ai.rollout.context import RolloutProgress
from rollout_host import local_backend


@pytest.fixture(autouse=True)
def artifact_root(monkeypatch, tmp_path):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    return tmp_path


async def answer(ctx):
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]


async def reward_one(ctx):
    ctx.set_reward(1.0)


async def outcome_of(run, grade=reward_one, *, backend=None, **request):
    request = {"id": "r", "prompt": [{"role": "user", "content": "6*7"}], "label": "42", **request}
    with RolloutContext(rollout_id="r", api_key="sk-the-model-key"):
        return await (backend or local_backend(run, grade)).execute(ExecutionRequest(**request))


async def test_a_graded_rollout():
    outcome = await outcome_of(answer)
    result = outcome.result
    assert result.status == "success" and result.sample is not None and result.sample.reward == 1.0
    assert result.sample.messages[-1]["content"] == "42"
    assert outcome.timings is not None and outcome.timings.agent_s is not None and outcome.timings.grader_s is not None
    assert outcome.result_to_save is outcome.grader


async def test_the_agent_gets_its_own_config_and_metadata_and_an_artifacts_directory(artifact_root):
    seen = {}

    class Workflow(AgentWorkflow):
        async def run(self, ctx):
            assert ctx.config is self.config and ctx.artifacts_dir is not None
            ctx.config.name = "changed"
            ctx.metadata["answer"] = "tampered"
            (ctx.artifacts_dir / "note.txt").write_text("kept")
            return []

    class Judge(Grader):
        async def grade(self, ctx):
            seen.update(metadata=ctx.metadata, config=self.config, files=[p.name for p in ctx.artifacts_dir.iterdir()])
            ctx.set_reward(1)

    config = AgentWorkflowConfig(name="mine")
    grader_config = GraderConfig(name="judge")
    backend = LocalBackend(workflow=Workflow, workflow_config=config, grader=Judge, grader_config=grader_config)
    await outcome_of(None, backend=backend, metadata={"answer": "42"})
    assert config.name == "mine"
    assert seen == {"metadata": {"answer": "42"}, "config": grader_config, "files": ["note.txt"]}
    assert (artifact_root / "r/.osmosis-health-check").read_text() == "osmosis-health-check"


async def test_an_unusable_artifact_root_is_no_error(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(artifacts, "_FIRST_PAUSE_S", 0.01)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path / "file"))
    seen = []

    async def run(ctx):
        seen.append(ctx.artifacts_dir)
        return []

    assert (await outcome_of(run)).result.status == "success"
    assert seen == [None] and "no artifacts directory" in caplog.text


async def test_a_registered_source_gives_the_sample():
    class Source(SampleSource):
        async def get_sample(self):
            return RolloutSample(messages=[{"role": "assistant", "content": "from the source"}])

    async def run(ctx):
        context = get_rollout_context()
        assert context is not None
        context.set_sample_source(Source())

    sample = (await outcome_of(run)).result.sample
    assert sample is not None and sample.messages[0]["content"] == "from the source"


async def test_a_backend_without_a_server_still_has_a_context():
    async def run(ctx):
        context = get_rollout_context()
        assert context is not None and context.rollout_id == "alone"
        return []

    outcome = await local_backend(run, reward_one).execute(ExecutionRequest(id="alone", prompt=[], label="x"))
    assert outcome.result.status == "success"
    assert get_rollout_context() is None


async def test_metrics_of_the_output_reach_the_sample():
    async def run(ctx):
        return AgentWorkflowOutput(messages=[], metrics={"turns": 3})

    sample = (await outcome_of(run)).result.sample
    assert sample is not None and sample.metrics == {"turns": 3.0}


async def test_no_grading_was_asked_for():
    outcome = await outcome_of(answer, grade=reward_one, backend=local_backend(answer, reward_one), id="r")
    assert outcome.grader is not None
    request = ExecutionRequest(id="r", prompt=[], label="42", grade=False)
    outcome = await local_backend(answer, reward_one).execute(request)
    assert outcome.grader is None and outcome.result.status == "success"
    assert outcome.result.sample is not None and outcome.result.sample.reward is None


@pytest.mark.parametrize("case", ["no grader", "no label and no metadata"])
async def test_grading_that_is_impossible_is_a_bare_failure(case, caplog):
    backend = local_backend(answer, None if case == "no grader" else reward_one)
    result = (await outcome_of(None, backend=backend, label="42" if case == "no grader" else None)).result
    assert (result.status, result.err_message, result.err_category, result.err_fault) == (
        "failure",
        None,
        None,
        "grader",
    )
    assert "cannot be graded" in caplog.text


async def test_metadata_alone_is_enough_to_grade():
    result = (await outcome_of(answer, label=None, metadata={"k": 1})).result
    assert result.sample is not None and result.sample.reward == 1.0


async def test_an_unset_reward_is_skipped_not_failed():
    async def returns_a_number(ctx):
        return 1.0

    result = (await outcome_of(answer, returns_a_number)).result
    assert result.status == "success" and result.sample is not None
    assert (result.sample.reward, result.sample.remove_sample) == (None, True)


async def test_a_removed_sample_needs_no_reward():
    async def remove(ctx):
        ctx.sample.remove_sample = True

    result = (await outcome_of(answer, remove)).result
    assert result.status == "success" and result.sample is not None and result.sample.reward is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), True, "1.0"])
async def test_a_reward_that_is_no_number_fails_the_grading(reward):
    async def grade(ctx):
        ctx.set_reward(reward)

    result = (await outcome_of(answer, grade)).result
    assert (result.status, result.err_category, result.err_fault) == ("failure", "validation_error", "grader")
    assert "a reward is a finite number or None" in (result.err_message or "")
    assert result.sample is not None and result.sample.reward is None


async def test_a_grader_that_fails_after_setting_a_reward_has_not_graded():
    async def grade(ctx):
        ctx.set_reward(1.0)
        raise RuntimeError("grader broke")

    outcome = await outcome_of(answer, grade)
    result = outcome.result
    assert (result.status, result.err_message, result.err_fault) == ("failure", "grader broke", "grader")
    assert result.sample is not None and result.sample.reward is None
    assert outcome.result_to_save.sample is not None


async def test_no_sample_fails_the_grading():
    async def nothing(ctx):
        return None

    async def grade(ctx):
        pass

    for grader, text in ((reward_one, "no sample to reward"), (grade, "no sample after grading")):
        result = (await outcome_of(nothing, grader)).result
        assert (result.status, result.err_category) == ("failure", "validation_error")
        assert text in (result.err_message or "")


async def exits(ctx):
    exit_code = 7
    sys.exit(exit_code)


async def exits_in_a_task(ctx):
    await asyncio.create_task(exits(ctx))


async def exits_in_a_group(ctx):
    async with asyncio.TaskGroup() as group:
        group.create_task(exits(ctx))


async def exits_in_a_thread(ctx):
    await asyncio.to_thread(sys.exit, 7)


async def exits_in_a_forgotten_task(ctx):
    task = asyncio.create_task(exits(ctx))
    await asyncio.wait([task])
    return await task


@pytest.mark.parametrize(
    "run", [exits, exits_in_a_task, exits_in_a_group, exits_in_a_thread, exits_in_a_forgotten_task]
)
async def test_exit_is_an_agent_failure_that_names_it(run):
    result = (await outcome_of(run)).result
    assert (result.status, result.err_category, result.err_fault) == ("failure", "agent_error", "agent")
    assert "called exit(7)" in (result.err_message or "")


async def test_an_interrupt_of_the_agents_own_is_contained():
    async def run(ctx):
        raise KeyboardInterrupt

    result = (await outcome_of(run)).result
    assert result.status == "failure" and result.err_message == "the agent raised KeyboardInterrupt"


async def test_an_exit_in_the_grader_is_the_graders():
    result = (await outcome_of(answer, exits)).result
    assert (result.err_fault, result.err_message) == ("grader", "the grader called exit(7)")


@pytest.mark.filterwarnings("error")
async def test_tasks_of_a_rollout_behave_like_any_task():
    async def child():
        await asyncio.sleep(30)

    async def run(ctx):
        early = asyncio.create_task(child())
        early.cancel()  # before its first step
        late = asyncio.create_task(child(), name="late")
        await asyncio.sleep(0)
        late.cancel()
        results = await asyncio.gather(early, late, asyncio.sleep(0, "value"), return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, str]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await child()
        with pytest.raises(LookupError):
            await asyncio.create_task(failing())
        return [{"role": "assistant", "content": late.get_name()}]

    async def failing():
        raise LookupError

    result = (await outcome_of(run)).result
    assert result.sample is not None, result.err_message
    assert result.sample.messages == [{"role": "assistant", "content": "late"}]


async def test_a_task_outside_of_rollouts_is_left_alone():
    await outcome_of(answer)
    task = asyncio.create_task(asyncio.sleep(0, "value"))
    assert await task == "value"


async def test_an_agent_that_cancels_itself_has_failed():
    async def run(ctx):
        raise asyncio.CancelledError

    result = (await outcome_of(run)).result
    assert (result.status, result.err_message) == ("failure", "the agent cancelled itself")


async def test_wrong_shapes_and_own_errors():
    async def wrong(ctx):
        return {"messages": []}

    async def own_timeout(ctx):
        raise TimeoutError("the tool took too long")

    async def leaky(ctx):
        raise RuntimeError("401 for sk-the-model-key")

    async def nan(ctx):
        output = AgentWorkflowOutput()
        output.metrics["a"] = float("nan")
        return output

    for run, category, text in (
        (wrong, "validation_error", "AgentWorkflow.run returned dict"),
        (own_timeout, "timeout", "the tool took too long"),
        (leaky, "agent_error", "401 for [REDACTED]"),
        (nan, "validation_error", "finite"),
    ):
        result = (await outcome_of(run)).result
        assert (result.status, result.err_category, result.err_fault) == ("failure", category, "agent")
        assert text in (result.err_message or "") and "sk-the-model-key" not in str(result)
        assert result.sample is None
        assert result.err_traceback is not None


async def test_a_workflow_that_cannot_be_constructed_is_the_agents_failure():
    class Broken(AgentWorkflow):
        def __init__(self, config=None):
            raise RuntimeError("no model built at import time")

        async def run(self, ctx): ...

    result = (await outcome_of(None, backend=LocalBackend(workflow=Broken))).result
    assert (result.err_fault, result.err_message) == ("agent", "no model built at import time")


async def test_the_deadline():
    async def slow(ctx):
        await asyncio.sleep(5)

    async def swallows(ctx):
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return []

    async def blocks(ctx):
        time.sleep(0.3)
        return []

    for run in (slow, swallows, blocks):
        result = (await outcome_of(run, agent_timeout_sec=0.2)).result
        assert (result.status, result.err_category, result.err_fault) == ("failure", "timeout", "agent")
        assert result.err_message == "workflow exceeded its 0.2s deadline"


async def test_an_agent_that_will_not_stop_is_left_behind(monkeypatch, caplog):
    monkeypatch.setattr(containment, "STOP_GRACE_S", 0.05)
    stop = asyncio.Event()

    async def stubborn(ctx):
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                pass
        return []

    started = time.monotonic()
    try:
        result = (await outcome_of(stubborn, agent_timeout_sec=0.1)).result
        assert result.err_category == "timeout" and time.monotonic() - started < 20
        assert "abandoned" in caplog.text
    finally:
        stop.set()
        await asyncio.sleep(0.01)


async def test_no_time_at_all_means_the_agent_never_runs():
    ran = []

    async def run(ctx):
        ran.append(1)
        return []

    result = (await outcome_of(run, agent_timeout_sec=0)).result
    assert (result.err_category, ran) == ("timeout", [])


async def test_time_in_the_queue_counts():
    async def run(ctx):
        await asyncio.sleep(1)
        return []

    backend = local_backend(run, reward_one, max_concurrent=1)
    first, second = await asyncio.gather(
        outcome_of(None, backend=backend, agent_timeout_sec=1.9),
        outcome_of(None, backend=backend, agent_timeout_sec=1.9),
    )
    assert first.result.status == "success"
    message = second.result.err_message or ""
    assert re.fullmatch(r"workflow exceeded its 1\.9s deadline \(1\.[0-9]s of it spent queued\)", message), message


async def test_the_grader_has_its_own_full_time():
    async def grade(ctx):
        await asyncio.sleep(5)

    async def slow_answer(ctx):
        await asyncio.sleep(0.15)
        return []

    result = (await outcome_of(slow_answer, grade, agent_timeout_sec=10, grader_timeout_sec=0.1)).result
    assert (result.err_category, result.err_fault) == ("timeout", "grader")
    assert result.err_message == "grader exceeded its 0.1s deadline"
    assert result.sample is not None


async def test_status_changes_are_reported():
    heard = []
    context = RolloutContext(rollout_id="r", progress=RolloutProgress(on_status=heard.append))
    with context:
        await local_backend(answer, reward_one).execute(ExecutionRequest(id="r", prompt=[], label="x"))
    assert heard == [RolloutStatus.RUNNING, RolloutStatus.GRADING]


async def test_health_counts_what_runs_and_queues():
    release = asyncio.Event()

    async def run(ctx):
        await release.wait()
        return []

    class Workflow(AgentWorkflow):
        run = lambda self, ctx: run(ctx)  # noqa: E731

    backend = LocalBackend(workflow=Workflow)
    assert backend.health() == {"status": "ok", "concurrency": {"max_concurrent": 4, "queued": 0, "running": 0}}
    tasks = [asyncio.create_task(backend.execute(ExecutionRequest(id=f"r{i}", prompt=[]))) for i in range(6)]
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if backend.health()["concurrency"]["queued"] == 2:
            break
    assert backend.health()["concurrency"] == {"max_concurrent": 4, "queued": 2, "running": 4}
    assert backend.has_capacity()
    release.set()
    await asyncio.gather(*tasks)
    assert backend.health()["concurrency"] == {"max_concurrent": 4, "queued": 0, "running": 0}


async def test_a_cancelled_execution_stops_the_agent_and_frees_the_slot():
    stopped = asyncio.Event()

    async def run(ctx):
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    backend = local_backend(run)
    task = asyncio.create_task(backend.execute(ExecutionRequest(id="r", prompt=[])))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set() and backend.health()["concurrency"]["running"] == 0


class Referenced(AgentWorkflow):
    async def run(self, ctx):
        return []


limited = AgentWorkflowConfig(name="limited", concurrency=ConcurrencyConfig(max_concurrent=2))


def test_references(monkeypatch):
    module = type(sys)("a_users_module")
    module.Referenced, module.limited = Referenced, limited  # ty: ignore[unresolved-attribute]
    monkeypatch.setitem(sys.modules, "a_users_module", module)
    backend = LocalBackend(workflow="a_users_module:Referenced", workflow_config="a_users_module:limited")
    assert backend.health()["concurrency"]["max_concurrent"] == 2
    for bad in ("a_users_module", "a_users_module:", ":Referenced"):
        with pytest.raises(ValueError, match="module:attribute"):
            LocalBackend(workflow=bad)
    with pytest.raises(ImportError, match="no attribute 'Missing'"):
        LocalBackend(workflow="a_users_module:Missing")
    with pytest.raises(ImportError):
        LocalBackend(workflow="no_such_module_here:X")
    with pytest.raises(TypeError, match="must be a class"):
        LocalBackend(workflow="a_users_module:limited")
    unlimited = LocalBackend(workflow=Referenced, workflow_config=AgentWorkflowConfig(name="x"))
    assert unlimited.health()["concurrency"]["max_concurrent"] is None


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a\\b", "a\0b"])
def test_an_id_is_one_path_segment(bad):
    with pytest.raises(ValueError, match="path segment"):
        ExecutionRequest(id=bad, prompt=[])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_timeouts_are_finite(bad):
    with pytest.raises(ValueError, match="finite"):
        ExecutionRequest(id="r", prompt=[], agent_timeout_sec=bad)


async def test_no_thread_is_left_per_rollout():
    before = threading.active_count()
    backend = local_backend(answer, reward_one)
    await asyncio.gather(*(outcome_of(None, backend=backend) for _ in range(40)))
    assert threading.active_count() <= before + 8
