"""Jobs of repositories: one sync, and the poll that starts syncs and brings the disk and the rows together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osmosis_platform.db.repositories.repositories import RepositoryIndex
from osmosis_platform.errors import MissingError
from osmosis_platform.git import hosting
from osmosis_platform.git.command import run as run_git
from osmosis_platform.git.sync import sync_now
from osmosis_platform.jobs.handler import JobContext, JobFailureError
from osmosis_platform.jobs.queue import enqueue

# Codes that say "not now": the next try may go well. The rest waits for somebody to change something.
_PASSING = frozenset({"REMOTE_UNREACHABLE", "REMOTE_TIMEOUT", "INTERNAL", "GIT_TIMEOUT", "SYNC_INTERRUPTED"})
_GC_S = 600.0


def run(context: JobContext) -> Mapping[str, Any]:
    """`repository.sync`: syncs the repository of the payload's `repository_id`."""
    payload = context.job.payload
    try:
        sync = sync_now(
            context.services,
            context.job.workspace_id,
            str(payload["repository_id"]),
            str(payload.get("trigger", "manual")),
        )
    except MissingError as error:
        raise JobFailureError(error.error_code, error.message, fault="user") from None
    if sync.status == "failed":
        code = sync.error_code or "INTERNAL"
        message = sync.error_message or "The sync failed."
        fault = "infrastructure" if code in _PASSING else "user"
        raise JobFailureError(code, message, fault=fault, retryable=code in _PASSING)
    return {"sync_id": sync.id, "commit_sha": sync.commit_sha, "rollout_count": sync.rollout_count}


def poll(context: JobContext) -> Mapping[str, Any]:
    """`repository.poll`: queues a sync of every connected remote; notes pushes that a kill left unnoted; packs."""
    services = context.services
    reconciled = hosting.reconcile(services)
    with services.database.read() as work:
        found = RepositoryIndex(work).connected()
    queued = 0
    for repository in found:
        context.check()
        if repository.kind == "remote":
            with context.write(durable=True) as work:
                enqueue(
                    work,
                    repository.workspace_id,
                    "repository.sync",
                    {"repository_id": repository.id, "trigger": "poll"},
                    subject_id=repository.id,
                    unique_key=f"repository.sync:{repository.id}",
                )
            queued += 1
        path = hosting.place(services.settings, repository.id)
        if path.is_dir():
            run_git(["gc", "--auto", "--quiet"], repository=path, config=["gc.auto=2000", "gc.autoDetach=false"],
                    timeout_s=_GC_S, accept=(0, 1, 128))  # fmt: skip
    return {"reconciled": reconciled, "queued": queued}
