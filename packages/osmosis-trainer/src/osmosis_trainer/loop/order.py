"""Which rows a step trains on: a seeded permutation for each epoch, batches, held-out rows, rows to refill with. Pure.

Everything follows from the seed and the step's number, so a position is one number and resuming needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampling import noise_key, uniforms


@dataclass(frozen=True, slots=True)
class DataOrder:
    """The order of a training's rows.

    Attributes:
        rows: Positions in the dataset that may be trained on, ascending.
        batch: Rows of a step; never more than there are, so that no step has a row twice by its size alone.
        epochs: Passes over the rows.
        seed: Decides every permutation.
    """

    rows: tuple[int, ...]
    batch: int
    epochs: int
    seed: int

    @property
    def size(self) -> int:
        """Rows of a full step."""
        return min(self.batch, len(self.rows))

    @property
    def steps(self) -> int:
        """Steps of the whole training; the last one may be short."""
        return -(-self.epochs * len(self.rows) // self.size) if self.rows else 0

    def step_rows(self, step: int) -> tuple[int, ...]:
        """The rows of a step, counted from 0; a step may reach into the next epoch.

        Raises:
            IndexError: There is no such step.
        """
        first = step * self.size
        last = min(first + self.size, self.epochs * len(self.rows))
        if not 0 <= first < last:
            raise IndexError(f"step {step} of {self.steps}")
        return tuple(self._at(position) for position in range(first, last))

    def epoch(self, step: int) -> float:
        """How many passes are complete after a step's rows."""
        return min((step + 1) * self.size / len(self.rows), float(self.epochs)) if self.rows else 0.0

    def refill(self, step: int) -> Iterator[int]:
        """Rows to put in place of groups that teach nothing: all others once, in an order of the step's own."""
        taken = set(self.step_rows(step))
        for index in permutation(len(self.rows), noise_key("refill", self.seed, step)):
            if self.rows[index] not in taken:
                yield self.rows[index]

    def _at(self, position: int) -> int:
        epoch, index = divmod(position, len(self.rows))
        return self.rows[permutation(len(self.rows), noise_key("epoch", self.seed, epoch))[index]]


def hold_out(total: int, count: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the rows of a dataset into those to train on and those to validate on, both ascending.

    Args:
        total: Rows of the dataset.
        count: Rows to hold out.
        seed: Decides which.
    """
    held = sorted(permutation(total, noise_key("held out", seed))[:count])
    kept = set(held)
    return tuple(row for row in range(total) if row not in kept), tuple(held)


@lru_cache(maxsize=4)
def permutation(count: int, key: int) -> Sequence[int]:
    """The numbers below `count` in an order that depends on `key` alone, on every platform and library version."""
    if count == 0:
        return ()
    drawn = uniforms(np.full(count, key, np.uint64), np.arange(count))
    return tuple(np.argsort(drawn, kind="stable").tolist())
