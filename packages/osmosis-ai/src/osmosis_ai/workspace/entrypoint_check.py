"""Whether a rollout's entrypoint can be imported, found out in a child process before a run is submitted.

Owns: when the check is skipped, its time limit, the words of its findings. The import itself is `entrypoint_import`'s:
a rollout that ends its interpreter, floods its output or never returns does none of that to the command line.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

TIME_LIMIT_S = 60.0
_KEPT_AWAY = ("OSMOSIS_TOKEN",)  # a rollout has no business with the login


def check_entrypoint(
    work_tree: Path, rollout: str, entrypoint: str, *, env: Mapping[str, str], time_limit_s: float = TIME_LIMIT_S
) -> str | None:
    """Import an entrypoint in a process of its own.

    Args:
        work_tree: Root of the Git work tree.
        rollout: Folder name under `rollouts/`.
        entrypoint: File to import in it.
        env: Literal variables of the config, set for the import.
        time_limit_s: The child is killed after this time.

    Returns:
        Why nothing is known about it, for a warning; None when it was imported.

    Raises:
        ValidationError: The file does not exist, or importing it fails for a reason of its own.
    """
    folder = work_tree / "rollouts" / rollout
    shown = f"rollouts/{rollout}/{entrypoint}"
    if not (folder / entrypoint).is_file():
        raise ValidationError(f"There is no file {shown}; correct experiment.entrypoint, or make the file.")
    if lacking := missing_dependencies(folder):
        listed = "\n".join(f"    - {requirement}: {why}" for requirement, why in lacking.items())
        return (
            f"{shown} was not tried: this Python lacks dependencies that rollouts/{rollout}/pyproject.toml declares:\n"
            f"{listed}\n  To have it tried: {_install_command(list(lacking))}"
        )
    outcome = _import_in_child(folder, entrypoint, env, time_limit_s)
    match outcome:
        case None:
            return (
                f"{shown} was not tried to the end: importing it took more than {time_limit_s:g} s. An import should"
                ' only define things; start servers under `if __name__ == "__main__":`.'
            )
        case int():
            how = f"exit status {outcome}" if outcome >= 0 else f"signal {-outcome}"
            raise ValidationError(
                f"Importing {shown} ends the interpreter ({how}). Start the rollout under"
                ' `if __name__ == "__main__":`, so that the module can be imported.'
            )
        case {"missing": str(module)}:
            return (
                f"{shown} was not tried to the end: this Python has no module {module!r}; install it to have it tried."
            )
        case {"type": str(kind), "message": str(message)}:
            named = kind not in ("ValueError", "TypeError", "ImportError") or not message
            reason = ": ".join(filter(None, (kind if named else "", message)))
            raise ValidationError(f"{shown} cannot be imported:\n  {reason}")
    return None


def _import_in_child(
    folder: Path, entrypoint: str, env: Mapping[str, str], time_limit_s: float
) -> Mapping[str, Any] | int | None:
    """What the child wrote; its exit status when it wrote nothing; None when it was killed at the time limit."""
    program = Path(__file__).with_name("entrypoint_import.py")
    environ = {name: value for name, value in os.environ.items() if name not in _KEPT_AWAY}
    with tempfile.TemporaryDirectory(prefix="osmosis-preflight-") as scratch:
        answer = Path(scratch) / "answer.json"
        child = subprocess.Popen(
            [sys.executable, "-P", str(program), str(folder), entrypoint, str(answer)],
            cwd=folder,
            env={**environ, "PYTHONDONTWRITEBYTECODE": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that what it starts ends with it
        )
        try:
            status = child.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end_group(child)
        if answer.exists():
            return json.loads(answer.read_text(encoding="utf-8"))
        return status


def _end_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


def missing_dependencies(folder: Path) -> dict[str, str]:
    """The requirements of a rollout's pyproject.toml that this interpreter does not meet, each with what is wrong.

    An unreadable or odd pyproject.toml declares nothing here; building the environment tells what is wrong with it.
    """
    from importlib import metadata

    from packaging.requirements import InvalidRequirement, Requirement

    lacking: dict[str, str] = {}
    for line in _declared(folder):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            found = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            lacking[line] = "not installed"
            continue
        if not requirement.specifier.contains(found.version, prereleases=True):
            lacking[line] = f"version {found.version} is installed"
        elif extra := _missing_of_extras(found.requires or [], requirement.extras):
            lacking[line] = f"its dependency {extra} is not installed"
    return lacking


def _declared(folder: Path) -> list[str]:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return []
    declared = project.get("dependencies", []) if isinstance(project, dict) else []
    return [line for line in declared if isinstance(line, str)] if isinstance(declared, list) else []


def _missing_of_extras(lines: list[str], extras: set[str]) -> str | None:
    """The first direct dependency of the wanted extras that is not installed."""
    from importlib import metadata

    from packaging.requirements import Requirement

    for line in lines if extras else ():
        requirement = Requirement(line)
        if requirement.marker is None or not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            return requirement.name
    return None


def _install_command(requirements: list[str]) -> str:
    """How to install into the interpreter that runs this program, by the way it was installed itself."""
    prefix = Path(sys.prefix)
    if prefix.parts[-3:-1] == ("uv", "tools"):
        return shlex.join(["uv", "tool", "install", prefix.name, *(w for r in requirements for w in ("--with", r))])
    if prefix.parts[-3:-1] == ("pipx", "venvs"):
        return shlex.join(["pipx", "inject", prefix.name, *requirements])
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])
