"""Packs: whatever sequences come in, each trained token is predicted from exactly the tokens before it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_trainer.engine import packing
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.packing import TrainingSequence, packs

# few different tokens and few beginnings, so that sequences share much
beginnings = st.sampled_from([[], [1] * 18, [1] * 18 + [2] * 20, [2] * 16, [1, 2] * 14])
bodies = st.lists(st.integers(0, 2), min_size=1, max_size=24)
tokens = st.builds(lambda head, body: head + body, beginnings, bodies).filter(lambda t: len(t) > 1)


def build(drawn):
    sequences, at = [], 0
    for ids, every in drawn:
        trained = np.arange(1, len(ids), every) if every else np.zeros(0, np.int64)
        sequences.append(TrainingSequence(np.array(ids), trained, np.arange(at, at + len(trained))))
        at += len(trained)
    return sequences, at


def visible(pack, blocks, query):
    """Rows that a query sees, by position."""
    for block in blocks:
        if block.queries.start <= query < block.queries.stop:
            keys = np.arange(len(pack.tokens))[block.keys]
            future = block.future[query - block.queries.start]
            return keys[: len(keys) - len(future)].tolist() + keys[len(keys) - len(future) :][future == 0].tolist()
    raise AssertionError(f"no block asks for query {query}")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(tokens, st.integers(0, 3)), min_size=1, max_size=9),
    st.sampled_from([1, 60, 10_000]),
    st.sampled_from([4, 256]),
)
def test_a_trained_token_is_predicted_from_the_tokens_before_it(drawn, budget, block):
    sequences, count = build(drawn)
    old, packing._BLOCK = packing._BLOCK, block
    try:
        made = list(packs(sequences, budget))
    finally:
        packing._BLOCK = old
    assert sorted(o for pack in made for o in pack.outputs.tolist()) == list(range(count))
    expected = {
        int(output): s.tokens[: t + 1].tolist()
        for s in sequences
        for t, output in zip(s.trained, s.outputs, strict=True)
    }
    for pack in made:
        for predictor, target, output in zip(pack.predictor, pack.targets, pack.outputs, strict=True):
            seen = visible(pack, pack.predicting_blocks, int(predictor))
            assert [*pack.tokens[seen].tolist(), int(target)] == expected[int(output)]
            assert pack.positions[seen].tolist() == list(range(len(seen)))
            assert seen == visible(pack, pack.blocks, int(pack.predicting[predictor]))
            assert seen[-1] == pack.predicting[predictor]


def test_equal_rollouts_cost_one():
    ids = np.arange(40)
    sequences = [TrainingSequence(ids, np.arange(20, 40), np.arange(20) + 20 * i) for i in range(8)]
    (pack,) = packs(sequences, 10_000)
    assert len(pack.tokens) == 39
    assert len(pack.predicting) == 20
    assert len(pack.targets) == 160


def test_nothing_trained_makes_no_pack():
    assert list(packs([TrainingSequence(np.arange(5), np.zeros(0, np.int64), np.zeros(0, np.int64))], 100)) == []
    assert list(packs([], 100)) == []
