"""Which models run on this machine, by their name alone. Finding their files is the trainer's."""

from __future__ import annotations

from pathlib import Path

_PREFIXES = ("osmosis/", "./", "../", "/")


def runs_here(model_path: str) -> bool:
    """Whether a `model_path` is a model that ships with us, an adapter of a training, or a folder."""
    return model_path.startswith(_PREFIXES)


def model_name(given: str, work_tree: Path) -> str:
    """The `model_path` that `--model` means: a folder, which the user names from the current directory, as a path.

    Returns:
        `./...` for a folder in the work tree, an absolute path for another, anything else as it was given.
    """
    if given.startswith("osmosis/") or not Path(given).is_dir():
        return given
    folder = Path(given).resolve()
    return f"./{folder.relative_to(work_tree)}" if folder.is_relative_to(work_tree) else str(folder)
