"""What every policy engine promises: one file of tests, run on each engine over the same tiny model."""

import asyncio
import json
import os
import resource
import sys
from contextlib import aclosing, asynccontextmanager

import pytest
from osmosis_ai.errors import ConflictError, NotFoundError, OsmosisError, ValidationError
from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.protocol import AdamConfig, NonFiniteError
from osmosis_trainer.engine.sampler import SampleRequest
from osmosis_trainer.engine.sampling import SamplingParams, noise_key
from osmosis_trainer.engine.weights import read_parameters
from osmosis_trainer.engines import open_engine
from osmosis_trainer.losses import LossConfig

os.environ["HF_HUB_OFFLINE"] = "1"
LOSS = LossConfig("importance_sampling")
FAST = AdamConfig(lr=1e-2)


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.parity)])
def kind(request):
    if request.param == "torch":
        pytest.importorskip("torch").set_num_threads(1)
        pytest.importorskip("peft")
    return request.param


@pytest.fixture
def open_tiny(kind, tiny_folder):
    """Opens engines that end with the test's block."""

    @asynccontextmanager
    async def opened(folder=tiny_folder, **options):
        engine = open_engine(kind, folder, base="tiny", **options)
        try:
            yield engine
        finally:
            await engine.aclose()

    return opened


def request(version, prompt=(1, 2, 3), max_tokens=8, key=0, **params):
    return SampleRequest(
        session=f"s{key}",
        version=version,
        prompt=list(prompt),
        max_tokens=max_tokens,
        stop_ids=frozenset({0}),
        params=SamplingParams(**params),
        noise_key=noise_key(key),
    )


async def answer(engine, asked):
    ids, logprobs, finish = [], [], None
    async with aclosing(engine.sample(asked)) as pieces:
        async for piece in pieces:
            ids, logprobs, finish = ids + piece.ids, logprobs + piece.logprobs, piece.finish_reason
    assert len(ids) == len(logprobs)
    return ids, logprobs, finish


async def sampled_datum(engine, version, advantage=1.0, **options):
    asked = request(version, **options)
    ids, logprobs, _ = await answer(engine, asked)
    before = len(asked.prompt)
    return Datum(
        tokens=[*asked.prompt, *ids],
        trained=[False] * before + [True] * len(ids),
        advantages=[0.0] * before + [advantage] * len(ids),
        logprobs=[0.0] * before + logprobs,
        versions=(version,),
    )


def plain_datum(seed=0, length=12, advantage=1.0):
    rng = np.random.default_rng(seed)
    return Datum(
        rng.integers(0, 50, length).tolist(),
        [False, False] + [True] * (length - 2),
        [advantage] * length,
        [-1.0] * length,
    )


async def train(engine, adapter="a", steps=2, seed=0):
    for step in range(steps):
        await engine.forward_backward(adapter, [plain_datum(seed + step), plain_datum(seed + step + 50)], LOSS)
        await engine.optim_step(adapter, FAST)


async def logprobs_now(engine, adapter="a", loss=LOSS):
    return (await engine.forward(adapter, [plain_datum(99)], loss)).logprobs


# -- sampling -----------------------------------------------------------------------------------------------------------


async def test_the_base_can_be_sampled_under_its_own_name(open_tiny):
    async with open_tiny() as engine:
        assert engine.capabilities.base == "tiny"
        ids, logprobs, finish = await answer(engine, request("tiny"))
        assert 1 <= len(ids) <= 8
        assert finish == ("stop" if ids[-1] == 0 else "length")
        assert all(p <= 0 for p in logprobs)


async def test_an_answer_depends_on_its_key_and_not_on_its_company(open_tiny):
    async with open_tiny() as engine:
        alone = await answer(engine, request("tiny", key=3, max_tokens=20))
        crowd = await asyncio.gather(
            *(answer(engine, request("tiny", key=k, prompt=range(1, 3 + k), max_tokens=5 + 3 * k)) for k in range(3)),
            answer(engine, request("tiny", key=3, max_tokens=20)),
            answer(engine, request("tiny", key=4, max_tokens=20)),
        )
        assert crowd[3][0] == alone[0]
        assert crowd[3][1] == pytest.approx(alone[1], abs=1e-4)
        assert crowd[4][0] != alone[0]


async def test_engines_agree_on_what_a_key_draws(open_tiny, tiny_folder):
    """The noise is a hash: another engine over the same weights draws the same tokens."""
    asked = [request("tiny", key=k, temperature=0.9, top_p=0.9, top_k=20, max_tokens=12) for k in range(4)]
    async with open_tiny() as engine:
        found = [await answer(engine, a) for a in asked]
    reference = open_engine("numpy", tiny_folder, base="tiny")
    expected = [await answer(reference, a) for a in asked]
    await reference.aclose()
    assert [ids for ids, _, _ in found] == [ids for ids, _, _ in expected]
    for (_, mine, _), (_, theirs, _) in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)


async def test_greedy_answers_take_the_likeliest_token(open_tiny, tiny, tiny_parameters, fresh_logits):
    async with open_tiny() as engine:
        ids, logprobs, _ = await answer(engine, request("tiny", temperature=0.0, max_tokens=5))
        context = [1, 2, 3]
        for token in ids:
            assert token == fresh_logits(tiny_parameters, tiny, context)[-1].argmax()
            context.append(token)
        assert logprobs == [0.0] * len(ids)


async def test_an_abandoned_answer_frees_its_place(open_tiny):
    async with open_tiny(slots=1) as engine:
        async with aclosing(engine.sample(request("tiny", max_tokens=90))) as pieces:
            await anext(pieces)
        await asyncio.wait_for(answer(engine, request("tiny", key=1, max_tokens=3)), 30)


async def test_a_request_that_does_not_fit_is_refused(open_tiny):
    async with open_tiny() as engine:
        with pytest.raises(ValueError, match="do not fit"):
            await answer(engine, request("tiny", max_tokens=1000))
        with pytest.raises(ValueError, match="not published"):
            await answer(engine, request("tiny-v9"))


# -- trainer and sampler ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.7}, {"temperature": 1.2, "top_p": 0.8}], ids=["plain", "warm", "filtered"]
)
async def test_on_policy_the_trainer_sees_the_samplers_logprobs(open_tiny, params):
    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4)
        await train(engine)
        version = await engine.publish("a")
        datums = await asyncio.gather(
            *(sampled_datum(engine, version, key=k, prompt=range(1, 4 + k), max_tokens=30, **params) for k in range(6))
        )
        result = await engine.forward("a", datums, LossConfig(sampling=SamplingParams(**params)))
        assert result.metrics["logprob_gap_max"] < 1e-4
        for datum, row in zip(datums, result.logprobs, strict=True):
            assert row == pytest.approx(datum.logprobs, abs=1e-4)


async def test_logprobs_are_those_of_the_plain_definition(open_tiny, tiny, tiny_parameters, fresh_logprobs):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        datum = plain_datum(3)
        (row,) = (await engine.forward("a", [datum], LOSS)).logprobs
        expected = fresh_logprobs(tiny_parameters, tiny, datum.tokens[:2], datum.tokens[2:])
        assert row == pytest.approx((0.0, 0.0, *expected), abs=1e-4)


async def test_learning_makes_what_was_good_likelier(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4)
        good, bad = plain_datum(1, advantage=1.0), plain_datum(2, advantage=-1.0)
        before = (await engine.forward("a", [good, bad], LOSS)).logprobs
        for _ in range(5):
            await engine.forward_backward("a", [good, bad], LossConfig("importance_sampling"))
            result = await engine.optim_step("a", FAST)
        after = (await engine.forward("a", [good, bad], LOSS)).logprobs
        assert result.step == 5
        assert result.grad_norm > 0
        assert sum(after[0]) > sum(before[0])
        assert sum(after[1]) < sum(before[1])


async def test_gradients_of_several_calls_add_up(open_tiny):
    whole, parts = LossConfig("importance_sampling", normalisation="sum"), [plain_datum(1), plain_datum(2, 20)]
    async with open_tiny() as engine:
        norms = []
        for name, calls in (("once", [parts]), ("twice", [parts[:1], parts[1:]])):
            await engine.create_adapter(name, seed=7)
            for datums in calls:
                await engine.forward_backward(name, datums, whole)
            norms.append((await engine.optim_step(name, FAST)).grad_norm)
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


async def test_engines_agree_on_a_training_step(open_tiny, tiny_folder):
    async with open_tiny() as engine:
        reference = open_engine("numpy", tiny_folder, base="tiny")
        rows = []
        for e in (engine, reference):
            await e.create_adapter("a", rank=4, alpha=8, seed=3)
            await train(e, steps=3)
            rows.append((await logprobs_now(e))[0])
        await reference.aclose()
        assert rows[0] == pytest.approx(rows[1], abs=2e-3)


async def test_equal_histories_give_equal_bits(open_tiny, tmp_path):
    states = []
    for run in range(2):
        async with open_tiny() as engine:
            await engine.create_adapter("a", seed=5)
            await train(engine, steps=3)
            await engine.save_state("a", tmp_path / f"{run}.safetensors")
            states.append((tmp_path / f"{run}.safetensors").read_bytes())
    assert states[0] == states[1]


async def test_datums_with_nothing_to_learn_change_nothing(open_tiny):
    nothing = Datum([1, 2, 3], [False] * 3, [0.0] * 3, [0.0] * 3)
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        result = await engine.forward_backward("a", [nothing], LOSS)
        assert result.logprobs == ((0.0, 0.0, 0.0),)
        assert result.metrics["tokens"] == 0
        assert (await engine.optim_step("a", FAST)).grad_norm == 0


@pytest.mark.parametrize(
    ("tokens", "message"), [([1, 2, 50], "outside 0 to 49"), ([1, -2, 3], "outside 0 to 49"), ([1] * 97, "at most 96")]
)
async def test_a_datum_of_another_model_is_refused(open_tiny, tokens, message):
    n = len(tokens)
    datum = Datum(tokens, [False, *[True] * (n - 1)], [1.0] * n, [-1.0] * n, rollout="r1")
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        with pytest.raises(ValidationError, match=message):
            await engine.forward_backward("a", [plain_datum(), datum], LOSS)


async def test_a_gradient_that_is_not_finite_is_refused_and_forgotten(open_tiny):
    huge = Datum([1, 2, 3], [False, True, True], [3e38, 3e38, 3e38], [-80.0, -80.0, -80.0])
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await train(engine)
        before = await logprobs_now(engine)
        with pytest.raises(NonFiniteError):
            await engine.forward_backward("a", [huge], LOSS)
        assert (await engine.optim_step("a", FAST)).grad_norm == 0
        assert all(np.isfinite(row).all() for row in await logprobs_now(engine))
        assert len(before) == 1


# -- versions -----------------------------------------------------------------------------------------------------------


async def test_a_published_version_never_changes(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await train(engine, steps=3)
        version = await engine.publish("a")
        before = await answer(engine, request(version, max_tokens=30))
        await train(engine, steps=3, seed=20)
        later = await engine.publish("a")
        assert (version, later) == ("a-v1", "a-v2")
        after, other = await asyncio.gather(
            answer(engine, request(version, max_tokens=30)), answer(engine, request(later, max_tokens=30))
        )
        assert after[0] == before[0]
        assert after[1] == pytest.approx(before[1], abs=1e-5)
        assert other[1] != pytest.approx(after[1], abs=1e-3)


async def test_a_new_adapter_samples_as_the_base_does(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        version = await engine.publish("a")
        assert (await answer(engine, request(version)))[0] == (await answer(engine, request("tiny")))[0]


async def test_an_answer_under_way_finishes_with_a_retired_version(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await train(engine)
        version = await engine.publish("a")
        expected = await answer(engine, request(version, max_tokens=60))
        under_way = asyncio.create_task(answer(engine, request(version, max_tokens=60)))
        await asyncio.sleep(0)
        await engine.retire(version)
        assert (await under_way)[0] == expected[0]
        with pytest.raises(ValueError, match="not published"):
            await answer(engine, request(version))
        await engine.retire(version)


async def test_two_adapters_do_not_touch_each_other(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a", seed=1)
        await engine.create_adapter("b", seed=2, rank=2, targets=["q_proj", "down_proj"])
        before = await logprobs_now(engine, "b")
        await train(engine, "a")
        assert await logprobs_now(engine, "b") == before
        await train(engine, "b", seed=8)
        assert await logprobs_now(engine, "b") != before
        await engine.delete_adapter("a")
        assert (await engine.optim_step("b", FAST)).step == 3
        with pytest.raises(NotFoundError, match="there is b"):
            await engine.publish("a")


# -- operations ---------------------------------------------------------------------------------------------------------


async def test_repeating_an_operation_gives_its_first_result(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a", op_id="1")
        await engine.create_adapter("a", op_id="1")
        first = await engine.forward_backward("a", [plain_datum()], LOSS, op_id="2")
        again, step, repeated = await asyncio.gather(
            engine.forward_backward("a", [plain_datum()], LOSS, op_id="2"),
            engine.optim_step("a", FAST, op_id="3"),
            engine.optim_step("a", FAST, op_id="3"),
        )
        assert again is first
        assert step is repeated
        assert step.step == 1
        assert await engine.publish("a", op_id="4") == await engine.publish("a", op_id="4") == "a-v1"


async def test_an_id_stands_for_one_operation(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a", op_id="1")
        with pytest.raises(ConflictError, match="create_adapter of 'a'"):
            await engine.publish("a", op_id="1")


async def test_a_failed_operation_may_be_tried_again_under_its_id(open_tiny):
    async with open_tiny() as engine:
        with pytest.raises(NotFoundError):
            await engine.publish("a", op_id="1")
        await engine.create_adapter("a")
        assert await engine.publish("a", op_id="1") == "a-v1"


async def test_operations_take_effect_in_the_order_they_were_started(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a", seed=5)
        tasks = [
            asyncio.create_task(work)
            for step in range(4)
            for work in (
                engine.forward_backward("a", [plain_datum(step)], LOSS),
                engine.optim_step("a", FAST),
                engine.publish("a"),
            )
        ]
        results = await asyncio.gather(*tasks)
        assert [r.step for r in results[1::3]] == [1, 2, 3, 4]
        assert results[2::3] == ["a-v1", "a-v2", "a-v3", "a-v4"]
        one_by_one = await logprobs_now(engine)
        await engine.create_adapter("b", seed=5)
        for step in range(4):
            await engine.forward_backward("b", [plain_datum(step)], LOSS)
            await engine.optim_step("b", FAST)
        assert await logprobs_now(engine, "b") == one_by_one


async def test_a_started_operation_is_carried_out_when_nobody_waits(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        task = asyncio.create_task(engine.optim_step("a", FAST, op_id="1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await engine.optim_step("a", FAST, op_id="1")).step == 1


async def test_sampling_goes_on_while_operations_wait(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        answers, _ = await asyncio.gather(
            asyncio.gather(*(answer(engine, request("tiny", key=k, max_tokens=20)) for k in range(6))),
            train(engine, steps=4),
        )
        assert all(ids for ids, _, _ in answers)


async def test_a_closed_engine_says_so(open_tiny):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        many = [plain_datum(seed, 90) for seed in range(40)]
        under_way = [asyncio.create_task(engine.forward("a", many, LOSS)) for _ in range(20)]
        await asyncio.sleep(0)
    ended = await asyncio.gather(*under_way, return_exceptions=True)
    assert isinstance(ended[-1], RuntimeError)
    with pytest.raises(RuntimeError):
        await engine.publish("a")
    with pytest.raises(RuntimeError, match="closed"):
        await answer(engine, request("tiny"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"alpha": 0}, "alpha is 0"),
        ({"targets": []}, "targets is empty"),
        ({"targets": ["q_proj", "lm_head"]}, "targets has lm_head"),
    ],
)
async def test_an_adapter_that_cannot_be_is_refused(open_tiny, options, message):
    async with open_tiny() as engine:
        with pytest.raises(ValidationError, match=message):
            await engine.create_adapter("a", **options)
        for name in ("", "tiny", "a/b", ".hidden"):
            with pytest.raises(ValidationError, match="cannot name an adapter"):
                await engine.create_adapter(name)
        await engine.create_adapter("a")
        with pytest.raises(ConflictError, match="'a' already"):
            await engine.create_adapter("a")


# -- states -------------------------------------------------------------------------------------------------------------


async def test_a_loaded_state_goes_on_bit_for_bit(open_tiny, tmp_path):
    path = tmp_path / "deep" / "state.safetensors"
    async with open_tiny() as engine:
        await engine.create_adapter("a", seed=5)
        await train(engine, steps=3)
        await engine.publish("a")
        await engine.save_state("a", path)
        await train(engine, steps=3, seed=40)
        expected = await logprobs_now(engine)
        await engine.save_state("a", tmp_path / "straight")
        await engine.load_state("a", path)  # back in time, in the same engine
        await train(engine, steps=3, seed=40)
        assert await logprobs_now(engine) == expected
    async with open_tiny() as engine:
        await engine.load_state("a", path)  # in a new process there is no adapter yet
        await train(engine, steps=3, seed=40)
        assert await logprobs_now(engine) == expected
        await engine.save_state("a", tmp_path / "resumed")
        assert await engine.publish("a") == "a-v2"
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "straight").read_bytes()


async def test_an_adapter_that_took_no_step_can_be_saved(open_tiny, tmp_path):
    async with open_tiny() as engine:
        await engine.create_adapter("a", seed=5)
        await engine.save_state("a", tmp_path / "state")
        await train(engine)
        expected = await logprobs_now(engine)
        await engine.load_state("a", tmp_path / "state")
        await train(engine)
        assert await logprobs_now(engine) == expected


async def test_a_gathered_gradient_must_be_applied_before_saving(open_tiny, tmp_path):
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await engine.forward_backward("a", [plain_datum()], LOSS)
        with pytest.raises(ConflictError, match="take the step"):
            await engine.save_state("a", tmp_path / "state")
        await engine.optim_step("a", FAST)
        await engine.save_state("a", tmp_path / "state")


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "header", "other", "missing"])
async def test_a_corrupt_state_is_refused_by_name_and_changes_nothing(open_tiny, tmp_path, damage):
    path = tmp_path / "state.safetensors"
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await train(engine)
        await engine.save_state("a", path)
        before, data = await logprobs_now(engine), bytearray(path.read_bytes())
        if damage == "torn":
            path.write_bytes(data[: len(data) // 2])
        elif damage == "flipped":
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "header":
            path.write_bytes(data.replace(b"step", b"stop"))
        elif damage == "other":
            path.write_text("not a state")
        else:
            path.unlink()
        with pytest.raises(ValidationError, match=r"state\.safetensors"):
            await engine.load_state("a", path)
        assert await logprobs_now(engine) == before


async def test_a_state_is_whole_whenever_the_process_is_killed(tiny_folder, tmp_path):
    """On one engine: all write states in the same way, and this one starts at once."""
    path = tmp_path / "state"
    code = (
        "import asyncio; from pathlib import Path; from osmosis_trainer.engines import open_engine\n"
        "async def main():\n"
        f"    engine = open_engine('numpy', Path({str(tiny_folder)!r}), base='tiny')\n"
        "    await engine.create_adapter('a', rank=64)\n"
        "    while True:\n"
        f"        await engine.save_state('a', Path({str(path)!r}))\n"
        "asyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    while not path.exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.15)
    process.kill()
    await process.wait()
    engine = open_engine("numpy", tiny_folder, base="tiny")
    await engine.load_state("a", path)
    await engine.aclose()


async def test_a_state_of_another_base_or_kind_of_adapter_is_refused(open_tiny, tmp_path, make_tiny_folder):
    path = tmp_path / "state"
    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4)
        await engine.save_state("a", path)
        await engine.create_adapter("b", rank=2)
        with pytest.raises(ValidationError, match="another kind"):
            await engine.load_state("b", path)
    async with open_tiny(make_tiny_folder(1)) as engine:
        with pytest.raises(ValidationError, match="another base model"):
            await engine.load_state("a", path)


async def test_a_full_disk_is_said_and_leaves_what_was_there(open_tiny, tmp_path):
    path = tmp_path / "state"
    async with open_tiny() as engine:
        await engine.create_adapter("a")
        await engine.save_state("a", path)
        version = await engine.publish("a")
        unchanged = await logprobs_now(engine)
        await train(engine)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # no file may grow beyond
        try:
            for attempt in (
                engine.save_state("a", path),
                engine.export_peft(version, tmp_path / "adapter"),
                engine.export_merged(version, tmp_path / "merged"),
            ):
                with pytest.raises(OsmosisError, match="cannot be written") as caught:
                    await attempt
                assert caught.value.error_code == "STORAGE"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [p.name for p in tmp_path.iterdir()] == ["state"]
        await engine.load_state("a", path)
        assert await logprobs_now(engine) == unchanged


# -- exports ------------------------------------------------------------------------------------------------------------


async def test_an_export_appears_whole_and_only_once(open_tiny, tmp_path):
    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4, alpha=8)
        await train(engine)
        version = await engine.publish("a")
        await engine.export_peft(version, tmp_path / "x" / "adapter")
        assert sorted(p.name for p in (tmp_path / "x" / "adapter").iterdir()) == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        config = json.loads((tmp_path / "x" / "adapter" / "adapter_config.json").read_text())
        assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8, "tiny")
        with pytest.raises(ConflictError, match="exists"):
            await engine.export_peft(version, tmp_path / "x" / "adapter")
        with pytest.raises(NotFoundError, match="base model"):
            await engine.export_peft("tiny", tmp_path / "y")
        with pytest.raises(NotFoundError, match="no published version"):
            await engine.export_merged("a-v7", tmp_path / "y")
        assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("tiny")] == ["x"]


async def test_a_merged_export_is_a_model_that_samples_alike(open_tiny, tmp_path):
    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4)
        await train(engine, steps=3)
        version = await engine.publish("a")
        expected = await answer(engine, request(version, max_tokens=40))
        await engine.export_merged(version, tmp_path / "merged")
        await engine.export_merged("tiny", tmp_path / "unchanged")
        assert (await answer(engine, request(version, max_tokens=40)))[0] == expected[0]
    async with open_tiny(tmp_path / "merged") as engine:
        found = await answer(engine, request("tiny", max_tokens=40))
        assert found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1], abs=1e-4)


async def test_an_export_of_the_base_is_the_base(open_tiny, tmp_path, tiny, tiny_parameters):
    async with open_tiny() as engine:
        await engine.export_merged("tiny", tmp_path / "unchanged")
    again = read_parameters(tmp_path / "unchanged", tiny)
    assert all((again[name] == tiny_parameters[name]).all() for name in tiny_parameters)


@pytest.mark.parity
async def test_peft_loads_an_export_and_gives_the_engines_logprobs(open_tiny, tmp_path, tiny_folder):
    torch = pytest.importorskip("torch")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    async with open_tiny() as engine:
        await engine.create_adapter("a", rank=4, alpha=8)
        await train(engine, steps=3)
        version = await engine.publish("a")
        await engine.export_peft(version, tmp_path / "adapter")
        await engine.export_merged(version, tmp_path / "merged")
        (row,) = await logprobs_now(engine)
    ids = torch.tensor([plain_datum(99).tokens])
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(tiny_folder), tmp_path / "adapter"
        ).eval()
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
        assert (adapted(ids).logits - merged(ids).logits).abs().max() < 1e-4
        table = adapted(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
    assert row[2:] == pytest.approx(table[1:].tolist(), abs=1e-4)
