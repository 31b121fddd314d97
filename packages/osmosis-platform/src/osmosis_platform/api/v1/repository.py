"""The repository of a workspace: shown, synced, connected to a remote, given back to the hosted one, renamed."""

from __future__ import annotations

import re
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.repositories import Repository, RepositoryIndex, RepositoryRepository
from osmosis_platform.db.repositories.syncs import Sync, SyncRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, MissingError, TakenError
from osmosis_platform.ids import new_id
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/repository", tags=["repository"])

Reader = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_READ)]
Syncer = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_SYNC)]
Holder = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_MANAGE)]

_FULL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RepositoryView(BaseModel):
    """The connected repository."""

    id: str
    kind: str
    full_name: str
    identity: str
    clone_url: str
    credential_kind: str
    deploy_public_key: str | None
    default_branch: str
    last_synced_at: str | None
    created_at: str | None
    webhook_url: str | None


class ConnectedView(RepositoryView):
    """A repository just connected; the webhook's secret is shown this once."""

    webhook_secret: str | None = None


class SyncView(BaseModel):
    """One sync of the history."""

    id: str
    trigger: str
    status: str
    branch: str | None
    commit_sha: str | None
    author: str | None
    message: str | None
    rollout_count: int | None
    error_code: str | None
    error_message: str | None
    created_at: str | None
    started_at: str | None
    finished_at: str | None


class SyncPage(BaseModel):
    """One page of the history."""

    syncs: list[SyncView]
    total_count: int
    has_more: bool
    next_offset: int | None


class BranchView(BaseModel):
    """A branch."""

    name: str
    commit_sha: str
    is_default: bool


class BranchPage(BaseModel):
    """One page of branches."""

    branches: list[BranchView]
    total_count: int
    has_more: bool
    next_offset: int | None


class Connect(BaseModel):
    """A remote to follow: https with a token, or ssh with a deploy key that is made here."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=500)
    token: SecretStr | None = Field(None, min_length=1, max_length=4096)
    username: str | None = Field(None, pattern=r"^[A-Za-z0-9@._+-]{1,100}$")
    known_hosts: str | None = Field(None, max_length=20_000, description="Host keys in OpenSSH's format.")
    default_branch: str | None = Field(None, min_length=1, max_length=250)


class Change(BaseModel):
    """What can be changed of a repository."""

    model_config = ConfigDict(extra="forbid")

    full_name: str | None = Field(None, max_length=170, description="owner/repo of a hosted repository.")
    default_branch: str | None = Field(None, min_length=1, max_length=250)
    token: SecretStr | None = Field(None, min_length=1, max_length=4096, description="A new token of a remote.")
    username: str | None = Field(None, pattern=r"^[A-Za-z0-9@._+-]{1,100}$")


class WebhookSecret(BaseModel):
    """A new webhook secret, shown this once."""

    webhook_url: str
    webhook_secret: str


@router.get("")
async def show_repository(scope: Reader, services: ServicesDep) -> RepositoryView:
    """The repository that the workspace is connected to."""
    found = await services.database.reading(lambda work: _connected(work, scope.workspace_id))
    return RepositoryView(**_facts(found, services.settings))


@router.get("/branches")
async def list_branches(
    scope: Reader, services: ServicesDep, limit: Limit = MAX_LIMIT, offset: Offset = 0
) -> BranchPage:
    """Every branch of the last sync, the default one first, then by name."""

    def read(work: UnitOfWork) -> tuple[str, dict[str, str]]:
        found = _connected(work, scope.workspace_id)
        return found.default_branch, RepositoryRepository(work).branches(scope.workspace_id, found.id)

    default, known = await services.database.reading(read)
    names = sorted(known, key=lambda name: (name != default, name))
    items = [
        BranchView(name=name, commit_sha=known[name], is_default=name == default)
        for name in names[offset : offset + limit]
    ]
    return BranchPage(**page("branches", items, len(names), offset))


@router.get("/syncs")
async def list_syncs(scope: Reader, services: ServicesDep, limit: Limit = MAX_LIMIT, offset: Offset = 0) -> SyncPage:
    """The history of syncs, newest first. The log of one is the log stream of its id."""

    def read(work: UnitOfWork) -> tuple[list[Sync], int]:
        found = _connected(work, scope.workspace_id)
        return SyncRepository(work).page(scope.workspace_id, found.id, limit=limit, offset=offset)

    items, total = await services.database.reading(read)
    return SyncPage(**page("syncs", [sync_view(one) for one in items], total, offset))


@router.post("/sync", status_code=202)
async def sync_repository(scope: Syncer, services: ServicesDep) -> SyncView:
    """Starts a sync; while one waits already, that one is answered."""

    def start(work: UnitOfWork) -> Sync:
        found = _connected(work, scope.workspace_id)
        sync = begin_sync(work, found, "manual")
        AuditRepository(work).record(
            scope.workspace_id, scope.actor, "repository.sync", "repository", found.id, {"sync_id": sync.id}
        )
        return sync

    return sync_view(await services.database.writing(start))


@router.post("/connect", status_code=201)
async def connect_remote(scope: Holder, services: ServicesDep, wanted: Annotated[Connect, Body()]) -> ConnectedView:
    """Follows a remote from now on, instead of what was followed before, and starts the first sync.

    A hosted repository stays as it is and comes back when the remote is disconnected. For ssh the answer holds the deploy
    key to add on the other side. The webhook secret is shown here only.
    """
    connected, secret = await anyio.to_thread.run_sync(_connect, services, scope, wanted)
    return ConnectedView(**_facts(connected, services.settings), webhook_secret=secret)


@router.post("/disconnect")
async def disconnect_remote(scope: Holder, services: ServicesDep) -> RepositoryView:
    """Stops following the remote; the workspace's hosted repository is connected again."""

    def change(work: UnitOfWork) -> Repository:
        repositories = RepositoryRepository(work)
        found = _connected(work, scope.workspace_id)
        if found.kind == "hosted":
            message = "The hosted repository cannot be disconnected; connect a remote instead of it."
            raise TakenError(message, code="REPOSITORY_HOSTED")
        forgotten = {
            f"{use}_{part}": None for use in ("credential", "webhook") for part in ("key_id", "nonce", "ciphertext")
        }
        gone = {"disconnected_at": work.clock(), "credential_kind": "none", **forgotten}
        repositories.change(scope.workspace_id, found.id, gone)
        hosted = repositories.find_hosted(scope.workspace_id)
        if hosted is None:
            raise MissingError("The workspace has no hosted repository to go back to; connect another remote instead.")
        back = repositories.change(scope.workspace_id, hosted.id, {"disconnected_at": None})
        assert back is not None
        begin_sync(work, back, "connect")
        AuditRepository(work).record(
            scope.workspace_id,
            scope.actor,
            "repository.disconnect",
            "repository",
            found.id,
            {"identity": found.identity},
        )
        return back

    return RepositoryView(**_facts(await services.database.writing(change), services.settings))


@router.patch("")
async def change_repository(scope: Holder, services: ServicesDep, wanted: Annotated[Change, Body()]) -> RepositoryView:
    """Renames a hosted repository, chooses the default branch, or replaces a remote's token.

    After a rename, clones need the new URL: the old name is free for others.
    """
    found = await anyio.to_thread.run_sync(_change, services, scope, wanted)
    return RepositoryView(**_facts(found, services.settings))


@router.post("/webhook")
async def renew_webhook_secret(scope: Holder, services: ServicesDep) -> WebhookSecret:
    """Makes a new webhook secret; the old one does not count any more."""
    from osmosis_platform.git import credentials

    secret = credentials.new_webhook_secret()

    def change(work: UnitOfWork) -> Repository:
        found = _connected(work, scope.workspace_id)
        if found.kind == "hosted":
            message = "A hosted repository needs no webhook: every push is seen."
            raise TakenError(message, code="REPOSITORY_HOSTED")
        values = credentials.seal(services.vault, work, scope.workspace_id, found.id, "webhook", secret)
        RepositoryRepository(work).change(scope.workspace_id, found.id, values)
        AuditRepository(work).record(scope.workspace_id, scope.actor, "repository.webhook", "repository", found.id)
        return found

    found = await services.database.writing(change)
    return WebhookSecret(webhook_url=_webhook_url(found, services.settings), webhook_secret=secret)


def begin_sync(work: UnitOfWork, repository: Repository, trigger: str) -> Sync:
    """Queues a sync in the caller's transaction; a waiting one is answered instead of a second."""
    syncs = SyncRepository(work)
    sync = syncs.find_pending(repository.workspace_id, repository.id)
    sync = sync or syncs.add(repository.workspace_id, repository.id, trigger)
    enqueue(
        work,
        repository.workspace_id,
        "repository.sync",
        {"repository_id": repository.id, "trigger": trigger},
        subject_id=repository.id,
        # A job that runs already may have looked before this change: its sync is not the pending one.
        unique_key=f"repository.sync:{sync.id}",
    )
    return sync


def sync_view(sync: Sync) -> SyncView:
    """A sync on the wire."""
    facts: dict[str, Any] = {name: getattr(sync, name) for name in SyncView.model_fields}
    for name in ("created_at", "started_at", "finished_at"):
        facts[name] = wire_time(facts[name])
    return SyncView(**facts)


def _connected(work: UnitOfWork, workspace_id: str) -> Repository:
    found = RepositoryRepository(work).find_connected(workspace_id)
    if found is None:
        message = "The workspace is not connected to a repository; connect one first."
        raise MissingError(message, code="GIT_REPOSITORY_NOT_CONNECTED")
    return found


def _connect(services: Services, scope: WorkspaceScope, wanted: Connect) -> tuple[Repository, str]:
    from osmosis_platform.git import credentials
    from osmosis_platform.git.address import pin
    from osmosis_platform.git.remote import parse_remote

    settings, workspace_id = services.settings, scope.workspace_id
    remote = parse_remote(wanted.url, settings)
    is_ssh = remote.scheme == "ssh"
    if is_ssh and wanted.token is not None:
        raise InvalidRequestError("A token is for https; for ssh a deploy key is made here.", field="token")
    if wanted.token is not None and remote.scheme == "http" and remote.host not in ("localhost", "127.0.0.1", "::1"):
        raise InvalidRequestError("A token is not sent over plain http; use https.", field="url")
    pin(remote.host, remote.port, allow_private=settings.allow_private_remotes)
    repository_id, secret = new_id("re"), credentials.new_webhook_secret()
    private, public = credentials.new_deploy_key(f"osmosis-{repository_id}") if is_ssh else (None, None)
    credential = None
    if private is not None:
        credential = credentials.Credential("deploy_key", private)
    elif wanted.token is not None:
        username = wanted.username or credentials.DEFAULT_USERNAME
        credential = credentials.Credential("token", _one_line(wanted.token.get_secret_value()), username)
    with services.database.write() as work:
        repositories = RepositoryRepository(work)
        before = repositories.find_connected(workspace_id)
        if before is not None:
            if before.identity == remote.identity and before.kind == "remote":
                message = f"The workspace is connected to {remote.identity} already; change its token instead."
                raise TakenError(message, code="REPOSITORY_CONNECTED")
            repositories.change(workspace_id, before.id, {"disconnected_at": work.clock()})
        values: dict[str, Any] = {
            "id": repository_id,
            "kind": "remote",
            "full_name": remote.full_name,
            "identity": remote.identity,
            "remote_url": remote.url,
            "deploy_public_key": public,
            "known_hosts": wanted.known_hosts,
            "default_branch": wanted.default_branch or "main",
            "created_by": scope.actor.user_id,
        }
        if credential is not None:
            values |= credentials.seal_credential(services.vault, work, workspace_id, repository_id, credential)
        values |= credentials.seal(services.vault, work, workspace_id, repository_id, "webhook", secret)
        connected = repositories.add(workspace_id, values)
        begin_sync(work, connected, "connect")
        details = {"identity": remote.identity, "url": remote.url, "credential": connected.credential_kind}
        AuditRepository(work).record(
            workspace_id, scope.actor, "repository.connect", "repository", repository_id, details
        )
    return connected, secret


def _change(services: Services, scope: WorkspaceScope, wanted: Change) -> Repository:
    from osmosis_platform.git import credentials

    with services.database.write() as work:
        found = _connected(work, scope.workspace_id)
        values: dict[str, Any] = {}
        details: dict[str, Any] = {}
        if wanted.full_name is not None and wanted.full_name != found.full_name:
            values |= _renamed(work, found, wanted.full_name)
            details |= {"full_name": wanted.full_name, "before": found.full_name}
        if wanted.default_branch is not None:
            if not RepositoryRepository(work).has_branch(scope.workspace_id, found.id, wanted.default_branch):
                message = f"{found.full_name} has no branch {wanted.default_branch!r}; push it first."
                raise MissingError(message, code="BRANCH_NOT_FOUND", field="default_branch")
            values["default_branch"] = details["default_branch"] = wanted.default_branch
        if wanted.token is not None:
            if found.kind != "remote" or found.credential_kind == "deploy_key":
                raise InvalidRequestError("Only a remote over https has a token.", field="token")
            credential = credentials.Credential(
                "token", _one_line(wanted.token.get_secret_value()), wanted.username or credentials.DEFAULT_USERNAME
            )
            values |= credentials.seal_credential(services.vault, work, scope.workspace_id, found.id, credential)
            details["replaced"] = "token"
        if not values:
            return found
        changed = RepositoryRepository(work).change(scope.workspace_id, found.id, values)
        assert changed is not None
        begin_sync(work, changed, "manual")
        AuditRepository(work).record(
            scope.workspace_id, scope.actor, "repository.change", "repository", found.id, details
        )
        return changed


def _renamed(work: UnitOfWork, found: Repository, full_name: str) -> dict[str, str]:
    if found.kind != "hosted":
        message = "A remote is named by its URL; connect the new URL instead."
        raise InvalidRequestError(message, code="REPOSITORY_NOT_HOSTED", field="full_name")
    if not _FULL_NAME.fullmatch(full_name) or ".." in full_name or full_name.endswith(".git"):
        message = "full_name is owner/repo: letters, digits and '-', in the second part also '.' and '_'; no .git."
        raise InvalidRequestError(message, field="full_name")
    identity = full_name.lower()
    if identity != found.identity and RepositoryIndex(work).identity_is_hosted(identity):
        raise TakenError(
            f"The repository name {full_name} is taken; choose another.", code="NAME_TAKEN", field="full_name"
        )
    return {"full_name": full_name, "identity": identity}


def _one_line(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequestError("A token is one line of printable ASCII without spaces.", field="token")
    return token


def _facts(repository: Repository, settings: Settings) -> dict[str, Any]:
    hosted = repository.kind == "hosted"
    return {
        "id": repository.id,
        "kind": repository.kind,
        "full_name": repository.full_name,
        "identity": repository.identity,
        "clone_url": f"{settings.base_url}/git/{repository.full_name}.git" if hosted else repository.remote_url,
        "credential_kind": repository.credential_kind,
        "deploy_public_key": repository.deploy_public_key,
        "default_branch": repository.default_branch,
        "last_synced_at": wire_time(repository.last_synced_at),
        "created_at": wire_time(repository.created_at),
        "webhook_url": None if hosted else _webhook_url(repository, settings),
    }


def _webhook_url(repository: Repository, settings: Settings) -> str:
    return f"{settings.base_url}/api/v1/webhooks/git/{repository.id}"
