"""Connected remotes: reading their URL, and mirroring their branches into a bare repository of ours."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.repository import parse_origin

from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.errors import InvalidRequestError, ServiceError
from osmosis_platform.git import hosting
from osmosis_platform.git.address import pin
from osmosis_platform.git.command import GitCommandError, GitTimeoutError, run
from osmosis_platform.git.credentials import Credential, handed, open_credential
from osmosis_platform.git.host_keys import fingerprints, name_of
from osmosis_platform.git.plumbing import RepositoryLimitError, size_bytes
from osmosis_platform.secrets.redacting import knowing

if TYPE_CHECKING:
    from osmosis_platform.services import Services
    from osmosis_platform.settings import Settings

FETCH_S = 600.0
_ASK_S = 60.0
_PROBE_S = 25.0  # somebody waits for it at a page
_PORTS = {"https": 443, "http": 80, "ssh": 22}
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_URL_LENGTH = 500
_SYMREF = re.compile(r"ref: refs/heads/(\S+)\tHEAD")

# What git and ssh say, as codes; the first that fits. Texts of git 2.30 to 2.50 in the C locale.
_SAID: tuple[tuple[str, str, str], ...] = (
    (r"redirect|returned error: 30\d", "REMOTE_REDIRECTS", "it answers with a redirect; connect the URL it redirects to"),
    (r"Authentication failed|could not read (Username|Password)|\b40[13]\b|Permission denied|access denied|Access denied",
     "REMOTE_DENIED", "it refuses the credential; check the token, or add the deploy key there"),
    (r"not found|\b404\b|does not appear to be a git repository|does not exist",
     "REMOTE_NOT_FOUND", "it has no such repository, or hides it from this credential"),
    (r"Host key verification failed|REMOTE HOST IDENTIFICATION", "REMOTE_HOST_KEY",
     "its host key is not the known one; if its keeper confirms the new one, give it as known_hosts"),
    (r"File too large|SIGXFSZ|signal 25|exceeds maximum|[Oo]ut of memory",
     "REMOTE_TOO_LARGE", "it is larger than this platform takes"),
    (r"fsck error|error in object|bad object|missingEmail|badTree|object .* is corrupt",
     "REMOTE_BROKEN", "it holds objects that git's checks refuse"),
    (r"Could not resolve|Failed to connect|Connection refused|Connection timed out|timed out|No route|unable to access"
     r"|Connection reset|Connection closed|early EOF|SSL|TLS",
     "REMOTE_UNREACHABLE", "it does not answer"),
)  # fmt: skip


class RemoteError(ServiceError):
    """A connected remote cannot be fetched; `code` says why."""

    status = 502
    code = "REMOTE_FAILED"


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a remote is.

    Attributes:
        url: Without credentials; for ssh with the user.
        identity: What clients send for a clone of it.
        full_name: Its path on the host.
        host: Without brackets.
    """

    url: str
    scheme: str
    host: str
    port: int
    identity: str
    full_name: str


def parse_remote(url: str, settings: Settings) -> Remote:
    """Reads a remote's URL: https and ssh (also scp-like); plain http only where private remotes are allowed.

    Raises:
        InvalidRequestError: `REMOTE_URL_INVALID`: another scheme, credentials in it, or no repository of a host.
    """
    text = url.strip()
    if len(text) > _URL_LENGTH:
        raise _bad_url(f"it is longer than {_URL_LENGTH} characters")
    try:
        origin = parse_origin(text, any_host=True)
    except ValidationError as error:
        raise _bad_url(str(error)) from None
    parts = urlsplit(origin.remote_url)
    if "://" in text:
        given = urlsplit(text)
        if given.password is not None or (given.username and given.scheme.lower() != "ssh"):
            raise _bad_url("it holds credentials; send the token in its own field")
        if given.query or given.fragment:
            raise _bad_url("it has a query or a fragment")
    allowed = ("https", "ssh", "http") if settings.allow_private_remotes else ("https", "ssh")
    if parts.scheme not in allowed:
        raise _bad_url(f"its scheme must be {' or '.join(allowed)}")
    host, user = parts.hostname or "", parts.username
    if not _HOST.fullmatch(host) or (user is not None and not _USER.fullmatch(user)):
        raise _bad_url("its host or user is malformed")
    path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
    netloc = parts.netloc if parts.scheme != "ssh" or user else f"git@{parts.netloc}"
    full_name = path.strip("/").removesuffix(".git")
    return Remote(
        url=f"{parts.scheme}://{netloc}{path}",
        scheme=parts.scheme,
        host=host,
        port=parts.port or _PORTS[parts.scheme],
        identity=origin.identity,
        full_name=full_name,
    )


def _bad_url(reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The remote URL cannot be used: {reason}. Give https://host/owner/repo.git or git@host:owner/repo.git.",
        code="REMOTE_URL_INVALID",
        field="url",
    )


def fetch(services: Services, repository: Repository) -> Path:
    """Brings the mirror of a remote up to date: its branches only, no tags, no submodules, no large-file contents.

    The caller holds the repository's lock.

    Raises:
        RemoteError: It cannot be reached, refuses, or is too large; the code says which.
        AddressRefusedError: Its host is where the platform must not connect to.
    """
    limit = services.settings.max_push_bytes
    line = _line_of(services, repository)
    path = _mirror(services, repository)
    options = ("--quiet", "--prune", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--force")
    refspec = "+refs/heads/*:refs/heads/*"
    try:
        line.ask(("fetch", *options, "--no-auto-maintenance"), (refspec,), path=path, timeout_s=FETCH_S)
    finally:
        _keep_host_key(services, repository, line)
    if (size := size_bytes(path)) > 2 * limit:
        shutil.rmtree(path, ignore_errors=True)
        message = f"{line.remote.url} takes {size} bytes here; the limit is {2 * limit}."
        raise RepositoryLimitError(message, code="REMOTE_TOO_LARGE")
    values: dict[str, str] = {}
    if repository.last_synced_at is None and (branch := _default_branch(line)):
        values["default_branch"] = branch
    if values:
        with services.database.write() as work:
            RepositoryRepository(work).change(repository.workspace_id, repository.id, values)
    return path


def _keep_host_key(services: Services, repository: Repository, line: _Line) -> None:
    """From now on this host has this key; an administrator sees it, and only they can say that it has another."""
    if not line.learnt:
        return
    values = {"known_hosts": line.learnt}
    facts = {"host": line.remote.host, "host_keys": fingerprints(line.learnt)}
    with services.database.write() as work:
        RepositoryRepository(work).change(repository.workspace_id, repository.id, values)
        AuditRepository(work).record(
            repository.workspace_id, None, "repository.host_key", "repository", repository.id, facts
        )
    line.learnt = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a remote answers to who only asks.

    Attributes:
        branches: How many it has.
        default_branch: What its HEAD names; None where it names nothing.
    """

    branches: int
    default_branch: str | None


def probe(services: Services, url: str, credential: Credential | None, *, known_hosts: str | None = None) -> Answered:
    """Asks a remote for its branches, as a fetch would, and keeps nothing.

    Args:
        services: Of this process.
        url: Of the remote, without credentials.
        credential: Token, deploy key or none.
        known_hosts: Host keys in OpenSSH's format; without any, whatever key the host shows will do.

    Raises:
        RemoteError: It cannot be reached or refuses; the code says which.
        InvalidRequestError: The URL is none (`REMOTE_URL_INVALID`), or leads where the platform must not connect to.
        UnavailableError: The host does not resolve.
    """
    return _answered(_Line(services, url, credential, known_hosts))


def probe_connected(services: Services, repository: Repository) -> Answered:
    """`probe` of a connected remote, with the credential it has."""
    return _answered(_line_of(services, repository))


def _answered(line: _Line) -> Answered:
    output = line.ask(("ls-remote", "--symref"), ("HEAD", "refs/heads/*"), timeout_s=_PROBE_S)
    text = output.decode("utf-8", "replace")
    found = _SYMREF.search(text)
    return Answered(text.count("\trefs/heads/"), found[1] if found else None)


def _line_of(services: Services, repository: Repository) -> _Line:
    assert repository.remote_url is not None
    with services.database.read() as work:
        credential = open_credential(services.vault, work, repository)
    return _Line(services, repository.remote_url, credential, repository.known_hosts)


class _Line:
    """The way to one remote: its pinned address and its credential.

    Attributes:
        remote: Where it is.
        learnt: Host keys that ssh saw for the first time.
    """

    def __init__(self, services: Services, url: str, credential: Credential | None, known_hosts: str | None) -> None:
        settings = services.settings
        self.remote = parse_remote(url, settings)
        self.learnt = ""
        self._known_hosts = known_hosts
        self._limit = settings.max_push_bytes
        self._credential = credential
        self._address = pin(self.remote.host, self.remote.port, allow_private=settings.allow_private_remotes)

    def ask(
        self, arguments: Sequence[str], more: Sequence[str] = (), *, path: Path | None = None, timeout_s: float
    ) -> bytes:
        """Runs git against the remote, `arguments`, the URL, then `more`."""
        remote, credential = self.remote, self._credential
        is_ssh = remote.scheme == "ssh"
        config = [
            f"protocol.{remote.scheme}.allow=always",
            "http.proxy=",
            "http.lowSpeedLimit=100",
            "http.lowSpeedTime=60",
        ]
        if not is_ssh:
            shown = f"[{self._address}]" if ":" in self._address else self._address
            config.append(f"http.curloptResolve={remote.host}:{remote.port}:{shown}")
        name = name_of(remote.host, remote.port)
        with handed(
            credential, is_ssh=is_ssh, host=name, address=self._address, known_hosts=self._known_hosts
        ) as access:
            try:
                output = run(
                    [*arguments, "--", remote.url, *more],
                    repository=path,
                    config=config,
                    env={**_authorities(), **access.environment},
                    pass_fds=access.descriptors,
                    max_file_bytes=self._limit,
                    timeout_s=timeout_s,
                )
            except GitTimeoutError:
                message = f"{remote.url} did not deliver within {timeout_s:.0f} s; try again, or make it smaller."
                raise RemoteError(message, code="REMOTE_TIMEOUT") from None
            except GitCommandError as error:
                raise _translated(remote, error.message, credential.secret if credential else None) from None
            finally:  # also where the host then refuses the key: it often is not added there yet
                if access.known_hosts is not None and not self._known_hosts:
                    self.learnt = self._known_hosts = access.known_hosts.read_text()
        return output


def _default_branch(line: _Line) -> str | None:
    """What the remote's HEAD names; None if it does not say. Asked once, after the first fetch."""
    try:
        output = line.ask(("ls-remote", "--symref"), ("HEAD",), timeout_s=_ASK_S)
    except RemoteError:
        return None
    found = _SYMREF.search(output.decode("utf-8", "replace"))
    return found[1] if found else None


def _authorities() -> dict[str, str]:
    """The certificates of an administrator's own authority, if the platform was started with them."""
    return {name: os.environ[name] for name in ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH") if name in os.environ}


def _mirror(services: Services, repository: Repository) -> Path:
    path = hosting.place(services.settings, repository.id)
    if not path.is_dir():
        hosting.root(services.settings).mkdir(mode=0o700, parents=True, exist_ok=True)
        building = path.with_name(f".building-{path.name}-{time.monotonic_ns()}")
        hosting.init(building)
        building.rename(path)
    return path


def _translated(remote: Remote, said: str, secret: str | None) -> RemoteError:
    said = knowing(*filter(None, (secret,))).text(said)
    found = (entry for entry in _SAID if re.search(entry[0], said))
    _, code, meaning = next(found, ("", "REMOTE_FAILED", "git failed"))
    last = said.strip().splitlines()[-1][:300] if said.strip() else ""
    return RemoteError(f"{remote.url} cannot be fetched: {meaning}. Git says: {last}", code=code)
