"""The periodic job that removes workspaces for good once nobody can bring them back any more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.identity.removal import purge
from osmosis_platform.jobs.handler import JobContext


def run(context: JobContext) -> Mapping[str, Any]:
    """Sweeps once; a workspace whose jobs still run comes the next time."""
    services = context.services
    before = services.clock() - timedelta(days=services.settings.deleted_workspace_days)
    with services.database.read() as work:
        due = [each for each in WorkspaceRepository(work).deleted() if each.deleted_at <= before]
    done = 0
    for workspace in due:
        context.check()
        done += purge(services, workspace, context.check)
    return {"purged": done, "waiting": len(due) - done}
