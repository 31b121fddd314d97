"""The report of `osmosis doctor`: what the work tree has and lacks, its origin, the workspace behind it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.errors import OsmosisError, ValidationError

_LINK_TIMEOUT_S = 5.0


def examine(start: str, *, fix: bool) -> OperationResult:
    """Check the work tree around a path, and with `fix` create what it lacks.

    Raises:
        WorkspaceRequiredError: The path is in no work tree.
        ValidationError: Something is missing; `details` has the report.
        OsmosisError: The repair cannot be done.
    """
    from osmosis_ai.workspace.checkup import missing_paths, repair
    from osmosis_ai.workspace.repository import REQUIRED_DIRECTORIES, find_work_tree

    place = Path(start)
    work_tree = find_work_tree(place if place.is_dir() else place.parent)
    missing = missing_paths(work_tree)
    created: list[str] = []
    if fix and missing:
        created = repair(work_tree, missing, os.environ)
        missing = missing_paths(work_tree)
    git = _origin(work_tree)
    linked = _linked_workspace(git, work_tree)
    report = {
        "workspace_directory": str(work_tree),
        "git": git,
        "workspace": linked,
        "required_paths": list(REQUIRED_DIRECTORIES),
        "missing": missing,
        "valid": not missing,
        "fixed": fix,
    }
    if missing:
        listed = "".join(f"\n  - {path}" for path in missing)
        raise ValidationError(
            f"The workspace directory {work_tree} lacks:{listed}\nCreate them with: osmosis doctor --fix",
            details=report,
        )
    steps = [f"Workspace directory: {work_tree}"]
    steps += [f"Linked workspace: {linked['name']}"] if linked and linked.get("name") else []
    steps += [f"Created: {path}" for path in created]
    steps += ["Nothing is missing."]
    steps += [f"⚠ No workspace can be linked: {git['warning']}"] if "warning" in git else []
    return OperationResult(
        operation="doctor",
        resource=report,
        message="The workspace directory is complete.",
        next_steps=steps,
    )


def _linked_workspace(git: dict[str, Any], work_tree: Path) -> dict[str, Any] | None:
    """The workspace behind the origin; None where it cannot be found out, for whatever reason."""
    if git["identity"] is None:
        return None
    from osmosis_ai.client.scope import GitScope
    from osmosis_ai.client.session import open_client
    from osmosis_ai.client.wire import Record

    try:
        scope = GitScope(git["identity"], git["remote_url"], work_tree)
        with open_client(scope, warn=lambda _message, _code: None) as client:
            found = Record(client.get("/verify", timeout=_LINK_TIMEOUT_S), "verify").maybe_record("workspace")
        return {key: found.maybe_text(key) for key in ("id", "name", "role")} if found else None
    except OsmosisError:
        return None


def _origin(work_tree: Path) -> dict[str, Any]:
    """The origin as results carry it; unsuitable ones with the reason, absent ones as nulls."""
    from osmosis_ai.client.scope import takes_any_host
    from osmosis_ai.workspace.repository import has_origin, read_origin

    try:
        origin = read_origin(work_tree, any_host=takes_any_host())
    except OsmosisError as error:
        nothing: dict[str, Any] = {"identity": None, "remote_url": None}
        return {**nothing, "warning": error.message} if has_origin(work_tree) else nothing
    return {"identity": origin.identity, "remote_url": origin.remote_url}
