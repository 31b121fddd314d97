"""Running git without the machine's configuration, bounded in time and output. Every git process starts here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from osmosis_platform.errors import ServiceError, UnavailableError

_TIMEOUT_S = 60.0
_MAX_OUTPUT = 64 << 20
_MESSAGE_LENGTH = 2000
# A few megabytes of a stranger's unfold to gigabytes, and git holds a tree or a commit in memory as a whole.
_MEMORY_KIB = 1 << 20

# Repositories hold what strangers push: no hooks, no helpers, no protocols but those a caller opens, objects are checked.
_CONFIGURATION: tuple[str, ...] = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=all",
    "core.askPass=",
    "core.bigFileThreshold=32m",  # larger contents are streamed; with the next four, git needs far less than its limit
    "core.packedGitLimit=256m",
    "core.packedGitWindowSize=64m",
    "pack.threads=2",
    "pack.windowMemory=64m",
    "core.quotePath=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "receive.fsckObjects=true",
    "transfer.fsckObjects=true",
    "uploadpack.allowFilter=true",
)


class GitCommandError(ServiceError):
    """A git command failed in a way its caller did not expect; what git said is the message."""

    status = 500
    code = "GIT_FAILED"

    def __init__(self, message: str, *, code: str | None = None, returncode: int | None = None) -> None:
        super().__init__(message, code=code)
        self.returncode = returncode


class GitTimeoutError(GitCommandError):
    """A git command took longer than its limit and was ended."""

    code = "GIT_TIMEOUT"


def executable() -> str:
    """Where git is.

    Raises:
        UnavailableError: It is not installed.
    """
    found = shutil.which("git")
    if found is None:
        message = "git is not installed on the platform's machine; an administrator must install git 2.37 or newer."
        raise UnavailableError(message, code="GIT_MISSING")
    return found


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a git process: nothing is inherited but PATH."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        **(extra or {}),
    }


def command(
    arguments: Sequence[str],
    *,
    repository: Path | None = None,
    config: Sequence[str] = (),
    max_file_bytes: int | None = None,
) -> list[str]:
    """The command line of a git process, and of its children, that cannot take all memory.

    Args:
        arguments: Subcommand and arguments; never a secret.
        repository: The bare repository.
        config: Further `key=value` settings.
        max_file_bytes: Largest file that it may write: git's fetch has no such limit of its own.
    """
    limits = f"ulimit -v {_MEMORY_KIB} 2>/dev/null"  # macOS has none
    if max_file_bytes is not None:
        limits += f"; ulimit -f {max(1, max_file_bytes // 512)}"
    line = ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", executable()]
    # A restored data directory may belong to another user than the one who runs the platform; it is ours all the same.
    settings = (*_CONFIGURATION, *((f"safe.directory={repository}",) if repository else ()), *config)
    for setting in settings:
        line += ["-c", setting]
    if repository is not None:
        line += ["--git-dir", str(repository)]
    return [*line, *arguments]


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a git process and its children at once."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def started(
    arguments: Sequence[str],
    *,
    repository: Path | None = None,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
) -> Generator[subprocess.Popen[bytes]]:
    """A git process of its own process group, ended with the block or at its time limit.

    Raises:
        GitTimeoutError: The limit ended it.
    """
    process = subprocess.Popen(
        command(arguments, repository=repository, config=config),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment(env),
        start_new_session=True,
    )
    late = threading.Event()

    def stop() -> None:
        late.set()
        end(process)

    # A thread, because a read of the process's output cannot be given a limit.
    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield process
    except (OSError, EOFError, ValueError) as error:
        if late.is_set():
            raise _late(arguments, timeout_s) from error
        raise
    finally:
        timer.cancel()
        if process.poll() is None:
            end(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
    if late.is_set():
        raise _late(arguments, timeout_s)


def run(
    arguments: Sequence[str],
    *,
    repository: Path | None = None,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    pass_fds: Sequence[int] = (),
    max_file_bytes: int | None = None,
    timeout_s: float = _TIMEOUT_S,
    max_output: int = _MAX_OUTPUT,
    accept: Sequence[int] = (0,),
) -> bytes:
    """Runs git to its end and returns what it wrote.

    Args:
        arguments: Subcommand and arguments; never a secret.
        repository: The bare repository.
        config: Further `key=value` settings.
        env: Further variables.
        input: What it reads.
        pass_fds: Descriptors that it inherits.
        max_file_bytes: Largest file that it may write.
        timeout_s: When it is ended.
        max_output: Most bytes of output.
        accept: Exit codes that are no error.

    Raises:
        GitTimeoutError: It took too long.
        GitCommandError: Another exit code, with the end of what git said; or too much output.
    """
    process = subprocess.Popen(
        command(arguments, repository=repository, config=config, max_file_bytes=max_file_bytes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(env),
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(input, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise _late(arguments, timeout_s) from None
    finally:
        if process.poll() is None:
            end(process)
    if process.returncode not in accept:
        said = errors.decode("utf-8", "replace").strip()[-_MESSAGE_LENGTH:] or f"exit code {process.returncode}"
        raise GitCommandError(f"git {arguments[0]} failed: {said}", returncode=process.returncode)
    if len(output) > max_output:
        raise GitCommandError(f"git {arguments[0]} answered more than {max_output} bytes.", code="GIT_OUTPUT_TOO_LARGE")
    return output


def _late(arguments: Sequence[str], timeout_s: float) -> GitTimeoutError:
    return GitTimeoutError(f"git {arguments[0]} did not finish within {timeout_s:.0f} s and was ended.")
