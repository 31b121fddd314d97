"""The engine's thread: exact tokens and log-probabilities whatever the batching, slots freed, nobody starved."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import pytest
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampler import Sampler, SampleRequest
from osmosis_trainer.engine.sampling import SamplingParams, noise_key
from osmosis_trainer.engine.weights import fuse

NEVER = frozenset[int]()


@pytest.fixture
def make_sampler(tiny, tiny_parameters, make_parameters):
    made: list[Sampler] = []

    def make(slots: int = 4, **kwargs) -> Sampler:
        sampler = Sampler(tiny, slots=slots, **kwargs)
        sampler.publish("v0", fuse(tiny_parameters, tiny))
        sampler.publish("v1", fuse(make_parameters(tiny, 1), tiny))
        made.append(sampler)
        return sampler

    yield make
    for sampler in made:
        sampler.close()


def request(session: str, prompt: list[int], max_tokens: int = 12, **changes) -> SampleRequest:
    fields = {"session": session, "version": "v0", "prompt": prompt, "max_tokens": max_tokens, "stop_ids": NEVER}
    return SampleRequest(**(fields | {"noise_key": noise_key(session, *prompt)} | changes))


async def collect(sampler: Sampler, call: SampleRequest):
    """All ids and log-probabilities of a call, and its last piece."""
    ids, logprobs, last = [], [], None
    async for piece in sampler.sample(call):
        ids += piece.ids
        logprobs += piece.logprobs
        last = piece
    assert last is not None
    return ids, logprobs, last


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def prompts(tiny, count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, tiny.vocab_size, rng.integers(1, 50)).tolist() for _ in range(count)]


async def test_logprobs_of_a_full_batch_equal_a_fresh_forward_pass(make_sampler, tiny, tiny_parameters, fresh_logprobs):
    sampler, asked = make_sampler(slots=4), prompts(tiny, 11)
    answers = await asyncio.gather(*(collect(sampler, request(f"s{i}", p)) for i, p in enumerate(asked)))
    for prompt, (ids, logprobs, last) in zip(asked, answers, strict=True):
        assert last.finish_reason == "length" and len(ids) == 12
        assert logprobs == pytest.approx(fresh_logprobs(tiny_parameters, tiny, prompt, ids), abs=1e-4)


async def test_answers_do_not_depend_on_the_order_of_arrival_or_the_number_of_slots(make_sampler, tiny):
    asked = prompts(tiny, 9)

    async def answers(slots: int, order: list[int]) -> list[list[int]]:
        sampler = make_sampler(slots=slots)
        tasks = {i: asyncio.create_task(collect(sampler, request(f"s{i}", asked[i]))) for i in order}
        return [(await tasks[i])[0] for i in range(len(asked))]

    first = await answers(16, list(range(9)))
    assert await answers(16, [8, 3, 5, 0, 1, 7, 2, 6, 4]) == first
    assert await answers(2, [4, 2, 0, 1, 3, 8, 7, 6, 5]) == first
    assert await answers(1, list(range(9))) == first


async def test_a_later_turn_computes_only_what_is_new(make_sampler, tiny, tiny_parameters, fresh_logprobs):
    sampler = make_sampler()
    first = prompts(tiny, 1)[0] + [1] * 20
    ids, _, _ = await collect(sampler, request("one", first))
    second = [*first, *ids, 3, 4, 5]
    answer, logprobs, last = await collect(sampler, request("one", second))
    # the last drawn token was never fed, so it is computed with the new ones
    assert last.cached_tokens == len(second) - 4
    assert logprobs == pytest.approx(fresh_logprobs(tiny_parameters, tiny, second, answer), abs=1e-4)


async def test_turns_of_sessions_that_lost_their_slots_are_computed_again(
    make_sampler, tiny, tiny_parameters, fresh_logprobs
):
    sampler = make_sampler(slots=2)
    asked = [[i, *p] for i, p in enumerate(prompts(tiny, 6))]  # no two begin alike
    for turn in range(3):
        for i, prompt in enumerate(asked):  # round robin over more sessions than slots: every turn finds its slot taken
            ids, logprobs, _ = await collect(sampler, request(f"s{i}", prompt, 4))
            assert logprobs == pytest.approx(fresh_logprobs(tiny_parameters, tiny, prompt, ids), abs=1e-4), turn
            asked[i] = [*prompt, *ids, turn]


async def test_a_prompt_that_begins_like_another_copies_its_beginning(
    make_sampler, tiny, tiny_parameters, fresh_logprobs
):
    sampler = make_sampler()
    shared = list(range(30))
    await collect(sampler, request("a", [*shared, 1, 2]))
    prompt = [*shared, 9, 8, 7]
    ids, logprobs, last = await collect(sampler, request("b", prompt))
    assert last.cached_tokens == 30
    assert logprobs == pytest.approx(fresh_logprobs(tiny_parameters, tiny, prompt, ids), abs=1e-4)


async def test_calls_that_arrive_together_with_one_beginning_compute_it_once(
    make_sampler, tiny, tiny_parameters, fresh_logprobs
):
    sampler, shared = make_sampler(slots=8), list(range(40))
    asked = [[*shared, i] for i in range(8)]
    answers = await asyncio.gather(*(collect(sampler, request(f"s{i}", p)) for i, p in enumerate(asked)))
    assert sorted(last.cached_tokens for _, _, last in answers) == [0] + [40] * 7
    for prompt, (ids, logprobs, _) in zip(asked, answers, strict=True):
        assert logprobs == pytest.approx(fresh_logprobs(tiny_parameters, tiny, prompt, ids), abs=1e-4)


async def test_two_versions_answer_side_by_side_and_never_share_a_cache(
    make_sampler, tiny, tiny_parameters, make_parameters, fresh_logprobs
):
    sampler, parameters = make_sampler(), {"v0": tiny_parameters, "v1": make_parameters(tiny, 1)}
    prompt = [5] * 20
    versions = ["v0", "v1", "v0", "v1", "v1"]
    calls = [collect(sampler, request(f"s{i}", prompt, version=v)) for i, v in enumerate(versions)]
    for version, (ids, logprobs, _) in zip(versions, await asyncio.gather(*calls), strict=True):
        assert logprobs == pytest.approx(fresh_logprobs(parameters[version], tiny, prompt, ids), abs=1e-4)


async def test_a_published_version_cannot_be_replaced_and_a_retired_one_is_refused(make_sampler, tiny, tiny_parameters):
    sampler = make_sampler()
    with pytest.raises(ValueError, match="was published already"):
        sampler.publish("v0", fuse(tiny_parameters, tiny))
    sampler.retire("v0")
    with pytest.raises(ValueError, match="not published"):
        await collect(sampler, request("s", [1, 2]))
    with pytest.raises(ValueError, match="was published already"):  # slots may still hold its keys and values
        sampler.publish("v0", fuse(tiny_parameters, tiny))


async def test_an_answer_ends_with_the_stop_token_and_includes_it(make_sampler):
    sampler = make_sampler()
    ids, _, _ = await collect(sampler, request("s", [1, 2, 3], 20))
    stop = ids[4]
    stopped, _, last = await collect(sampler, request("s", [1, 2, 3], 20, stop_ids=frozenset({stop})))
    assert last.finish_reason == "stop" and stopped == ids[: ids.index(stop) + 1]


@pytest.fixture
def one_long_slot(tiny, tiny_parameters):
    """One slot in which an answer may go on for minutes."""
    shape = replace(tiny, max_position_embeddings=100_000)
    sampler = Sampler(shape, slots=1)
    sampler.publish("v0", fuse(tiny_parameters, shape))
    yield sampler
    sampler.close()


async def test_a_cancelled_call_frees_its_slot_for_the_next(one_long_slot):
    async with aclosing(one_long_slot.sample(request("long", [1], 99_000))) as pieces:
        await anext(pieces)
        assert one_long_slot.busy_slots == 1
        waiting = asyncio.create_task(collect(one_long_slot, request("next", [2], 3)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
    async with asyncio.timeout(15):
        ids, _, _ = await waiting
    assert len(ids) == 3
    await until(lambda: one_long_slot.busy_slots == 0)


async def test_a_call_cancelled_while_it_waits_never_gets_a_slot(one_long_slot):
    first = asyncio.create_task(collect(one_long_slot, request("first", [1], 99_000)))
    await until(lambda: one_long_slot.busy_slots == 1)
    second = asyncio.create_task(collect(one_long_slot, request("second", [2], 99_000)))
    third = asyncio.create_task(collect(one_long_slot, request("third", [3], 5)))
    await asyncio.sleep(0.05)
    for call in (second, first):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    async with asyncio.timeout(15):
        ids, _, _ = await third
    assert len(ids) == 5


async def test_more_calls_than_slots_are_all_answered(make_sampler, tiny):
    sampler = make_sampler(slots=3)
    answers = await asyncio.gather(*(collect(sampler, request(f"s{i}", p, 6)) for i, p in enumerate(prompts(tiny, 40))))
    assert [len(ids) for ids, _, _ in answers] == [6] * 40
    await until(lambda: sampler.busy_slots == 0)


async def test_a_call_that_cannot_fit_is_refused_with_its_lengths(make_sampler, tiny):
    sampler = make_sampler()
    with pytest.raises(ValueError, match="90 tokens and an answer of up to 7 do not fit the context of 96"):
        await collect(sampler, request("s", [1] * 90, 7))
    ids, _, last = await collect(sampler, request("s", [1] * 90, 6))
    assert len(ids) == 6 and last.finish_reason == "length"


async def test_closing_the_engine_ends_the_calls_under_way_with_an_error(make_sampler):
    sampler = make_sampler(slots=1)
    calls = [asyncio.create_task(collect(sampler, request(f"s{i}", [1], 90))) for i in range(3)]
    await until(lambda: sampler.busy_slots == 1)
    await asyncio.to_thread(sampler.close)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert any(isinstance(result, RuntimeError) for result in results)
    with pytest.raises(RuntimeError, match="closed"):
        await collect(sampler, request("late", [1]))


async def test_greedy_and_sampled_calls_share_the_engine(make_sampler, tiny, tiny_parameters, fresh_logits):
    sampler = make_sampler()
    greedy = SamplingParams(temperature=0.0)
    (ids, logprobs, _), _ = await asyncio.gather(
        collect(sampler, request("g", [4, 5, 6], params=greedy)), collect(sampler, request("s", [4, 5, 6]))
    )
    assert logprobs == [0.0] * len(ids)
    table = fresh_logits(tiny_parameters, tiny, [4, 5, 6, *ids])
    assert ids == table[2:-1].argmax(-1).tolist()
