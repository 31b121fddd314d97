"""The console script. Answers a lone `--version` itself; everything else is the program's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from osmosis_ai.consts import PACKAGE_VERSION, package_name


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: The arguments without the program's name; None takes them from the process.

    Returns:
        The exit status: 0, 1 (run-time error, partial result), 2 (usage) or 130 (interrupted).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["-V"], ["--version"]) and sys.stdout is not None:
        try:
            sys.stdout.write(f"{package_name} {PACKAGE_VERSION}\n")
            sys.stdout.flush()
            return 0
        except OSError as error:  # nobody reads it, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
            if not isinstance(error, BrokenPipeError):
                sys.stderr.write(f"Error: {error.strerror}\n")
            return 1
    from osmosis_ai.cli.program import run

    status = run(arguments)
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written: a late Ctrl-C changes nothing any more
    return status
