"""Sequences to packs: a pack holds shared beginnings once and no padding; who may attend to whom is a list of blocks.

The rollouts of a group share their prompt, often most of a sequence: its tokens are computed once and their gradients
add up. Leaves the arithmetic to `engine.backward` and what is learnt from a token to `losses`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.weights import Array

# A shared beginning shorter than this is computed for each sequence: a segment of its own costs more.
_WORTH_SHARING = 16
# Queries of one block; the scores of a block are [heads, _BLOCK, keys], whatever the sequence's length.
_BLOCK = 256

type Rows = slice | Array


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """One sequence and which of its tokens are trained.

    Attributes:
        tokens: Token ids [T].
        trained: Positions of the trained tokens, ascending, none of them 0.
        outputs: Where the result for each trained token goes, within the call's flat arrays.
    """

    tokens: Array
    trained: Array
    outputs: Array


@dataclass(frozen=True, slots=True)
class Block:
    """Some queries, and the keys that they see.

    Attributes:
        queries: Rows of the query array.
        keys: Rows of the key array, by position.
        future: Added to the scores of the last keys [queries, those keys]: 0 where visible, -inf where not.
    """

    queries: Rows
    keys: Rows
    future: Array


@dataclass(frozen=True, slots=True)
class Pack:
    """What one forward and backward pass computes: N tokens, M of whose positions predict K trained tokens.

    Attributes:
        tokens: Token ids [N].
        positions: Position of each in its sequence [N].
        blocks: Attention of every token.
        predicting: Rows that predict a trained token [M], ascending; the last layer computes nothing else.
        predicting_blocks: Attention of those rows only; queries count from 0 to M.
        predictor: For each trained token the index of its row within `predicting` [K], ascending.
        targets: Token id of each trained token [K].
        outputs: Place of each trained token in the call's flat arrays [K].
    """

    tokens: Array
    positions: Array
    blocks: list[Block]
    predicting: Array
    predicting_blocks: list[Block]
    predictor: Array
    targets: Array
    outputs: Array


@dataclass(frozen=True, slots=True)
class _Segment:
    first: int
    last: int
    rows: Array  # of everything from position 0 to the segment's end


def packs(sequences: Sequence[TrainingSequence], budget: int) -> Iterator[Pack]:
    """Split a call into packs of about `budget` tokens; a sequence longer than that is a pack of its own.

    Sequences that begin alike come together, so the order of the input does not matter.
    """
    # what follows the last trained token, and that token as an input, influence nothing that is trained
    chosen = [s for s in sequences if len(s.trained)]
    inputs = [s.tokens[: int(s.trained[-1])] for s in chosen]
    order = sorted(range(len(chosen)), key=lambda i: inputs[i].tolist())
    chosen, inputs = [chosen[i] for i in order], [inputs[i] for i in order]
    shared = [0] + [_common(a, b) for a, b in pairwise(inputs)]
    lo, cost = 0, 0
    for i, tokens in enumerate(inputs):
        new = len(tokens) - (shared[i] if i > lo and shared[i] >= _WORTH_SHARING else 0)
        if i > lo and cost + new > budget:
            yield _pack(chosen[lo:i], inputs[lo:i], shared[lo:i])
            lo, cost, new = i, 0, len(tokens)
        cost += new
    if chosen:
        yield _pack(chosen[lo:], inputs[lo:], shared[lo:])


def _common(a: Array, b: Array) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def _pack(sequences: Sequence[TrainingSequence], inputs: Sequence[Array], shared: Sequence[int]) -> Pack:
    """Lay out sorted sequences as a tree of segments; `shared` counts tokens in common with the one before."""
    segments: list[_Segment] = []
    rows_of: list[Array] = [np.zeros(0, np.int64)] * len(inputs)
    pieces: list[Array] = []
    count = 0
    pending: list[tuple[int, int, Array]] = [(0, len(inputs), np.zeros(0, np.int64))]

    def emit(tokens: Array, above: Array) -> Array:
        nonlocal count
        if len(tokens) == 0:
            return above
        rows = np.concatenate([above, np.arange(count, count + len(tokens))])
        segments.append(_Segment(count, count + len(tokens), rows))
        pieces.append(tokens)
        count += len(tokens)
        return rows

    while pending:
        lo, hi, above = pending.pop()
        if hi - lo == 1:
            rows_of[lo] = emit(inputs[lo][len(above) :], above)
            continue
        common = min(shared[lo + 1 : hi])
        if common - len(above) >= _WORTH_SHARING:
            above = emit(inputs[lo][len(above) : common], above)
        cuts = [lo, *(i for i in range(lo + 1, hi) if shared[i] == common), hi]
        pending += [(a, b, above) for a, b in reversed(list(pairwise(cuts)))]

    rows = np.concatenate([r[s.trained - 1] for r, s in zip(rows_of, sequences, strict=True)])
    outputs = np.concatenate([s.outputs for s in sequences])
    targets = np.concatenate([s.tokens[s.trained] for s in sequences])
    by_row = np.argsort(rows, kind="stable")
    predicting, predictor = np.unique(rows[by_row], return_inverse=True)
    positions = np.concatenate([np.arange(len(s.rows) - (s.last - s.first), len(s.rows)) for s in segments])
    return Pack(
        tokens=np.concatenate(pieces),
        positions=positions,
        blocks=[b for s in segments for b in _blocks(s, np.arange(s.first, s.last), s.first)],
        predicting=predicting,
        predicting_blocks=[
            block
            for s in segments
            for a, b in [np.searchsorted(predicting, (s.first, s.last))]
            for block in _blocks(s, predicting[a:b], int(a))
        ],
        predictor=predictor,
        targets=targets[by_row],
        outputs=outputs[by_row],
    )


def _blocks(segment: _Segment, rows: Array, first_query: int) -> Iterator[Block]:
    """Attention of some of a segment's rows, which stand at `first_query` and after it in the query array."""
    depth = len(segment.rows) - (segment.last - segment.first)
    for at in range(0, len(rows), _BLOCK):
        part = rows[at : at + _BLOCK] - segment.first  # places within the segment
        seen = int(part[-1]) + 1
        own = int(part[0])  # every query of the block sees what lies before the first one's place
        keys: Rows = segment.rows[: depth + seen]
        if depth == 0:
            keys = slice(segment.first, segment.first + seen)
        hidden = np.arange(own, seen) > part[:, None]
        yield Block(
            slice(first_query + at, first_query + at + len(part)), keys, np.where(hidden, -np.inf, 0).astype(np.float32)
        )
