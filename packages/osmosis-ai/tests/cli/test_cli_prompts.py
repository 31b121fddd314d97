import contextlib
import os
import pty
import signal
import sys
import threading

import pytest
from osmosis_ai.cli import prompts
from osmosis_ai.cli.output import Cancelled


class Keyboard:
    """A pseudo-terminal in place of standard input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, slave = pty.openpty()
        self.stdin = os.fdopen(slave, "r")
        monkeypatch.setattr(sys, "stdin", self.stdin)

    def type(self, *bursts: str) -> None:
        """Press keys once the prompt reads, each burst a moment after the one before."""

        def press() -> None:
            for burst in bursts:
                threading.Event().wait(0.15)
                os.write(self.master, burst.encode())

        threading.Thread(target=press, daemon=True).start()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch):
    keys = Keyboard(monkeypatch)
    yield keys
    with contextlib.suppress(OSError):
        keys.stdin.close()
        os.close(keys.master)


@pytest.mark.parametrize(
    ("keys", "default", "answer"),
    [
        (["y\n"], False, True),
        (["YES\n"], False, True),
        (["n\n"], True, False),
        (["\n"], True, True),
        (["\n"], False, False),
        (["maybe\n", "y\n"], False, True),
        (["n\x7fy\n"], False, True),
        (["nnn\x15y\n"], False, True),
        (["\x1b[A", "y\n"], False, True),
    ],
)
def test_a_question_takes_yes_no_and_enter(keyboard: Keyboard, keys: list[str], default: bool, answer: bool):
    keyboard.type(*keys)
    assert prompts.confirm("Go on?", default=default) is answer


@pytest.mark.parametrize("key", ["\x1b", "\x03", "\x04"])
def test_escape_and_ctrl_c_leave_a_prompt(keyboard: Keyboard, key: str):
    keyboard.type(key)
    with pytest.raises(Cancelled):
        prompts.confirm("Go on?", default=True)
    keyboard.type("abc", key if key != "\x04" else "\x03")
    with pytest.raises(Cancelled):
        prompts.ask_hidden("KEY")


def test_a_hidden_value_is_never_shown(keyboard: Keyboard, capfd: pytest.CaptureFixture[str]):
    keyboard.type("\n", "pässword\n")
    assert prompts.ask_hidden("OPENAI_API_KEY") == "pässword"
    shown = "".join(capfd.readouterr())
    assert "OPENAI_API_KEY" in shown
    assert "word" not in shown
    os.set_blocking(keyboard.master, False)
    with contextlib.suppress(BlockingIOError):
        assert b"word" not in os.read(keyboard.master, 1000)


def test_a_pasted_value_arrives_whole(keyboard: Keyboard):
    value = "sk-" + "x" * 500
    keyboard.type(value + "\n")
    assert prompts.ask_hidden("KEY") == value


def test_the_terminal_is_put_back(keyboard: Keyboard):
    import termios

    before, handler = termios.tcgetattr(keyboard.stdin.fileno()), signal.getsignal(signal.SIGINT)
    keyboard.type("\x1b")
    with pytest.raises(Cancelled):
        prompts.confirm("Go on?", default=True)
    assert termios.tcgetattr(keyboard.stdin.fileno()) == before
    assert signal.getsignal(signal.SIGINT) is handler
