"""Where outputs of managed runs go, and how a run's name becomes a folder's."""

from __future__ import annotations

import os
import re
from pathlib import Path

from osmosis_ai.errors import ValidationError

_LONGEST = 255
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))}
)


def file_word(text: str) -> str:
    """Text with the characters only that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._") or "run"


def refuse_file(folder: str | None) -> None:
    """Check, before anything is asked of the platform, that `-o` can name a folder.

    Raises:
        ValidationError: It, or what should hold it, is a file.
    """
    if folder is None:
        return
    path = Path.cwd() / folder
    there = next(place for place in (path, *path.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise ValidationError(f"{there} is a file; -o names the folder that the outputs go into.")


def run_folder(kind: str, name: str | None, run_id: str, base: Path) -> Path:
    """The folder of a run's outputs: `.osmosis/evals/<name>`, with the id where the name alone is not safe.

    Args:
        kind: `evals` or `benchmarks`.
        name: The run's name.
        run_id: Its id.
        base: The work tree, or the current directory.
    """
    given = name or ""
    word = file_word(given)
    unsafe = word != given or word != word.lower() or word.split(".")[0].lower() in _RESERVED
    if unsafe:
        suffix = f"--{file_word(run_id)}"
        word = f"{word[: _LONGEST - len(suffix)]}{suffix}"
    return base / ".osmosis" / kind / word[:_LONGEST]
