"""What the repository routes of /api/v1 and of the pages do: connecting a remote, testing it, syncing, renaming, and back.

Wire models of answers are in api.v1.repository; how a remote is reached is git.remote's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import WorkspaceScope
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.repositories import Repository, RepositoryIndex, RepositoryRepository
from osmosis_platform.db.repositories.syncs import Sync, SyncRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.errors import InvalidRequestError, MissingError, TakenError, TooManyRequestsError
from osmosis_platform.events.changes import tell_sync
from osmosis_platform.ids import new_id
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

if TYPE_CHECKING:
    from osmosis_platform.git.credentials import Credential
    from osmosis_platform.git.remote import Answered, Remote

_TRIES, _TRY_WINDOW_S = 20, 600
_FULL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BRANCH = r"^[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*$"  # what git takes, nearly


class Connect(StrictBody):
    """A remote to follow: https with a token, or ssh with a deploy key that is made here."""

    url: str = Field(min_length=1, max_length=500)
    token: SecretStr | None = Field(None, min_length=1, max_length=4096)
    username: str | None = Field(None, pattern=r"^[A-Za-z0-9@._+-]{1,100}$")
    known_hosts: str | None = Field(None, max_length=20_000, description="Host keys in OpenSSH's format.")
    default_branch: str | None = Field(None, min_length=1, max_length=250, pattern=_BRANCH)


class Change(StrictBody):
    """What can be changed of a repository."""

    full_name: str | None = Field(None, max_length=170, description="owner/repo of a hosted repository.")
    default_branch: str | None = Field(None, min_length=1, max_length=250, pattern=_BRANCH)
    token: SecretStr | None = Field(None, min_length=1, max_length=4096, description="A new token of a remote.")
    username: str | None = Field(None, pattern=r"^[A-Za-z0-9@._+-]{1,100}$")
    known_hosts: str | None = Field(
        None, max_length=20_000, description="Host keys instead of those that an ssh remote is known by."
    )


def begin_sync(work: UnitOfWork, repository: Repository, trigger: str) -> Sync:
    """Queues a sync in the caller's transaction; a waiting one is answered instead of a second."""
    syncs = SyncRepository(work)
    sync = syncs.find_pending(repository.workspace_id, repository.id)
    if sync is None:
        sync = syncs.add(repository.workspace_id, repository.id, trigger)
        tell_sync(work, sync)
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


def start_sync(work: UnitOfWork, scope: WorkspaceScope) -> Sync:
    """Queues a sync that a person asked for.

    Raises:
        MissingError: `GIT_REPOSITORY_NOT_CONNECTED`.
    """
    found = connected(work, scope.workspace_id)
    sync = begin_sync(work, found, "manual")
    AuditRepository(work).record(
        scope.workspace_id, scope.actor, "repository.sync", "repository", found.id, {"sync_id": sync.id}
    )
    return sync


def disconnect(work: UnitOfWork, scope: WorkspaceScope) -> Repository:
    """Stops following the remote and forgets its secrets; gives the hosted repository that is connected again.

    Raises:
        TakenError: `REPOSITORY_HOSTED`: no remote is followed.
        MissingError: Nothing is connected, or there is no hosted repository to go back to.
    """
    WorkspaceRepository(work).lock(scope.workspace_id)
    repositories = RepositoryRepository(work)
    found = connected(work, scope.workspace_id)
    if found.kind == "hosted":
        message = "The hosted repository cannot be disconnected; connect a remote instead of it."
        raise TakenError(message, code="REPOSITORY_HOSTED")
    _let_go(work, found)
    hosted = repositories.find_hosted(scope.workspace_id)
    if hosted is None:
        raise MissingError("The workspace has no hosted repository to go back to; connect another remote instead.")
    back = repositories.change(scope.workspace_id, hosted.id, {"disconnected_at": None})
    assert back is not None
    begin_sync(work, back, "connect")
    facts = {"identity": found.identity}
    AuditRepository(work).record(
        scope.workspace_id, scope.actor, "repository.disconnect", "repository", found.id, facts
    )
    return back


def _let_go(work: UnitOfWork, repository: Repository) -> None:
    """Ends a connection; of a remote no secret is kept."""
    values: dict[str, Any] = {"disconnected_at": work.clock(), "credential_kind": "none"}
    for use in ("credential", "webhook"):
        values |= {f"{use}_{part}": None for part in ("key_id", "nonce", "ciphertext")}
    RepositoryRepository(work).change(repository.workspace_id, repository.id, values)


def renew_webhook(services: Services, work: UnitOfWork, scope: WorkspaceScope) -> tuple[Repository, str]:
    """Makes another webhook secret for the connected remote and gives it.

    Raises:
        TakenError: `REPOSITORY_HOSTED`: no remote is followed.
        MissingError: `GIT_REPOSITORY_NOT_CONNECTED`.
    """
    from osmosis_platform.git import credentials

    found = connected(work, scope.workspace_id)
    if found.kind == "hosted":
        message = "A hosted repository needs no webhook: every push is seen."
        raise TakenError(message, code="REPOSITORY_HOSTED")
    secret = credentials.new_webhook_secret()
    values = credentials.seal(services.vault, work, scope.workspace_id, found.id, "webhook", secret)
    RepositoryRepository(work).change(scope.workspace_id, found.id, values)
    AuditRepository(work).record(scope.workspace_id, scope.actor, "repository.webhook", "repository", found.id)
    return found, secret


def try_connected(services: Services, scope: WorkspaceScope) -> Answered:
    """Asks the connected remote whether it lets the platform read. Slow: call it in a thread.

    Raises:
        RemoteError: It cannot be reached or refuses; the code says which.
        TakenError: `REPOSITORY_HOSTED`: no remote is followed.
        TooManyRequestsError: More than 20 tries of this workspace in ten minutes.
    """
    from osmosis_platform.git.remote import probe_connected

    _count_try(services, scope)
    with services.database.read() as work:
        found = connected(work, scope.workspace_id)
    if found.kind == "hosted":
        raise TakenError(
            "The hosted repository is on this platform; there is no connection to test.", code="REPOSITORY_HOSTED"
        )
    return probe_connected(services, found)


def try_remote(services: Services, scope: WorkspaceScope, wanted: Connect) -> Answered:
    """Asks a remote that is not connected yet whether it lets the platform read. Slow: call it in a thread.

    Raises:
        RemoteError: It cannot be reached or refuses; the code says which.
        InvalidRequestError: The URL is none, or is one of ssh, whose deploy key is made when it is connected.
        TooManyRequestsError: More than 20 tries of this workspace in ten minutes.
    """
    from osmosis_platform.git.remote import probe

    remote, credential = _checked(services, wanted)
    if remote.scheme == "ssh":
        message = "A remote over ssh is tested once it is connected: its deploy key is made then."
        raise InvalidRequestError(message, field="url")
    _count_try(services, scope)
    return probe(services, remote.url, credential)


def _count_try(services: Services, scope: WorkspaceScope) -> None:
    key = f"remote-test:{scope.workspace_id}"
    with services.database.write(durable=False) as work:
        tries = ThrottleRepository(work).hit(key, _TRY_WINDOW_S)
    if tries > _TRIES:
        message = "This workspace has tested connections too often; wait ten minutes."
        raise TooManyRequestsError(message, headers={"Retry-After": str(_TRY_WINDOW_S)})


def connected(work: UnitOfWork, workspace_id: str) -> Repository:
    """The repository that a workspace is connected to.

    Raises:
        MissingError: `GIT_REPOSITORY_NOT_CONNECTED`.
    """
    found = RepositoryRepository(work).find_connected(workspace_id)
    if found is None:
        message = "The workspace is not connected to a repository; connect one first."
        raise MissingError(message, code="GIT_REPOSITORY_NOT_CONNECTED")
    return found


def connect(services: Services, scope: WorkspaceScope, wanted: Connect) -> tuple[Repository, str]:
    """Follows a remote from now on and starts the first sync; gives it and its webhook secret. Call it in a thread.

    Raises:
        InvalidRequestError: The URL is none, or leads where the platform must not connect to; or a field does not fit.
        UnavailableError: The host does not resolve.
        TakenError: `REPOSITORY_CONNECTED`: it is followed already.
    """
    from osmosis_platform.git import credentials
    from osmosis_platform.git.address import pin

    settings, workspace_id = services.settings, scope.workspace_id
    remote, credential = _checked(services, wanted)
    pin(remote.host, remote.port, allow_private=settings.allow_private_remotes)
    repository_id, secret = new_id("re"), credentials.new_webhook_secret()
    public = None
    if remote.scheme == "ssh":
        private, public = credentials.new_deploy_key(f"osmosis-{repository_id}")
        credential = credentials.Credential("deploy_key", private)
    with services.database.write() as work:
        WorkspaceRepository(work).lock(workspace_id)  # two that connect at once come one after the other
        repositories = RepositoryRepository(work)
        before = repositories.find_connected(workspace_id)
        if before is not None:
            if before.identity == remote.identity and before.kind == "remote":
                message = f"The workspace is connected to {remote.identity} already; change its token instead."
                raise TakenError(message, code="REPOSITORY_CONNECTED")
            _let_go(work, before)
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
        made = repositories.add(workspace_id, values)
        begin_sync(work, made, "connect")
        details = {"identity": remote.identity, "url": remote.url, "credential": made.credential_kind}
        AuditRepository(work).record(
            workspace_id, scope.actor, "repository.connect", "repository", repository_id, details
        )
    return made, secret


def _checked(services: Services, wanted: Connect) -> tuple[Remote, Credential | None]:
    """Where the remote is, and its token where it has one."""
    from osmosis_platform.git import credentials
    from osmosis_platform.git.host_keys import check_host_keys
    from osmosis_platform.git.remote import parse_remote

    remote = parse_remote(wanted.url, services.settings)
    check_host_keys(wanted.known_hosts, remote.host, remote.port)
    if wanted.token is None:
        return remote, None
    if remote.scheme == "ssh":
        raise InvalidRequestError("A token is for https; for ssh a deploy key is made here.", field="token")
    if remote.scheme == "http" and remote.host not in ("localhost", "127.0.0.1", "::1"):
        raise InvalidRequestError("A token is not sent over plain http; use https.", field="url")
    username = wanted.username or credentials.DEFAULT_USERNAME
    return remote, credentials.Credential("token", _one_line(wanted.token.get_secret_value()), username)


def change(services: Services, scope: WorkspaceScope, wanted: Change) -> Repository:
    """Renames, chooses the default branch, or replaces the token; a sync follows. Call it in a thread.

    Raises:
        MissingError: No such branch, or nothing is connected.
        InvalidRequestError: A field does not fit this kind of repository.
        TakenError: `NAME_TAKEN`.
    """
    from osmosis_platform.git import credentials
    from osmosis_platform.git.host_keys import check_host_keys, fingerprints
    from osmosis_platform.git.remote import parse_remote

    with services.database.write() as work:
        WorkspaceRepository(work).lock(scope.workspace_id)
        found = connected(work, scope.workspace_id)
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
        if wanted.known_hosts is not None:
            if found.credential_kind != "deploy_key" or found.remote_url is None:
                raise InvalidRequestError("Only a remote over ssh has host keys.", field="known_hosts")
            remote = parse_remote(found.remote_url, services.settings)
            check_host_keys(wanted.known_hosts, remote.host, remote.port)
            values["known_hosts"] = wanted.known_hosts
            details["host_keys"] = fingerprints(wanted.known_hosts)
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
    identity, index = full_name.lower(), RepositoryIndex(work)
    index.lock_names()
    if identity != found.identity and index.identity_is_hosted(identity):
        raise TakenError(
            f"The repository name {full_name} is taken; choose another.", code="NAME_TAKEN", field="full_name"
        )
    return {"full_name": full_name, "identity": identity}


def _one_line(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequestError("A token is one line of printable ASCII without spaces.", field="token")
    return token


def webhook_url(repository: Repository, settings: Settings) -> str:
    """Where the other side tells of pushes."""
    return f"{settings.base_url}/api/v1/webhooks/git/{repository.id}"
