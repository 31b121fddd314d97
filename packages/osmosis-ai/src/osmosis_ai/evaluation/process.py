"""Child processes that we own: their identity on disk, their end, and the reaping of what an earlier run left behind.

Leaves what the children do to `pool` (rollout servers) and `tunnel` (cloudflared). A signal is sent only to a process
whose number cannot have been taken over: a child of ours that is not yet reaped, or a recorded one whose start token
and group still match.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from osmosis_ai.redaction import Redactor

POLL_S = 0.05
MAX_LINE = 16 * 1024
"""Longer output lines are cut into pieces of this many characters."""


@dataclass(frozen=True, slots=True)
class Owned:
    """What server.json and tunnel.json hold: enough to end the process later, never another one of the same number.

    Attributes:
        start_token: Kernel start tick of the process on Linux, `ps lstart` elsewhere.
        instance_id: The rollout server's instance id, or `cloudflared`.
    """

    pid: int
    pgid: int
    start_token: str
    instance_id: str
    port: int
    created_at: str


def start_token(pid: int) -> str | None:
    """Say when process `pid` started in the kernel's words, or None when there is no such process."""
    if sys.platform == "linux":
        fields = _stat_fields(pid)
        return fields[19] if fields else None
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def _stat_fields(pid: int | str) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on: the second may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _booted_at() -> float | None:
    """Unix time of the last boot, or None where the kernel does not say."""
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def own(pid: int, *, instance_id: str, port: int) -> Owned:
    """Describe a child of ours that leads its own group and is not yet reaped."""
    return Owned(pid, pid, start_token(pid) or "", instance_id, port, datetime.now(UTC).isoformat())


def write_owned(path: Path, record: Owned) -> None:
    """Write an ownership record, readable by this user only; an existing file or link of that name is replaced."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(asdict(record), file, indent=2)
        file.write("\n")
    temporary.replace(path)


def read_owned(path: Path) -> Owned | None:
    """Read an ownership record without following links; None when it is missing or not one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "r", errors="replace") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        text = file.read(64 * 1024)
    try:
        data = json.loads(text)
        return Owned(
            int(data["pid"]),
            int(data["pgid"]),
            str(data["start_token"]),
            str(data.get("instance_id", "")),
            int(data.get("port") or 0),
            str(data.get("created_at", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def matches(record: Owned) -> bool:
    """Whether the recorded process still runs: same number, start token and group, started since the last boot."""
    if record.pid <= 1 or record.pgid != record.pid or not record.start_token:
        return False
    if start_token(record.pid) != record.start_token:
        return False
    with contextlib.suppress(ValueError):
        booted = _booted_at()
        if booted is not None and datetime.fromisoformat(record.created_at).timestamp() < booted - 2:
            return False
    try:
        return os.getpgid(record.pid) == record.pgid
    except OSError:
        return False


def reap(path: Path, *, grace_s: float = 5.0) -> bool:
    """End the process that an earlier invocation recorded at `path` and remove the record.

    Blocks for at most `grace_s` and a second. A record that matches no live process is only removed.

    Returns:
        Whether a process was ended.
    """
    record = read_owned(path)
    ended = False
    if record is not None and matches(record):
        ended = True
        _signal_group(record.pgid, signal.SIGTERM)
        # Its parent is dead, so init reaps it: its number may be free at any time. Look again before each signal.
        if not _wait(lambda: not (matches(record) and group_alive(record.pgid)), grace_s) and matches(record):
            _signal_group(record.pgid, signal.SIGKILL)
            _wait(lambda: not group_alive(record.pgid), 1.0)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return ended


def group_alive(pgid: int) -> bool:
    """Whether any process of the group still runs; zombies do not count."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if sys.platform != "linux":
        return True
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of entries, names are enough
        if name.isdigit() and (fields := _stat_fields(name)) and fields[2] == str(pgid) and fields[0] not in "ZX":
            return True
    return False


def _wait(done: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _signal_group(pgid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


class Child:
    """A child process that leads a session of its own, with its merged output read line by line.

    It is reaped only by `stop`, after its whole group has ended: until then its number, and with it the group's, cannot
    belong to anything else.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], guard: int, on_line: Callable[[str], None], redactor: Redactor
    ) -> None:
        self._popen = popen
        self._guard = guard
        self._on_line = on_line
        self._said = redactor.stream()
        self._partial = ""
        self._exited = asyncio.Event()
        self._drained = asyncio.Event()
        self._status: int | None = None
        self._stopped = False
        self._pidfd = -1
        self._poller: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)
        self._loop.add_reader(popen.stdout.fileno(), self._read)
        with contextlib.suppress(AttributeError, OSError):  # not on macOS, nor in every container
            self._pidfd = os.pidfd_open(popen.pid)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._on_exit)
        else:
            self._poller = asyncio.create_task(self._poll_exit())

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        on_line: Callable[[str], None],
        redactor: Redactor | None = None,
        guard_variable: str | None = None,
    ) -> Child:
        """Start `command` in a new session, stdin closed, stdout and stderr merged into `on_line`.

        Args:
            command: Program and arguments.
            env: The whole environment.
            cwd: Working directory.
            on_line: Called in the event loop with each line, without its end and without secrets.
            redactor: Knows the secrets; it sees the output before it is cut into lines, so none is in two of them.
            guard_variable: Name of an environment variable that tells the child a file descriptor which reads
                end-of-file as soon as we are gone, however we went.

        Raises:
            OSError: The program cannot be started.
        """
        read_end, write_end = os.pipe()  # neither is inherited by other children
        try:
            full_env = dict(env)
            if guard_variable:
                full_env[guard_variable] = str(read_end)
            popen = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=full_env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(read_end,) if guard_variable else (),
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return cls(popen, write_end, on_line, redactor or Redactor())

    @property
    def pid(self) -> int:
        """The child's number, its group's number too."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the child itself (not its children) still runs."""
        return not self._exited.is_set()

    @property
    def status(self) -> int | None:
        """Exit code, minus the signal's number when a signal ended it, or None while it runs."""
        return self._status

    def describe_exit(self) -> str:
        """Say how the child ended: `exited with code 7`, `was killed by SIGKILL`."""
        if self._status is None:
            return "is still running"
        if self._status >= 0:
            return f"exited with code {self._status}"
        try:
            return f"was killed by {signal.Signals(-self._status).name}"
        except ValueError:
            return f"was killed by signal {-self._status}"

    async def wait(self) -> int:
        """Wait until the child ended and its output was read (0.5 s at most: its children may hold the pipe)."""
        await self._exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._drained.wait()
        assert self._status is not None
        return self._status

    def signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL to the whole group at once, without waiting."""
        if self._popen.returncode is None:
            _signal_group(self.pid, signal.SIGKILL)

    async def stop(self, grace_s: Callable[[], float]) -> bool:
        """End the whole group: SIGTERM, after the grace SIGKILL, then reap the child.

        Args:
            grace_s: Says the seconds between the two signals; asked again while waiting, so that it can be shortened.

        Returns:
            Whether the end of the group is confirmed.
        """
        if self._stopped:
            return True
        if self.alive or group_alive(self.pid):
            _signal_group(self.pid, signal.SIGTERM)
            if not await self._group_ends(grace_s):
                _signal_group(self.pid, signal.SIGKILL)
                await self._group_ends(lambda: 2.0)
        confirmed = not self.alive
        if confirmed:
            await self.wait()
            self._popen.wait()
            self._stopped = True
        self._close()
        return confirmed

    async def _group_ends(self, limit_s: Callable[[], float]) -> bool:
        started = time.monotonic()
        while self.alive or group_alive(self.pid):
            if time.monotonic() - started >= limit_s():
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _look(self) -> int | None:
        """The exit status, if the child has ended; where the system can, without reaping it."""
        if not hasattr(os, "waitid"):
            return self._popen.poll()
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return 0  # SIGCHLD is ignored here (inherited, or set by a library), so the kernel keeps no status
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _on_exit(self) -> None:
        self._status = self._look()
        if self._status is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._exited.set()

    async def _poll_exit(self) -> None:
        while (status := self._look()) is None:  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(POLL_S)
        self._status = status
        self._exited.set()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        try:
            data = os.read(self._popen.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._popen.stdout.fileno())
            self._emit(self._said.finish())
            if self._partial:
                self._on_line(self._partial.rstrip("\r"))
                self._partial = ""
            self._drained.set()
            return
        self._emit(self._said.feed_bytes(data))

    def _emit(self, text: str) -> None:
        *lines, rest = (self._partial + text).split("\n")
        for line in lines:
            self._on_line(line.rstrip("\r"))
        while len(rest) > MAX_LINE:
            self._on_line(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        self._partial = rest

    def _close(self) -> None:
        assert self._popen.stdout is not None
        if not self._popen.stdout.closed:
            self._loop.remove_reader(self._popen.stdout.fileno())
            self._popen.stdout.close()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._guard >= 0:
            os.close(self._guard)
            self._guard = -1
        if self._poller is not None:
            self._poller.cancel()
