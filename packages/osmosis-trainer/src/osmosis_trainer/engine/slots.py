"""What the slots hold: tokens whose keys and values are cached, of which session and version; who may have one.

Leaves the arithmetic to `engine.model` and the order of work to `engine.sampler`. A slot keeps its content after its
call ends, until somebody needs the room: a later turn of the same session goes on where it stopped, and a prompt that
begins like another slot's copies that beginning instead of computing it.
"""

from __future__ import annotations

from dataclasses import dataclass

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.model import KeyValueCache
from osmosis_trainer.engine.weights import Array, ModelShape

# A shared beginning shorter than this is computed rather than copied.
_WORTH_COPYING = 8


@dataclass(slots=True)
class _Slot:
    session: str = ""
    version: str = ""
    busy: bool = False
    last_used: int = 0


class Slots:
    """A fixed number of slots over one key-value cache.

    Args:
        shape: The model's sizes.
        count: How many sequences can be decoded at once.
        context: The longest sequence, in tokens.
    """

    def __init__(self, shape: ModelShape, count: int, context: int) -> None:
        self.context = context
        self.cache = KeyValueCache(shape, count, context)
        self.lengths: Array = np.zeros(count, np.int64)
        self._tokens: Array = np.zeros((count, context), np.int32)
        self._slots = [_Slot() for _ in range(count)]
        self._clock = 0

    def take(self, session: str, version: str, prompt: Array) -> tuple[int, int] | None:
        """Find a slot for a prompt and keep or copy the longest beginning that is already computed.

        At least the prompt's last token is left to compute: its logits are wanted.

        Returns:
            The slot and how many of the prompt's tokens it holds, or None when every slot is busy.
        """
        idle = [i for i, slot in enumerate(self._slots) if not slot.busy]
        if not idle:
            return None
        shared = self._shared_lengths(version, prompt[:-1])
        own = [i for i in idle if self._slots[i].session == session and shared[i] > 0]
        donor = int(shared.argmax())
        if own and shared[best := max(own, key=lambda i: shared[i])] >= shared[donor] - _WORTH_COPYING:
            chosen, kept = best, int(shared[best])
        else:
            # the slot longest unused; ties (never used, or forgotten) go to the lowest, so that live slots lie together
            chosen = min(idle, key=lambda i: self._slots[i].last_used)
            kept = int(shared[donor]) if shared[donor] >= _WORTH_COPYING else 0
            if kept and donor != chosen:
                self.cache.copy(donor, chosen, kept)
        self._clock += 1
        self._slots[chosen] = _Slot(session, version, busy=True, last_used=self._clock)
        self._tokens[chosen, :kept] = prompt[:kept]
        self.lengths[chosen] = kept
        return chosen, kept

    def append(self, slot: int, tokens: Array) -> None:
        """Note that keys and values of these tokens were computed at the slot's end."""
        start = int(self.lengths[slot])
        self._tokens[slot, start : start + len(tokens)] = tokens
        self.lengths[slot] = start + len(tokens)

    def append_one(self, slots: Array, tokens: Array) -> None:
        """Note one computed token for each of several slots."""
        self._tokens[slots, self.lengths[slots]] = tokens
        self.lengths[slots] += 1

    def release(self, slot: int) -> None:
        """End a slot's call; its content stays."""
        self._clock += 1
        self._slots[slot].busy = False
        self._slots[slot].last_used = self._clock

    def forget(self, session: str) -> None:
        """Give a session's idle slots away before any other."""
        for slot in self._slots:
            if slot.session == session and not slot.busy:
                slot.session, slot.last_used = "", 0

    @property
    def busy_count(self) -> int:
        """How many slots have a call."""
        return sum(slot.busy for slot in self._slots)

    def _shared_lengths(self, version: str, prompt: Array) -> Array:
        """Count, for each slot of this version, the leading tokens it shares with the prompt."""
        n = len(prompt)
        if n == 0:
            return np.zeros(len(self._slots), np.int64)
        different = self._tokens[:, :n] != prompt
        first = np.where(different.any(-1), different.argmax(-1), n)
        same_version = np.array([slot.version == version for slot in self._slots])
        return np.where(same_version, np.minimum(first, self.lengths), 0)
