"""Runs the same job on many things with a few threads, so that Ctrl-C and the first failure end it at once.

Owns: these threads. They are daemons: one that waits for the network cannot hold the program back when it ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

_POLL_S = 0.2


class Stopped(Exception):
    """The work was called off while it was done."""


def for_each[Item](items: Iterable[Item], job: Callable[[Item, threading.Event], None], *, threads: int) -> None:
    """Do a job for each item, some at a time; returns when all are done.

    Args:
        items: In the order they are begun.
        job: Gets the item and an event that is set when the work is called off. What it raises ends the whole.
        threads: Most jobs at a time.

    Raises:
        BaseException: What the first failing job raised; KeyboardInterrupt.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    count = 0
    for item in items:
        waiting.put(item)
        count += 1
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                job(item, stop)
            except BaseException as error:  # handed to the caller's thread, which raises it
                done.put(error)
                return
            done.put(None)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, count))]
    for worker in workers:
        worker.start()
    try:
        for _ in range(count):
            failure = _next(done)
            if failure is not None:
                raise failure
    finally:
        stop.set()


def _next(done: queue.SimpleQueue[BaseException | None]) -> BaseException | None:
    """Wait in short steps, so that a signal is seen at once on every system."""
    while True:
        try:
            return done.get(timeout=_POLL_S)
        except queue.Empty:
            continue
