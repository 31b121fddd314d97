"""Bringing rows up to a repository: branches, rollouts, and the history of syncs. Also which commit a run's words mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from osmosis_platform import crashpoints
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.db.repositories.rollouts import RolloutRepository
from osmosis_platform.db.repositories.syncs import Sync, SyncRepository
from osmosis_platform.errors import InvalidRequestError, MissingError, ServiceError, UnavailableError
from osmosis_platform.events.changes import SYNC_PROGRESS, discard_sync, tell_sync
from osmosis_platform.events.log import LogLine, append_event, append_lines
from osmosis_platform.git import hosting, plumbing
from osmosis_platform.git.discovery import Discovery
from osmosis_platform.git.plumbing import RepositoryLimitError
from osmosis_platform.secrets.redacting import OWN

if TYPE_CHECKING:
    from osmosis_platform.services import Services

log = structlog.get_logger(__name__)

MAX_RECORDED_ROLLOUTS = 50_000
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The commit that a run executes.

    Attributes:
        branch: The branch that named it; None if a commit was named.
    """

    repository_id: str
    commit_sha: str
    tree_sha: str
    branch: str | None


def sync_now(services: Services, workspace_id: str, repository_id: str, trigger: str) -> Sync:
    """Syncs a repository: fetches a remote, records branches and rollouts, writes the history.

    Args:
        services: Of this process.
        workspace_id: Whose repository it is.
        repository_id: Which.
        trigger: `push`, `webhook`, `poll`, `manual`, `submit` or `connect`.

    Returns:
        The sync as it ended, `success` or `failed` with a code and a message.

    Raises:
        MissingError: No such connected repository in this workspace.
        UnavailableError: Another sync of the repository does not end.
    """
    with hosting.locked(services.settings, repository_id):
        with services.database.write() as work:
            repository = RepositoryRepository(work).get(workspace_id, repository_id)
            if repository is None or repository.disconnected_at is not None:
                raise MissingError("The workspace is not connected to that repository any more.")
            syncs = SyncRepository(work)
            # We hold the lock, so nobody works on these: their process was killed.
            interrupted = "The platform was stopped during the sync."
            for lost in syncs.abandon(workspace_id, repository_id, "SYNC_INTERRUPTED", interrupted):
                tell_sync(work, lost)
            waiting = syncs.find_pending(workspace_id, repository_id)
            sync = waiting or syncs.add(workspace_id, repository_id, trigger, status="syncing")
            if waiting is not None:
                begun = {"status": "syncing", "started_at": work.clock()}
                sync = syncs.change(workspace_id, waiting.id, begun) or sync
            tell_sync(work, sync)
        crashpoints.reach("sync.after-begin")
        journal = _Journal(services, sync)
        try:
            return _sync(services, repository, sync, journal)
        except ServiceError as error:
            return _failed(services, sync, journal, error.error_code, error.message)
        except Exception:
            log.exception("sync failed", repository=repository_id, sync=sync.id)
            message = "The platform failed to read the repository; its log names the cause under the sync's id."
            return _failed(services, sync, journal, "INTERNAL", message)


def _sync(services: Services, repository: Repository, sync: Sync, journal: _Journal) -> Sync:
    workspace_id = repository.workspace_id
    path = bring(services, repository)
    with services.database.read() as work:  # the first fetch learns the default branch
        repository = RepositoryRepository(work).get(workspace_id, repository.id) or repository
    found = plumbing.branches(path)
    journal.info("branches", f"branches: {len(found)}")
    if repository.kind == "hosted" and repository.default_branch in found:
        plumbing.point_head(path, repository.default_branch)
    with services.database.read() as work:
        known = RepositoryRepository(work).branches(workspace_id, repository.id)
        descriptions = RolloutRepository(work).descriptions(workspace_id, repository.id)
    changed = {branch: commit for branch, commit in found.items() if known.get(branch) != commit}
    if changed:
        journal.progress({"step": "branches", "branches": len(found), "changed": len(changed)})
    gone = frozenset(known) - frozenset(found)
    rollouts = {}
    with plumbing.open_objects(path) as objects:
        discovery = Discovery(objects, descriptions)
        for branch, commit in changed.items():
            rollouts[branch] = (commit, discovery.rollouts_of(commit))
        if sum(len(items) for _, items in rollouts.values()) > MAX_RECORDED_ROLLOUTS:
            message = (
                f"{len(rollouts)} branches hold more than {MAX_RECORDED_ROLLOUTS} rollouts together; delete branches that "
                "nobody runs."
            )
            raise RepositoryLimitError(message, code="TOO_MANY_ROLLOUTS")
        told = _told_branch(repository.default_branch, found, changed)
        head = objects.commit(found[told]) if told in found else None
        count = len(discovery.rollouts_of(found[told])) if told in found else 0
    for name, reason in list(discovery.skipped.items())[:50]:
        journal.warn("rollouts", f"rollouts/{name} is not a rollout: {reason}")
    journal.info("done", f"branches moved: {len(changed)}, gone: {len(gone)}; rollouts on {told}: {count}")
    with services.database.write() as work:
        repositories = RepositoryRepository(work)
        repositories.record_branches(workspace_id, repository.id, changed, gone)
        RolloutRepository(work).record(workspace_id, repository.id, rollouts, gone)
        repositories.change(workspace_id, repository.id, {"last_synced_at": work.clock()})
        values = {"status": "success", "finished_at": work.clock(), "rollout_count": count, "branch": told}
        if head is not None:
            values |= {"commit_sha": head.sha, "author": head.author, "message": head.subject}
        done = SyncRepository(work).change(workspace_id, sync.id, values)
        if sync.trigger == "poll" and not changed and not gone and known:
            discard_sync(work, sync)  # every five minutes: history would be nothing else
        else:
            journal.write(work)
            tell_sync(work, done or sync)
        crashpoints.reach("sync.in-end")
    return done or sync


def _told_branch(default: str, found: Mapping[str, str], changed: Mapping[str, str]) -> str:
    """The branch a sync's history names: the default one if it moved, else what was pushed last, else the default."""
    if default in changed or not changed:
        return default if default in found or not found else next(iter(found))
    return next(iter(changed))


def bring(services: Services, repository: Repository) -> Path:
    """The repository on this machine's disk, up to date: a hosted one as it is, a remote one fetched.

    Raises:
        ServiceError: It cannot be made or fetched; the code says why.
    """
    if repository.kind == "hosted":
        return hosting.ensure(services, repository)
    from osmosis_platform.git.remote import fetch

    return fetch(services, repository)


def is_behind(services: Services, repository: Repository) -> bool:
    """Whether the rows of a hosted repository do not tell what is on the disk: a push was not noted, or never was one."""
    path = hosting.place(services.settings, repository.id)
    if repository.last_synced_at is None or not path.is_dir():
        return True
    with services.database.read() as work:
        known = RepositoryRepository(work).branches(repository.workspace_id, repository.id)
    return plumbing.branches(path) != known


def resolve(
    services: Services,
    workspace_id: str,
    *,
    branch: str | None = None,
    commit_sha: str | None = None,
    fresh: bool = True,
) -> Resolved:
    """The commit that a branch, a commit id or neither (the default branch) means, after a sync.

    Args:
        services: Of this process.
        workspace_id: Whose repository.
        branch: A branch's name.
        commit_sha: 7 to 40 hex digits of a pushed commit.
        fresh: Sync first, so that what was just pushed counts. A remote that does not answer is an error then.

    Raises:
        InvalidRequestError: Both were given, or the commit id is malformed or ambiguous (`COMMIT_AMBIGUOUS`).
        MissingError: No such branch (`BRANCH_NOT_FOUND`) or commit (`COMMIT_NOT_FOUND`); or no repository.
        UnavailableError: The repository cannot be synced now (`SYNC_FAILED`).
    """
    if branch is not None and commit_sha is not None:
        raise InvalidRequestError("Give a branch or a commit_sha, not both.", field="commit_sha")
    if commit_sha is not None:
        commit_sha = commit_sha.strip().lower()
        if not _COMMIT.fullmatch(commit_sha):
            raise InvalidRequestError("commit_sha must be 7 to 40 hex digits.", field="commit_sha")
    with services.database.read() as work:
        repository = RepositoryRepository(work).find_connected(workspace_id)
    if repository is None:
        message = "The workspace is not connected to a repository; connect one in its settings."
        raise MissingError(message, code="GIT_REPOSITORY_NOT_CONNECTED")
    if fresh:
        _refresh(services, repository)
    path = hosting.place(services.settings, repository.id)
    if not path.is_dir():
        path = bring(services, repository)
    if commit_sha is not None:
        sha = _find_commit(path, repository, commit_sha)
    else:
        branch = branch or repository.default_branch
        with services.database.read() as work:
            found = RepositoryRepository(work).branches(workspace_id, repository.id).get(branch)
        if found is None:
            message = f"{repository.full_name} has no branch {branch!r}; push it, then try again."
            raise MissingError(message, code="BRANCH_NOT_FOUND", field="branch")
        sha = found
    with plumbing.open_objects(path) as objects:
        commit = objects.commit(sha)
    if commit is None:
        raise MissingError(f"{repository.full_name} has no commit {sha}.", code="COMMIT_NOT_FOUND", field="commit_sha")
    return Resolved(repository.id, commit.sha, commit.tree_sha, branch)


def _refresh(services: Services, repository: Repository) -> None:
    if repository.kind == "hosted" and not is_behind(services, repository):
        return
    sync = sync_now(services, repository.workspace_id, repository.id, "submit")
    if sync.status == "failed":
        message = f"{repository.full_name} could not be synced: {sync.error_message}"
        raise UnavailableError(message, code="SYNC_FAILED", details={"sync_id": sync.id, "cause": sync.error_code})


def _find_commit(path: Path, repository: Repository, prefix: str) -> str:
    found = plumbing.matching_commits(path, prefix)
    if not found:
        message = f"{repository.full_name} has no commit {prefix}; push it, then try again."
        raise MissingError(message, code="COMMIT_NOT_FOUND", field="commit_sha")
    if len(found) > 1:
        message = f"{len(found)} commits begin with {prefix}; give more digits."
        raise InvalidRequestError(message, code="COMMIT_AMBIGUOUS", field="commit_sha")
    return found[0]


def _failed(services: Services, sync: Sync, journal: _Journal, code: str, message: str) -> Sync:
    message = OWN.text(message)[:2000]
    journal.error("failed", message)
    with services.database.write() as work:
        values = {"status": "failed", "error_code": code, "error_message": message, "finished_at": work.clock()}
        syncs = SyncRepository(work)
        newest, _ = syncs.page(sync.workspace_id, sync.repository_id, limit=2, offset=0)
        done = syncs.change(sync.workspace_id, sync.id, values) or sync
        if sync.trigger == "poll" and any(one.id != sync.id and one.error_code == code for one in newest):
            discard_sync(work, sync)  # it is known to fail like this
        else:
            journal.write(work)
            tell_sync(work, done)
        return done


class _Journal:
    """The log of a sync, kept until it ends and written with its outcome into the stream of its id."""

    def __init__(self, services: Services, sync: Sync) -> None:
        self._services, self._clock, self._sync = services, services.clock, sync
        self._lines: list[tuple[datetime, str, str, str]] = []

    def info(self, step: str, message: str) -> None:
        self._lines.append((self._clock(), "info", step, message))

    def warn(self, step: str, message: str) -> None:
        self._lines.append((self._clock(), "warning", step, message))

    def error(self, step: str, message: str) -> None:
        self._lines.append((self._clock(), "error", step, message))

    def progress(self, facts: Mapping[str, Any]) -> None:
        """Tells at once how far it is."""
        with self._services.database.write(durable=False) as work:
            append_event(work, self._sync.workspace_id, self._sync.id, SYNC_PROGRESS, facts, redactor=OWN)

    def write(self, work: UnitOfWork) -> None:
        lines = [LogLine(at=at, level=level, step=step, message=text) for at, level, step, text in self._lines]
        append_lines(work, self._sync.workspace_id, self._sync.id, lines, redactor=OWN)
