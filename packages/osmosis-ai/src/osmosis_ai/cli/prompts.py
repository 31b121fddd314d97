"""Questions on the terminal: yes or no, a line of text, a value that is not shown, one of several.

Owns: the keyboard: reading keys, so that Escape and Ctrl-C leave a prompt. Loaded only on a terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Generator, Sequence
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


def ask_text(label: str, *, default: str = "") -> str:
    """Ask for a line of text; Enter alone takes the default, and without one the question is asked again.

    Raises:
        Cancelled: The user left the prompt.
    """
    shown = f"{clean(label)} [{clean(default)}]: " if default else f"{clean(label)}: "
    while True:
        if value := _read_line(shown, hidden=False).strip() or default:
            return value
        _screen().write("A value is needed.\n")


def pause(label: str) -> None:
    """Wait for Enter.

    Raises:
        Cancelled: The user left the prompt.
    """
    _read_line(f"{clean(label)} ", hidden=True)


def choose(question: str, options: Sequence[str], *, default: int = 0) -> int:
    """Let one of several be chosen, with the arrow keys or by its number; return its position.

    Raises:
        Cancelled: The user left the prompt.
    """
    screen = _screen()
    redraw = os.environ.get("TERM") not in (None, "", "dumb", "unknown")
    width = max(20, shutil.get_terminal_size().columns - 1)
    current = default

    def draw() -> None:
        for at, option in enumerate(options):
            line = f"{'>' if at == current and redraw else ' '} {at + 1}. {clean(option)}"[:width]
            screen.write(f"\x1b[1m{line}\x1b[0m\n" if at == current and redraw else f"{line}\n")
        screen.flush()

    if not redraw:
        screen.write(f"{clean(question)}\n")
        draw()
        while True:
            answer = _read_line(f"Number [{default + 1}]: ", hidden=False).strip() or str(default + 1)
            if answer.isdecimal() and 1 <= int(answer) <= len(options):
                return int(answer) - 1
            screen.write(f"Please answer with a number from 1 to {len(options)}.\n")
    with _keys() as descriptor:
        screen.write(f"{clean(question)}\n")  # only now, so that no key pressed in answer is lost
        draw()
        while True:
            match _key(descriptor):
                case b"\r" | b"\n":
                    return current
                case b"\x1b[A" | b"\x1bOA" | b"k":
                    current = (current - 1) % len(options)
                case b"\x1b[B" | b"\x1bOB" | b"j":
                    current = (current + 1) % len(options)
                case digit if digit.isdigit() and 1 <= int(digit) <= len(options):
                    current = int(digit) - 1
                    screen.write(f"\x1b[{len(options)}A\x1b[J")
                    draw()
                    return current
                case b"" | b"\x03" | b"\x04" | b"\x1b":
                    raise Cancelled
                case _:
                    continue
            screen.write(f"\x1b[{len(options)}A\x1b[J")
            draw()


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
    typed = b""
    try:
        with _keys() as descriptor:
            _screen().write(prompt)  # only now, so that no key typed in answer is echoed or ends the program
            _screen().flush()
            while True:
                key = os.read(descriptor, 1)
                if key in (b"\r", b"\n"):
                    return typed.decode("utf-8", "replace")
                if key in (b"", b"\x03") or (key == b"\x04" and not typed):
                    raise Cancelled
                if key == b"\x1b":
                    if not _rest_of_sequence(descriptor):
                        raise Cancelled
                elif key in (b"\x7f", b"\x08"):
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
        _screen().write("\n")
        _screen().flush()


@contextlib.contextmanager
def _keys() -> Generator[int]:
    """The terminal's descriptor, giving key by key, Ctrl-C among them."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        mode = termios.tcgetattr(descriptor)
        mode[3] &= ~termios.ISIG  # Ctrl-C comes as a key
        termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(descriptor: int) -> bytes:
    """One key: a character, or the whole sequence of an arrow key."""
    key = os.read(descriptor, 1)
    return key + _rest_of_sequence(descriptor) if key == b"\x1b" else key


def _screen() -> TextIO:
    """Where the person looks: stderr, or stdout when only that is a terminal."""
    return sys.stdout if sys.stdout.isatty() and not sys.stderr.isatty() else sys.stderr


def _rest_of_sequence(descriptor: int) -> bytes:
    """What follows an Escape at once: the rest of a key's sequence; nothing when Escape was pressed alone."""
    rest = b""
    while select.select([descriptor], [], [], _ESCAPE_WAIT_S)[0]:
        rest += os.read(descriptor, 1)
        if rest not in (b"[", b"O") and b"@" <= rest[-1:] <= b"~":
            break
    return rest


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
