"""Finds the run a user means: a name under `.osmosis/evals` or `.osmosis/trainings`, or a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from osmosis_ai.errors import NotFoundError, WorkspaceRequiredError
from osmosis_ai.workspace.repository import find_work_tree

if TYPE_CHECKING:
    import click

type RunKind = Literal["evals", "trainings"]
"""Which runs: the folder under `.osmosis` they lie in."""

_LOCKS = ".locks"
_NEVER: dict[RunKind, str] = {
    "evals": "no evaluation has been run in this workspace yet",
    "trainings": "nothing has been trained in this workspace yet",
}


def find_run(given: str, kind: RunKind = "evals") -> Path:
    """The directory of a run.

    A bare word is a name under the workspace's `.osmosis/<kind>`, unless a directory of that name is here; anything
    with a separator is a path.

    Raises:
        NotFoundError: There is none; the nearest names are listed.
    """
    path = Path(given)
    if path.is_dir():
        return path.resolve()
    if given in ("", ".", "..") or os.sep in given:
        raise NotFoundError(f"There is no run directory {given}.")
    try:
        root = find_work_tree() / ".osmosis" / kind
    except WorkspaceRequiredError:
        raise NotFoundError(
            f"There is no directory {given} here, and no workspace around it to look for a run of that name."
        ) from None
    if (root / given).is_dir():
        return root / given
    names = _run_names(root)
    if not names:
        raise NotFoundError(f"There is no run {given}: {_NEVER[kind]}.")
    raise NotFoundError(f"There is no run {given} under .osmosis/{kind}. {_nearest(given, names)}")


def complete_run(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of this workspace's evaluations for shell completion."""
    return _completions(incomplete, "evals")


def complete_training(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of this workspace's trainings for shell completion."""
    return _completions(incomplete, "trainings")


def _completions(incomplete: str, kind: RunKind) -> list[str]:
    try:
        names = _run_names(find_work_tree() / ".osmosis" / kind)
    except WorkspaceRequiredError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _run_names(root: Path) -> list[str]:
    """Names of runs, the newest first."""
    try:
        found = [path for path in root.iterdir() if path.is_dir() and path.name != _LOCKS]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    return [path.name for path in found]


def _nearest(given: str, names: list[str]) -> str:
    from difflib import get_close_matches

    if near := get_close_matches(given, names, n=3, cutoff=0.6):
        return f"Did you mean {' or '.join(near)}?"
    return f"The latest are: {', '.join(names[:5])}."
