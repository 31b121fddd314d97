"""Run as a program of its own: imports one entrypoint and writes what happened to a file. `entrypoint_check` reads it.

Owns: how an entrypoint is imported without being started. Uses the standard library only, so that nothing of ours is
loaded before the rollout's own imports.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

_PACKAGE = "_osmosis_entrypoint"


def import_entrypoint(folder: Path, entrypoint: str) -> None:
    """Import `folder/entrypoint` as a module of a made-up package, its parent packages first; it is not `__main__`."""
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[_PACKAGE] = package
    sys.path[:0] = dict.fromkeys([str((folder / entrypoint).parent), str(folder)])
    import_module(".".join([_PACKAGE, *Path(entrypoint).with_suffix("").parts]))


def report(error: BaseException) -> dict[str, str | None]:
    """What is told of a failed import."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return {"type": type(error).__name__, "message": str(error), "missing": missing}


def main(folder: str, entrypoint: str, answer: str) -> None:
    """Import, then write `{}` or the failure to the file `answer`."""
    outcome: dict[str, str | None] = {}
    try:
        import_entrypoint(Path(folder), entrypoint)
    except Exception as error:
        outcome = report(error)
    Path(answer).write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
