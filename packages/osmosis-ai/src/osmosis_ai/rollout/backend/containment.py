"""Running somebody else's coroutine so that nothing it does ends the process or outlives its deadline.

Owns: exits turned into failures, deadlines that hold although the work swallows its cancellation or blocks the event
loop, work that is abandoned when it will not stop. Leaves what a failure means to the caller.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from osmosis_ai.rollout.context import get_rollout_context

logger = logging.getLogger(__name__)

STOP_GRACE_S = 5.0
"""How long cancelled work may clean up before it is abandoned."""

_FACTORY_MARK = "_osmosis_contains_exits"
_abandoned: set[asyncio.Task[Any]] = set()


class ContainedExit(Exception):
    """The work called `exit`, or raised another exception that would have ended the process."""


@dataclass(frozen=True, slots=True)
class Bounded[T]:
    """How bounded work ended: a value, an exception, or its deadline.

    Attributes:
        value: What it returned, when `error` is None and it did not time out.
        error: What it raised.
        timed_out: Our deadline passed before it was done, whatever it returned afterwards.
        elapsed_s: Seconds it took, as far as we waited.
    """

    value: T | None
    error: BaseException | None
    timed_out: bool
    elapsed_s: float


async def run_bounded[T](work: Coroutine[Any, Any, T], limit_s: float | None, *, who: str) -> Bounded[T]:
    """Run the work in a task of its own for at most `limit_s` seconds (None: unbounded; 0 or less: not at all).

    Raises:
        asyncio.CancelledError: The caller was cancelled; the work is stopped first.
    """
    if limit_s is not None and limit_s <= 0:
        work.close()
        return Bounded(None, None, True, 0.0)
    contain_exits_of_rollout_tasks(asyncio.get_running_loop())
    contained = _Contained(work, who)
    started = time.monotonic()
    task: asyncio.Task[T] = asyncio.create_task(contained)
    try:
        await asyncio.wait((task,), timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task, who)
        raise
    if not task.done():
        await _stop(task, who)
        return Bounded(None, None, True, time.monotonic() - started)
    elapsed_s = contained.ended - started
    if task.cancelled():
        return Bounded(None, ContainedExit(f"{who} cancelled itself"), False, elapsed_s)
    if (error := task.exception()) is not None:
        return Bounded(None, error, False, elapsed_s)
    # A blocked event loop delays our timer, not the clock: success after the deadline is still too late.
    return Bounded(task.result(), None, limit_s is not None and elapsed_s > limit_s, elapsed_s)


async def contain[T](work: Coroutine[Any, Any, T], who: str) -> T:
    """Await the work; an exception that would end the process becomes a ContainedExit that names it."""
    return await _Contained(work, who)


class _Contained[T](Coroutine[Any, Any, T]):
    """The coroutine itself, but for exceptions that would end the process; it also notes when it ended.

    A coroutine object and not a coroutine around it: a task that is cancelled before its first step then leaves no
    coroutine behind that was never awaited.
    """

    def __init__(self, work: Coroutine[Any, Any, T], who: str) -> None:
        self._work = work
        self._who = who
        self.__name__ = getattr(work, "__name__", who)
        self.__qualname__ = getattr(work, "__qualname__", who)
        self.ended = time.monotonic()

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, *exc: Any) -> Any:
        return self._step(self._work.throw, *exc)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        step, argument = self.send, None
        while True:
            try:
                awaited = step(argument)
            except StopIteration as stop:
                return stop.value
            try:
                argument = yield awaited
                step = self.send
            except BaseException as exc:
                step, argument = self.throw, exc

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            self.ended = time.monotonic()
            raise
        except SystemExit as exc:
            self.ended = time.monotonic()
            code = "" if exc.code is None else repr(exc.code)
            raise ContainedExit(f"{self._who} called exit({code})") from exc
        except BaseException as exc:
            self.ended = time.monotonic()
            raise ContainedExit(f"{self._who} raised {type(exc).__name__}: {exc}".rstrip(": ")) from exc


def contain_exits_of_rollout_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Make the tasks that rollouts start themselves as harmless as the rollout's own.

    asyncio re-raises SystemExit and KeyboardInterrupt of any task out of the event loop, so an `exit()` in an agent's
    helper task would end the server. Tasks outside of a rollout are left as they are.
    """
    previous = loop.get_task_factory()
    if getattr(previous, _FACTORY_MARK, False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Future[Any]:
        if get_rollout_context() is not None and not isinstance(coro, _Contained):
            coro = _Contained(coro, "a task of the rollout")
        if previous is None:
            return asyncio.Task(coro, loop=loop, **kwargs)
        return previous(loop, coro, **kwargs)

    setattr(factory, _FACTORY_MARK, True)
    loop.set_task_factory(factory)


async def _stop(task: asyncio.Task[Any], who: str) -> None:
    """Cancel the task and wait for it; one that goes on regardless is left behind, kept from the garbage collector."""
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=STOP_GRACE_S)
    finally:
        if task.done():
            _note_exception(task)
        else:
            logger.warning("%s ignores its cancellation; it is abandoned and may go on using this process", who)
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)
            task.add_done_callback(_note_exception)


def _note_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        logger.debug("stopped work ended with %s", type(exc).__name__, exc_info=exc)
