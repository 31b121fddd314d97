"""The person's desktop: opening a page in the browser and putting text on the clipboard; both quietly do without.

Owns: which tool does it on which system. Nothing here waits or fails.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

_CLIPBOARD_TIMEOUT_S = 2.0
_MOST_OSC_BYTES = 74_994


def open_page(url: str) -> bool:
    """Open a web page in the person's browser; False when there is none to open it in.

    `BROWSER` names another one. Without a graphical session nothing is started, so that no text browser takes the
    terminal.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        return False
    command = _browser()
    if not command:
        return False
    try:
        subprocess.Popen(
            [*command, url], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        return False
    return True


def copy_text(text: str) -> str:
    """Put text on the clipboard, by a local tool or by asking the terminal; say in a few words what came of it.

    Returns:
        Empty when neither is possible. A terminal does not answer, so then it is said that it may have.
    """
    for command in _clipboards():
        try:
            done = subprocess.run(
                command, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_CLIPBOARD_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            return "on the clipboard"
    return "on the clipboard if the terminal allows it" if _ask_terminal(text) else ""


def _browser() -> Sequence[str]:
    if named := os.environ.get("BROWSER"):
        try:
            return shlex.split(named.split(os.pathsep)[0])
        except ValueError:
            return ()
    if sys.platform == "darwin":
        return ("open",)
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("WSL_DISTRO_NAME")):
        return ()
    return next(((tool,) for tool in ("xdg-open", "wslview", "gio-open", "x-www-browser") if shutil.which(tool)), ())


def _clipboards() -> list[list[str]]:
    found: list[list[str]] = []
    if sys.platform == "darwin":
        found.append(["pbcopy"])
    if os.environ.get("WAYLAND_DISPLAY"):
        found.append(["wl-copy"])
    if os.environ.get("DISPLAY"):
        found += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    if os.environ.get("WSL_DISTRO_NAME"):
        found.append(["clip.exe"])
    return [command for command in found if shutil.which(command[0])]


def _ask_terminal(text: str) -> bool:
    """OSC 52: the terminal itself sets its clipboard, also across ssh. Nobody says whether it did."""
    data = base64.b64encode(text.encode())
    stream = sys.stderr
    if os.environ.get("TERM") in (None, "", "dumb", "unknown", "linux") or len(data) > _MOST_OSC_BYTES:
        return False
    if not stream.isatty():
        return False
    stream.write(f"\x1b]52;c;{data.decode()}\x07")
    stream.flush()
    return True
