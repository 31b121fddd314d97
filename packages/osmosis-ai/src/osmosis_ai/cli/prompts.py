"""Questions on the terminal: yes or no, and a value that is not shown.

Owns: the keyboard: reading keys, so that Escape and Ctrl-C leave a prompt. Loaded only on a terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Generator
from typing import TextIO

from osmosis_ai.cli.output import Cancelled, clean

_ESCAPE_WAIT_S = 0.05


def confirm(question: str, *, default: bool) -> bool:
    """Ask until the answer is yes or no; Enter takes the default, Escape and Ctrl-C cancel.

    Raises:
        Cancelled: The user left the prompt.
    """
    choices = "[Y/n]" if default else "[y/N]"
    while True:
        answer = _read_line(f"{clean(question)} {choices} ", hidden=False).strip().lower()
        if answer == "":
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        _screen().write("Please answer y or n.\n")


def ask_hidden(label: str) -> str:
    """Ask for a value without showing it; an empty one is asked for again.

    Raises:
        Cancelled: The user left the prompt.
    """
    while True:
        if value := _read_line(f"{clean(label)} (hidden, Esc cancels): ", hidden=True).strip():
            return value
        _screen().write("A value is needed.\n")


@contextlib.contextmanager
def keys_unseen() -> Generator[None]:
    """While something is drawn in place: keys that are pressed do not show, so they do not tear it.

    Does nothing without a terminal or in the background, where a change of the terminal would stop the process.
    """
    before = None
    with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
        descriptor = sys.stdin.fileno()
        if os.tcgetpgrp(descriptor) == os.getpgrp():
            before = termios.tcgetattr(descriptor)
    if before is None:
        yield
        return
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        stopping = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it may be in the background by now
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTTOU, stopping)


def _read_line(prompt: str, *, hidden: bool) -> str:
    """One line from the terminal, read key by key."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    typed = b""
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        mode = termios.tcgetattr(descriptor)
        mode[3] &= ~termios.ISIG  # Ctrl-C comes as a key
        termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
        _screen().write(prompt)  # only now, so that no key typed in answer is echoed or ends the program
        _screen().flush()
        while True:
            key = os.read(descriptor, 1)
            if key in (b"\r", b"\n"):
                return typed.decode("utf-8", "replace")
            if key in (b"", b"\x03") or (key == b"\x04" and not typed) or (key == b"\x1b" and not _swallow(descriptor)):
                raise Cancelled
            if key in (b"\x7f", b"\x08"):
                shown = typed.decode("utf-8", "ignore")
                typed = shown[:-1].encode()
                _echo("\b \b" if shown else "", hidden=hidden)
            elif key == b"\x15":
                _echo("\b \b" * len(typed.decode("utf-8", "ignore")), hidden=hidden)
                typed = b""
            elif key >= b" ":
                typed += key
                if (key < b"\x80" or _complete(typed)) and not hidden:
                    _echo(_last_character(typed), hidden=False)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        _screen().write("\n")
        _screen().flush()


def _screen() -> TextIO:
    """Where the person looks: stderr, or stdout when only that is a terminal."""
    return sys.stdout if sys.stdout.isatty() and not sys.stderr.isatty() else sys.stderr


def _swallow(descriptor: int) -> bool:
    """Read the rest of an arrow key's sequence; False when Escape was pressed alone."""
    found = False
    while select.select([descriptor], [], [], _ESCAPE_WAIT_S)[0]:
        found = True
        if b"@" <= os.read(descriptor, 1) <= b"~":
            following = select.select([descriptor], [], [], 0)[0]
            if not following:
                break
    return found


def _complete(typed: bytes) -> bool:
    try:
        typed.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _last_character(typed: bytes) -> str:
    return typed.decode("utf-8", "ignore")[-1:]


def _echo(text: str, *, hidden: bool) -> None:
    if not hidden:
        _screen().write(text)
        _screen().flush()
