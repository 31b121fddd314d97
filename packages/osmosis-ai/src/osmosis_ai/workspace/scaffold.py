"""A new rollout's five files, made from the workspace template's `scaffold/` folder.

Owns names, conflicts and safe writing inside the work tree. What the files say is in `workspace-template/scaffold`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import ConflictError, ValidationError
from osmosis_ai.workspace.placement import present, refuse_links, refuse_odd_targets, write_file

TEMPLATE_ROOT = Path(__file__).with_name("template")
"""The workspace template as this installation has it."""

_PLACEHOLDER = "__ROLLOUT__"
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_RESERVED_NAMES = frozenset({"default"})


@dataclass(frozen=True)
class ScaffoldResult:
    """What `scaffold_rollout` wrote.

    Attributes:
        name: The rollout's name.
        rollout_dir: Absolute path of `rollouts/<name>`.
        files: The files written, as POSIX paths relative to the work tree, in reading order.
    """

    name: str
    rollout_dir: Path
    files: tuple[str, ...]


def check_rollout_name(name: str) -> str:
    """The name itself.

    Raises:
        ValidationError: It is not lower-case letters, digits and hyphens after a first letter, or it is reserved.
    """
    if not _NAME.fullmatch(name):
        raise ValidationError(
            f"'{name}' cannot name a rollout: start with a lower-case letter, then lower-case letters, digits and "
            "hyphens, for example my-agent"
        )
    if name in _RESERVED_NAMES:
        raise ValidationError(f"'{name}' is a reserved name: choose another one for the rollout")
    return name


def scaffold_rollout(work_tree: Path, name: str, *, force: bool = False) -> ScaffoldResult:
    """Write `rollouts/<name>/` and both configurations of a new rollout.

    Args:
        work_tree: The repository's root.
        name: The rollout's name.
        force: Replace what is there: the rollout's folder is removed as a whole, the configurations are overwritten.

    Raises:
        ValidationError: The name is not allowed, or a file cannot be written (the disk is full, the folder read-only).
        ConflictError: Something is in the way (all of it is listed), or a path leads through a symbolic link or over
            something that is no plain file or folder. Nothing has been written then.
    """
    check_rollout_name(name)
    contents = dict(_rendered(name))
    rollout = f"rollouts/{name}"
    configs = [path for path in contents if not path.startswith(f"{rollout}/")]
    for path in (rollout, *configs):
        refuse_links(work_tree, path)
    found = [path for path in (rollout, *configs) if present(work_tree / path)]
    if found and not force:
        listed = "".join(f"\n  - {path}{'/' if path == rollout else ''}" for path in found)
        raise ConflictError(f"these paths exist already:{listed}\nchoose another name, or replace them with --force")
    parents = {Path(path).parent.as_posix() for path in (rollout, *configs)}
    refuse_odd_targets(work_tree, (*sorted(parents), rollout), configs)
    try:
        if present(work_tree / rollout):
            shutil.rmtree(work_tree / rollout)
        for path, text in contents.items():
            target = work_tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, text.encode())
    except OSError as error:
        raise ValidationError(
            f"cannot write {error.filename or work_tree}: {error.strerror or error}; make it writable and use --force"
        ) from error
    return ScaffoldResult(name=name, rollout_dir=work_tree / rollout, files=tuple(contents))


def _rendered(name: str) -> Iterator[tuple[str, str]]:
    root = TEMPLATE_ROOT / "scaffold"
    sources = sorted(
        path for folder in ("rollouts", "configs") for path in (root / folder).rglob("*") if path.is_file()
    )
    # The rollout's own files first, main.py at the top.
    sources.sort(key=lambda path: (path.relative_to(root).parts[0] != "rollouts", path.name != "main.py"))
    for source in sources:
        relative = source.relative_to(root).as_posix().replace(_PLACEHOLDER, name)
        yield relative, source.read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
