"""Workspaces being taken away, brought back within the time that an administrator sets, and removed for good."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from osmosis_platform import crashpoints
from osmosis_platform.blobs.store import Upload
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.purges import PurgeRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.workspaces import DeletedWorkspace, Workspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.job import OPEN
from osmosis_platform.errors import MissingError
from osmosis_platform.identity.names import check_workspace_name
from osmosis_platform.jobs.queue import request_cancel

if TYPE_CHECKING:
    from osmosis_platform.services import Services

_AT_ONCE = 1000


def take_away(work: UnitOfWork, actor: Actor | None, workspace: Workspace) -> None:
    """Hides a workspace from everybody and ends the tokens restricted to it; who may say so is the caller's question."""
    WorkspaceRepository(work).delete(workspace.id)
    tokens = TokenRepository(work).revoke_restricted(workspace.id)
    facts = {"name": workspace.name, "tokens": tokens}
    AuditRepository(work).record(workspace.id, actor, "workspace.delete", "workspace", workspace.id, facts)


def deleted_workspace(work: UnitOfWork, name_or_id: str) -> DeletedWorkspace:
    """A deleted workspace that is not purged; of several of a name, the one deleted last.

    Raises:
        MissingError: There is none.
    """
    for each in WorkspaceRepository(work).deleted():
        if name_or_id == each.id or name_or_id.lower() == each.name.lower():
            return each
    raise MissingError(f"There is no deleted workspace {name_or_id}. See `osmosis-platform workspace list --deleted`.")


def bring_back(work: UnitOfWork, workspace: DeletedWorkspace, name: str | None = None) -> str:
    """Undoes a deletion: members, repository, datasets and secrets are as they were; revoked tokens stay revoked.

    Returns:
        Its name.

    Raises:
        InvalidRequestError: The name does not fit.
        TakenError: The name is another workspace's by now, give one; or its removal for good has begun.
    """
    name = check_workspace_name(name or workspace.name)
    WorkspaceRepository(work).recover(workspace.id, name)
    AuditRepository(work).record(workspace.id, None, "workspace.recover", "workspace", workspace.id, {"name": name})
    return name


def purge(services: Services, workspace: DeletedWorkspace, check: Callable[[], None] = lambda: None) -> bool:
    """Removes all that a deleted workspace held: objects, repositories, then its rows with the keys of its secrets.

    Interrupted at any moment, the next call goes on. Its row, its audit log and its usage records stay.

    Args:
        services: Of this process.
        workspace: Which.
        check: Called between steps; may raise to stop.

    Returns:
        Whether it is done: jobs that still run are asked to stop first, and it is another call's turn then. Nothing is
        to be done for one that was brought back meanwhile.
    """
    if _cancel_jobs(services, workspace.id):
        return False
    with services.database.write() as work:
        if not WorkspaceRepository(work).begin_purge(workspace.id):
            return True
    with services.database.read() as work:
        uploads = PurgeRepository(work).uploads(workspace.id)
        repository_ids = PurgeRepository(work).repository_ids(workspace.id)
    for key, upload in uploads:
        check()
        services.blobs.abort_upload(key, Upload.from_json(upload))
    for info in list(services.blobs.list(f"{workspace.id}/")):
        check()
        services.blobs.delete(info.key)
    crashpoints.reach("workspace.after-objects")
    from osmosis_platform.git.hosting import forget

    for repository_id in repository_ids:
        check()
        forget(services.settings, repository_id)
    shutil.rmtree(services.settings.data_dir / "objects" / workspace.id, ignore_errors=True)  # empty folders by now
    with services.database.write() as work:
        if WorkspaceRepository(work).mark_purged(workspace.id):
            facts = {"name": workspace.name, "rows": PurgeRepository(work).purge(workspace.id)}
            AuditRepository(work).record(workspace.id, None, "workspace.purge", "workspace", workspace.id, facts)
    return True


def _cancel_jobs(services: Services, workspace_id: str) -> bool:
    """Cancels what is open; whether something still runs."""
    with services.database.write() as work:
        open_jobs, _ = JobRepository(work).page(workspace_id, limit=_AT_ONCE, offset=0, statuses=OPEN)
        for job in open_jobs:
            request_cancel(work, workspace_id, job.id)
        return bool(JobRepository(work).page(workspace_id, limit=1, offset=0, statuses=OPEN)[0])
