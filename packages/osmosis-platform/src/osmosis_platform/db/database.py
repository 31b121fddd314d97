"""The database and its units of work: one process-wide object over SQLite or PostgreSQL.

SQLite (WAL) has three pools: readers, a writer with synchronous=FULL for what a user was told is done, and a writer with
NORMAL for progress, which survives a kill of the process and may lose its last moments at a power cut.
PostgreSQL has one pool; there progress writes turn synchronous_commit off for their transaction.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from osmosis_platform.clock import Clock, system_clock
from osmosis_platform.errors import InvalidRequestError, StorageFullError, UnavailableError

joining: ContextVar[Callable[[UnitOfWork], None] | None] = ContextVar("joining", default=None)
"""What takes part in each durable transaction of this context, last in it: for what must be committed with the change."""

_BUSY_S = 30.0
_READERS = 8


class UnitOfWork:
    """One transaction: repositories take it, callbacks wait on it.

    Attributes:
        connection: The open transaction.
        clock: The time of day.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.connection = connection
        self.clock = clock
        self._before_commit: list[Callable[[], None]] = []
        self._after_commit: list[Callable[[], None]] = []

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.connection.dialect.name

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """Runs one statement in this transaction."""
        return self.connection.execute(statement, parameters)  # type: ignore[return-value]

    def before_commit(self, call: Callable[[], None]) -> None:
        """Calls at the end of this transaction, inside it: for what others wait on, so that they wait shortly."""
        self._before_commit.append(call)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Calls once the transaction is committed: to wake a worker or a stream, to delete a blob. Never on rollback."""
        self._after_commit.append(call)

    def committing(self) -> None:
        """Runs the calls that waited for the end of the block."""
        for call in self._before_commit:
            call()

    def committed(self) -> None:
        """Runs the calls that waited for the commit."""
        for call in self._after_commit:
            call()


class Database:
    """Opens units of work.

    Args:
        url: A SQLAlchemy URL, `sqlite:///path` or `postgresql+psycopg://...`.
        clock: The time of day that units of work see.
        pool_size: PostgreSQL connections of this process.
    """

    def __init__(self, url: str, *, clock: Clock = system_clock, pool_size: int = 10) -> None:
        self.url = sa.make_url(url)
        self.clock = clock
        self.dialect = self.url.get_backend_name()
        # SQLite has one writer: threads of this process queue here instead of spinning on its lock.
        self._writing = threading.Lock()
        if self.dialect == "sqlite":
            _refuse_shared_file_system(Path(str(self.url.database)))
            self._reader = _sqlite_engine(self.url, "NORMAL", "BEGIN", size=_READERS, query_only=True)
            self._durable = _sqlite_engine(self.url, "FULL", "BEGIN IMMEDIATE", size=1)
            self._progress = _sqlite_engine(self.url, "NORMAL", "BEGIN IMMEDIATE", size=1)
        else:
            try:
                engine = sa.create_engine(self.url, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True)
            except ModuleNotFoundError as error:
                message = f"PostgreSQL needs {error.name}; install it with: pip install 'osmosis-platform[postgres]'"
                raise UnavailableError(message, code="EXTRA_MISSING") from error
            self._durable = self._progress = engine
            # Of the same pool. By itself PostgreSQL would show each statement what was committed before it.
            self._reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @property
    def engine(self) -> Engine:
        """The engine of durable writes, for migrations and backups."""
        return self._durable

    @contextmanager
    def read(self) -> Generator[UnitOfWork]:
        """A unit of work that only reads, on one snapshot.

        Raises:
            UnavailableError: The database does not answer.
        """
        with translated(), self._reader.connect() as connection:
            yield UnitOfWork(connection, self.clock)

    @contextmanager
    def write(self, *, durable: bool = True) -> Generator[UnitOfWork]:
        """A unit of work that commits at the end of the block, or rolls back with the exception.

        Args:
            durable: On the disk when the block ends; False for progress, logs and metrics.

        Raises:
            UnavailableError: The database does not answer, or stays locked for 30 s.
            StorageFullError: The disk is full; nothing was written.
        """
        if self.dialect == "sqlite":
            if not self._writing.acquire(timeout=_BUSY_S):
                raise UnavailableError("The database is busy; nothing was changed. Try again in a moment.")
            try:
                with translated(), (self._durable if durable else self._progress).begin() as connection:
                    work = UnitOfWork(connection, self.clock)
                    yield work
                    _commit_with(work, durable=durable)
            finally:
                self._writing.release()
        else:
            with translated(), self._durable.begin() as connection:
                if not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit TO OFF")
                work = UnitOfWork(connection, self.clock)
                yield work
                _commit_with(work, durable=durable)
        work.committed()

    async def reading[T](self, read: Callable[[UnitOfWork], T]) -> T:
        """Runs a short read for a request: inline on SQLite (a thread would cost more), in a thread on PostgreSQL."""
        if self.dialect == "sqlite":
            return self._read(read)
        return await anyio.to_thread.run_sync(self._read, read)

    async def writing[T](self, write: Callable[[UnitOfWork], T], *, durable: bool = True) -> T:
        """Runs a write for a request, in a thread: a commit waits for the disk."""

        def run() -> T:
            with self.write(durable=durable) as work:
                return write(work)

        return await anyio.to_thread.run_sync(run)

    def _read[T](self, read: Callable[[UnitOfWork], T]) -> T:
        with self.read() as work:
            return read(work)

    def close(self) -> None:
        """Closes every connection."""
        for engine in {self._reader, self._durable, self._progress}:
            engine.dispose()


def _commit_with(work: UnitOfWork, *, durable: bool) -> None:
    work.committing()
    if durable and (join := joining.get()) is not None:
        join(work)


def _sqlite_engine(url: sa.URL, synchronous: str, begin: str, *, size: int, query_only: bool = False) -> Engine:
    engine = sa.create_engine(
        url,
        pool_size=size,
        max_overflow=size if query_only else 0,
        poolclass=sa.QueuePool,
        connect_args={"timeout": _BUSY_S, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves: the driver's is deferred and late
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA busy_timeout={int(_BUSY_S * 1000)}")
        if query_only:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


@contextmanager
def translated() -> Generator[None]:
    """Tells a full disk, a busy and a lost database apart from faults of ours."""
    try:
        yield
    except (DataError, UnicodeEncodeError, OverflowError) as error:
        # What a request can hold and a column cannot: NUL in PostgreSQL, half a surrogate pair, integers over 64 bits.
        message = "The request holds a text or number that cannot be stored (a NUL character, half a surrogate pair, "
        raise InvalidRequestError(message + "a number over 64 bits). Remove it.", code="UNSTORABLE_VALUE") from error
    except DBAPIError as error:
        text = str(error.orig).lower()
        if "disk is full" in text or "no space left" in text or "disk full" in text:
            raise StorageFullError("The disk of the database is full; nothing was changed. Free some space.") from error
        busy = isinstance(error, OperationalError) and ("locked" in text or "busy" in text)
        if busy or error.connection_invalidated or _is_lost(error):
            message = "The database does not answer now; nothing was changed. Try again in a moment."
            raise UnavailableError(message, headers={"Retry-After": "2"}) from error
        raise
    except PoolTimeoutError as error:
        message = "Every database connection is in use. Try again in a moment."
        raise UnavailableError(message, headers={"Retry-After": "2"}) from error


def _is_lost(error: DBAPIError) -> bool:
    """Whether the server is away: PostgreSQL's class 08, 57P01-57P03, or no SQLSTATE at all with an operational error."""
    if not isinstance(error, OperationalError) or isinstance(error.orig, sqlite3.Error):
        return False
    state = getattr(error.orig, "sqlstate", None)
    return state is None or str(state).startswith("08") or state in {"57P01", "57P02", "57P03", "53300"}


def _refuse_shared_file_system(path: Path) -> None:
    """SQLite's WAL needs shared memory and real locks, which network file systems do not have."""
    try:
        with Path("/proc/mounts").open(encoding="utf-8", errors="replace") as mounts:
            entries = [line.split()[:3] for line in mounts]
    except OSError:
        return
    place = str(path.parent.resolve())
    best = max(
        (entry for entry in entries if len(entry) == 3 and _is_under(place, entry[1])),
        key=lambda e: len(e[1]),
        default=None,
    )
    if best is not None and best[2] in {"nfs", "nfs4", "cifs", "smb3", "smbfs"}:
        raise UnavailableError(
            f"{place} is on a network file system ({best[2]}), where SQLite is not safe. "
            "Choose a local data directory, or set OSMOSIS_PLATFORM_DATABASE_URL to a PostgreSQL.",
            code="DATA_DIR_SHARED",
        )


def _is_under(place: str, mount: str) -> bool:
    return place == mount or place.startswith(mount.rstrip("/") + "/")
