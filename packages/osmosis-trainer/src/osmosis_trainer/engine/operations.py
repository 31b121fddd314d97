"""Operations on weights: one after another, off the event loop, each id done once.

Leaves what an operation does to the engine, and which thread runs it to whoever hands in `submit`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from osmosis_ai.errors import ConflictError

# Results remembered for a caller that repeats an operation; a loop repeats its latest ones only.
_REMEMBERED = 64


class Operations:
    """Starts operations in order and remembers their results by id.

    Args:
        submit: Queues work for the engine's one thread, first come first served.
    """

    def __init__(self, submit: Callable[[Callable[[], Any]], Future[Any]]) -> None:
        self._submit = submit
        self._known: OrderedDict[str, tuple[str, Future[Any]]] = OrderedDict()

    async def run[T](self, what: str, op_id: str | None, work: Callable[[], T]) -> T:
        """Do some work, or give the result it had under the same id.

        Cancelling the caller does not stop the work: it has been promised to whoever asks next.

        Args:
            what: Kind of operation and what it is about; an id stands for one of them.
            op_id: None is never remembered.
            work: Raises what the caller is to see.

        Raises:
            ConflictError: The id was used for something else.
            RuntimeError: The engine was closed before the work began.
        """
        future = self._future(what, op_id, work)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if future.cancelled():  # not the caller but the work was cancelled
                raise RuntimeError(f"the engine was closed before {what}") from None
            raise

    def _future[T](self, what: str, op_id: str | None, work: Callable[[], T]) -> Future[T]:
        if op_id is None:
            return self._submit(work)
        known = self._known.get(op_id)
        if known is not None:
            if known[0] != what:
                raise ConflictError(f"operation id {op_id!r} was used for {known[0]}; {what} needs an id of its own.")
            if not _failed(known[1]):
                return known[1]
        future = self._submit(work)
        self._known[op_id] = (what, future)
        self._known.move_to_end(op_id)
        while len(self._known) > _REMEMBERED and next(iter(self._known.values()))[1].done():
            self._known.popitem(last=False)
        return future


def _failed(future: Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
