"""The forward pass over cached keys and values gives what a fresh pass over the whole sequence gives."""

import pytest
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.model import Decoder, KeyValueCache
from osmosis_trainer.engine.weights import fuse

CLOSE = 1e-4


@pytest.fixture
def engine(tiny, tiny_parameters):
    return Decoder(tiny, tiny.max_position_embeddings), fuse(tiny_parameters, tiny)


def sequences(tiny, *lengths):
    rng = np.random.default_rng(7)
    return [rng.integers(0, tiny.vocab_size, n).tolist() for n in lengths]


def test_a_ragged_prefill_gives_each_row_its_own_logits(engine, tiny, tiny_parameters, fresh_logits):
    decoder, weights = engine
    prompts = sequences(tiny, 17, 1, 40)
    cache = KeyValueCache(tiny, 5, 96)
    logits = decoder.prefill(weights, cache, [4, 0, 2], [0, 0, 0], [np.array(p) for p in prompts])
    for row, prompt in zip(logits, prompts, strict=True):
        assert np.abs(row - fresh_logits(tiny_parameters, tiny, prompt)[-1]).max() < CLOSE


def test_a_prompt_prefilled_in_pieces_equals_one_prefilled_whole(engine, tiny, tiny_parameters, fresh_logits):
    decoder, weights = engine
    (prompt,) = sequences(tiny, 50)
    cache = KeyValueCache(tiny, 1, 96)
    for start, end in ((0, 1), (1, 20), (20, 50)):
        logits = decoder.prefill(weights, cache, [0], [start], [np.array(prompt[start:end])])
    assert np.abs(logits[0] - fresh_logits(tiny_parameters, tiny, prompt)[-1]).max() < CLOSE


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param([0, 1, 2, 3], id="every slot, read in place"),
        pytest.param([0, 1, 3], id="most slots, an idle one between"),
        pytest.param([3], id="one high slot, gathered"),
        pytest.param([1, 3], id="two of four, gathered"),
    ],
)
def test_decoding_continues_each_slot_whichever_slots_are_alive(engine, tiny, tiny_parameters, fresh_logits, slots):
    decoder, weights = engine
    prompts = dict(enumerate(sequences(tiny, 9, 30, 3, 21)))
    cache = KeyValueCache(tiny, 4, 96)
    # prefilled in another order than the slots': cached rows must not follow the order of a batch
    order = [2, 0, 3, 1]
    decoder.prefill(weights, cache, order, [0] * 4, [np.array(prompts[slot]) for slot in order])
    live = {slot: list(prompts[slot]) for slot in slots}
    rng = np.random.default_rng(3)
    for _ in range(5):
        tokens = rng.integers(0, tiny.vocab_size, len(slots))
        positions = np.array([len(live[slot]) for slot in slots])
        logits = decoder.decode(weights, cache, np.array(slots), positions, tokens)
        for slot, token, row in zip(slots, tokens.tolist(), logits, strict=True):
            live[slot].append(token)
            assert np.abs(row - fresh_logits(tiny_parameters, tiny, live[slot])[-1]).max() < CLOSE


@pytest.mark.parametrize("slots", [[1, 0, 2, 3], [2, 0, 3, 1], [0, 0]])
def test_slots_in_another_order_than_their_cached_rows_are_never_mixed_up(engine, tiny, slots):
    decoder, weights = engine
    ones = np.ones(len(slots), np.int64)
    with pytest.raises(ValueError, match="slots must ascend"):
        decoder.decode(weights, KeyValueCache(tiny, 4, 96), np.array(slots), ones, ones)


def test_decoding_writes_nothing_into_idle_slots(engine, tiny):
    decoder, weights = engine
    cache = KeyValueCache(tiny, 4, 96)
    decoder.prefill(weights, cache, [0, 1, 2, 3], [0] * 4, [np.array(p) for p in sequences(tiny, 9, 9, 9, 9)])
    before = cache.keys[:, 2].copy(), cache.values[:, 2].copy()
    decoder.decode(weights, cache, np.array([0, 1, 3]), np.array([9, 9, 9]), np.array([1, 2, 3]))
    assert (cache.keys[:, 2] == before[0]).all() and (cache.values[:, 2] == before[1]).all()


def test_a_copied_beginning_continues_like_a_computed_one(engine, tiny, tiny_parameters, fresh_logits):
    decoder, weights = engine
    (prompt,) = sequences(tiny, 40)
    cache = KeyValueCache(tiny, 2, 96)
    decoder.prefill(weights, cache, [0], [0], [np.array(prompt)])
    cache.copy(0, 1, 25)
    other = [*prompt[:25], 5, 6, 7]
    logits = decoder.prefill(weights, cache, [1], [25], [np.array(other[25:])])
    assert np.abs(logits[0] - fresh_logits(tiny_parameters, tiny, other)[-1]).max() < CLOSE
