"""The truth about a run: one durable line for each work item that ended (events.jsonl), one for each other attempt.

Everything else in a run directory is derived from here (`projection`). A reader of the published package understands
events.jsonl: our own keys (error, cost, timings, ...) come on top of its keys. Attempts that ended nothing go to
attempts.jsonl, which that reader does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable, KeysView, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation.atomic import storage_error, sync_directory
from osmosis_ai.evaluation.events import (
    Entry,
    attempts_name,
    entry_of,
    events_name,
    index_name,
    json_line,
    read_events,
    verdict_line,
)
from osmosis_ai.evaluation.verdict import Attempt, Failure, ItemKey, Outcome, Verdict


class Journal(Protocol):
    """Where verdicts become durable. Implementations: `FileJournal`, and the platform's tables."""

    def records(self) -> Mapping[ItemKey, Entry]:
        """The recorded verdicts, a live view."""
        ...

    def pending(self, keys: Iterable[ItemKey], *, retry_failed: bool = False) -> KeysView[ItemKey]:
        """The keys that still have to run, in the order given; asked once, it does not change afterwards."""
        ...

    async def record(self, verdict: Verdict) -> None:
        """Make a verdict durable; it counts when this returns. The last one of a key wins."""
        ...

    def attempt(self, attempt: Attempt) -> None:
        """Note an attempt that ended nothing."""
        ...

    async def close(self) -> None:
        """Wait for what is being written, then release the files."""
        ...


class FileJournal:
    """The journal of a run directory. One process writes it: the one that holds the run's lock.

    Verdicts that arrive while others are being forced to the disk share the next force (group commit).
    """

    def __init__(self, run_dir: Path, events: int, size: int, entries: dict[ItemKey, Entry]) -> None:
        self.path = run_dir / events_name
        self.attempts_path = run_dir / attempts_name
        self._events = events
        self._attempts: int | None = None
        self._size = size
        self._entries = entries
        self._failures: dict[Failure, Failure] = {}
        self._queue: list[tuple[bytes, Verdict, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        # One thread, because a force to the disk takes milliseconds in which the event loop must go on.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._broken: OsmosisError | None = None
        self._closed = False

    @classmethod
    def open(cls, run_dir: Path) -> Self:
        """Open or make the journal of a run directory: drop a torn last line, read what is recorded.

        Raises:
            ValidationError: A complete line is no verdict, or results that were there are gone; names file and remedy.
            OsmosisError: The files cannot be read or written.
        """
        events = _open_append(run_dir / events_name)
        try:
            size = _drop_torn_line(events)
            entries: dict[ItemKey, Entry] = {}
            failures: dict[Failure, Failure] = {}
            for _, verdict in read_events(run_dir / events_name):
                entries[verdict.key] = entry_of(verdict, resumed=True, failures=failures)
            _check_nothing_lost(run_dir, entries)
        except BaseException as error:
            os.close(events)
            if isinstance(error, OSError):
                raise storage_error(run_dir / events_name, error) from error
            raise
        journal = cls(run_dir, events, size, entries)
        journal._failures = failures
        return journal

    def records(self) -> Mapping[ItemKey, Entry]:
        """The recorded verdicts by key, a live view."""
        return MappingProxyType(self._entries)

    def pending(self, keys: Iterable[ItemKey], *, retry_failed: bool = False) -> KeysView[ItemKey]:
        """The keys without a verdict, and with `retry_failed` those that are failed or skipped, in the order given."""
        entries = self._entries
        return dict.fromkeys(
            key
            for key in keys
            if (entry := entries.get(key)) is None or (retry_failed and entry.outcome is not Outcome.GRADED)
        ).keys()

    async def record(self, verdict: Verdict) -> None:
        """Make a verdict durable.

        Raises:
            OsmosisError: The disk is full or refuses; the journal holds no part of the line.
        """
        if self._closed:
            raise ConflictError(f"The journal {self.path} is closed.")
        line = verdict_line(verdict)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((line, verdict, future))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_queue())
        await future

    def attempt(self, attempt: Attempt) -> None:
        """Append an attempt that ended nothing; not forced to the disk.

        Raises:
            OsmosisError: The disk is full or refuses.
        """
        if self._closed:
            raise ConflictError(f"The journal {self.path} is closed.")
        line = json_line({key: value for key, value in asdict(attempt).items() if value is not None})
        try:
            if self._attempts is None:
                self._attempts = _open_append(self.attempts_path)
                _drop_torn_line(self._attempts)
            end = os.lseek(self._attempts, 0, os.SEEK_END)
            try:
                _write_fully(self._attempts, line)
            except OSError:
                os.ftruncate(self._attempts, end)
                raise
        except OSError as error:
            raise storage_error(self.attempts_path, error) from error

    async def close(self) -> None:
        """Wait for the verdicts that are being written, then release the files."""
        self._closed = True
        while (writing := self._writing) is not None:
            await asyncio.shield(writing)
        self.release()

    def release(self) -> None:
        """Release the files at once, for an exit without an event loop; what is queued is not recorded."""
        self._closed = True
        self._writer.shutdown(wait=True)
        for descriptor in (self._events, self._attempts):
            with contextlib.suppress(OSError):
                if descriptor is not None:
                    os.close(descriptor)

    async def _write_queue(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    await loop.run_in_executor(self._writer, self._append, b"".join(line for line, _, _ in batch))
                except Exception as error:
                    for _, _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for _, verdict, future in batch:
                    self._entries[verdict.key] = entry_of(verdict, resumed=False, failures=self._failures)
                    if not future.done():
                        future.set_result(None)
        finally:
            self._writing = None

    def _append(self, data: bytes) -> None:
        """Write and force, in the writer's thread; on failure cut the file back to what was durable."""
        if self._broken is not None:
            raise self._broken
        try:
            _write_fully(self._events, data)
            os.fsync(self._events)
        except OSError as error:
            failure = storage_error(self.path, error)
            try:
                os.ftruncate(self._events, self._size)
                os.fsync(self._events)
            except OSError:
                self._broken = failure  # the next start drops the torn line
            raise failure from error
        self._size += len(data)


def _check_nothing_lost(run_dir: Path, entries: Mapping[ItemKey, Entry]) -> None:
    """Refuse an emptied or cut journal: index.jsonl is written after it, so it never knows more.

    One result too few is let through: a last line that was torn, or a damaged line that was removed as advised.
    """
    known: set[ItemKey] = set()
    with contextlib.suppress(OSError), (run_dir / index_name).open("rb") as stream:
        for line in stream:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                record = json.loads(line)
                known.add((int(record["row_index"]), int(record["run_index"])))
    lost = len(known - entries.keys())
    if lost > 1 or (lost and not entries):
        raise ValidationError(
            f"{run_dir / events_name} lacks {lost} of the {len(known)} results that {index_name} lists: the file was cut "
            f"or emptied. Put it back, delete {index_name} to run the lacking ones again, or start over with --fresh "
            "(the old results are kept).",
            details={"file": str(run_dir / events_name), "lost": lost},
        )


def _open_append(path: Path) -> int:
    try:
        made = not path.exists()
        # One descriptor for a run's whole life; 600 as every file of a run.
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if made:
            sync_directory(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
    return descriptor


def _drop_torn_line(descriptor: int) -> int:
    """Cut what follows the last newline; return the size that is left."""
    size = end = os.lseek(descriptor, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - (1 << 16))
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    return end


def _write_fully(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
