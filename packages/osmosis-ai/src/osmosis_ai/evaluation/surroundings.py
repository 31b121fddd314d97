"""What a run changes in its own process, and puts back: signals, environment variables, library logs, open files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
from collections.abc import Callable, Generator, Mapping
from typing import Any


@contextlib.contextmanager
def handle_signals(on_signal: Callable[[], None]) -> Generator[None]:
    """Call `on_signal` in the event loop at each SIGINT and SIGTERM; outside the main thread this does nothing."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError, RuntimeError):
            handler = signal.getsignal(number)
            loop.add_signal_handler(number, on_signal)
            before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for a while: providers read their keys there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def library_logs(note: Callable[[str, str, str, Mapping[str, Any]], None]) -> Generator[None]:
    """Send what libraries log at WARNING and above to logs.txt; stderr is for our own lines."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with contextlib.suppress(Exception):
                note("WARNING", "run", f"{record.name}: {self.format(record)}", {})

    handler = Lines(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def many_open_files(wanted: int = 16384) -> Generator[None]:
    """Allow more open files where the system does: a rollout in flight holds about three connections here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    raised = soft != resource.RLIM_INFINITY and soft < most
    if raised:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        if raised:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
