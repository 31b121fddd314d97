"""The one secret that a connected remote takes: how it is made, sealed, and handed to git without argv, config or disk."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository

if TYPE_CHECKING:
    from osmosis_platform.secrets.vault import Vault

DEFAULT_USERNAME = "x-access-token"
# Git asks for the user name first, then for the password, each with a prompt of its own.
_ASKPASS = """#!/bin/sh
case "$1" in
  Username*) printf '%s\\n' "$OSMOSIS_GIT_USERNAME" ;;
  *) cat "/dev/fd/$OSMOSIS_CREDENTIAL_FD" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Credential:
    """A token with its user name, or a private key in OpenSSH's format."""

    kind: str
    secret: str = field(repr=False)
    username: str = DEFAULT_USERNAME


@dataclass(frozen=True, slots=True)
class Handed:
    """What makes a git process find the credential.

    Attributes:
        environment: Further variables; no secret among them.
        descriptors: To be inherited.
        known_hosts: Where ssh writes a host key that it sees for the first time.
    """

    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    known_hosts: Path | None = None


def new_deploy_key(comment: str) -> tuple[str, str]:
    """A new ed25519 key.

    Returns:
        The private key in OpenSSH's format, and the public line.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} {comment}"


def new_webhook_secret() -> str:
    """A new key for signing webhooks: 256 random bits."""
    return secrets.token_urlsafe(32)


def seal(vault: Vault, work: UnitOfWork, workspace_id: str, repository_id: str, use: str, text: str) -> dict[str, Any]:
    """A sealed secret as the columns of a repository.

    Args:
        vault: Of the platform.
        work: The transaction.
        workspace_id: Whose it is.
        repository_id: What it opens; the ciphertext cannot be moved to another.
        use: `credential` or `webhook`.
        text: The secret.
    """
    sealed = vault.seal(work, workspace_id, text.encode(), _bound(repository_id, use))
    return {
        f"{use}_key_id": sealed.data_key_id,
        f"{use}_nonce": sealed.nonce,
        f"{use}_ciphertext": sealed.ciphertext,
    }


def seal_credential(
    vault: Vault, work: UnitOfWork, workspace_id: str, repository_id: str, credential: Credential
) -> dict[str, Any]:
    """A sealed credential as the columns of a repository."""
    text = json.dumps({"username": credential.username, "secret": credential.secret})
    return {
        "credential_kind": credential.kind,
        **seal(vault, work, workspace_id, repository_id, "credential", text),
    }


def open_credential(vault: Vault, work: UnitOfWork, repository: Repository) -> Credential | None:
    """The credential of a remote; None if it has none."""
    from osmosis_platform.secrets.vault import Sealed

    column = RepositoryRepository(work).credential(repository.workspace_id, repository.id)
    if column is None:
        return None
    sealed = Sealed(data_key_id=column.data_key_id, nonce=column.nonce, ciphertext=column.ciphertext)
    text = vault.unseal(work, repository.workspace_id, sealed, _bound(repository.id, "credential"))
    facts = json.loads(text)
    return Credential(repository.credential_kind, facts["secret"], facts["username"])


def open_webhook_secret(vault: Vault, work: UnitOfWork, repository: Repository) -> str | None:
    """The key that webhooks are signed with; None if there is none."""
    from osmosis_platform.secrets.vault import Sealed

    column = RepositoryRepository(work).webhook_secret(repository.workspace_id, repository.id)
    if column is None:
        return None
    sealed = Sealed(data_key_id=column.data_key_id, nonce=column.nonce, ciphertext=column.ciphertext)
    return vault.unseal(work, repository.workspace_id, sealed, _bound(repository.id, "webhook")).decode()


def _bound(repository_id: str, use: str) -> dict[str, str]:
    return {"repository": repository_id, "use": use}


@contextmanager
def handed(
    credential: Credential | None, *, is_ssh: bool, host: str, address: str, known_hosts: str | None
) -> Generator[Handed]:
    """Gives git a credential for as long as the block runs.

    A token goes through a pipe that git's askpass reads once. A private key lies in memory that only this user can open;
    ssh closes inherited descriptors, so it is opened by a path under /proc.

    Args:
        credential: Token, deploy key or none.
        is_ssh: Whether git goes through ssh.
        host: Of the remote, as known_hosts names it.
        address: The pinned address.
        known_hosts: Host keys in OpenSSH's format; without any, the first one seen is learnt.
    """
    with tempfile.TemporaryDirectory(prefix="osmosis-git-") as folder:
        if is_ssh:
            with _private_key(credential) as key, _host_keys(Path(folder), known_hosts) as hosts:
                line = ssh_command(key, host=host, address=address, hosts=hosts, is_known=bool(known_hosts))
                yield Handed({"GIT_SSH_COMMAND": line, "GIT_SSH_VARIANT": "ssh"}, known_hosts=hosts)
            return
        if credential is None:
            yield Handed({})
            return
        askpass = Path(folder) / "askpass"
        askpass.write_text(_ASKPASS)
        askpass.chmod(0o700)
        reader, writer = os.pipe()
        try:
            os.write(writer, credential.secret.encode() + b"\n")
            os.close(writer)
            yield Handed(
                {
                    "GIT_ASKPASS": str(askpass),
                    "OSMOSIS_GIT_USERNAME": credential.username,
                    "OSMOSIS_CREDENTIAL_FD": str(reader),
                },
                (reader,),
            )
        finally:
            os.close(reader)


def ssh_command(key: str | None, *, host: str, address: str, hosts: Path, is_known: bool) -> str:
    """How git calls ssh: no configuration of the machine, no agent, one key, the pinned address under the host's own key."""
    options = {
        "BatchMode": "yes",
        "HostName": address,
        "HostKeyAlias": host,
        "CheckHostIP": "no",
        "UserKnownHostsFile": str(hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes" if is_known else "accept-new",
        "UpdateHostKeys": "no",
        "HashKnownHosts": "no",
        "IdentityAgent": "none",
        "IdentitiesOnly": "yes",
        "PreferredAuthentications": "publickey",
        "ProxyCommand": "none",
        "PermitLocalCommand": "no",
        "ForwardAgent": "no",
        "ClearAllForwardings": "yes",
        "ControlPath": "none",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }
    line = ["ssh", "-F", "/dev/null", "-T"]
    for name, value in options.items():
        line += ["-o", f"{name}={value}"]
    line += ["-o", f"IdentityFile={key or 'none'}"]
    return shlex.join(line)


@contextmanager
def _private_key(credential: Credential | None) -> Generator[str | None]:
    if credential is None:
        yield None
        return
    if not hasattr(os, "memfd_create"):  # not Linux: a file of this user only, gone with the block
        with tempfile.NamedTemporaryFile(prefix="osmosis-key-") as file:
            file.write(credential.secret.encode())
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("deploy-key")
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, credential.secret.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _host_keys(folder: Path, known: str | None) -> Generator[Path]:
    path = folder / "known_hosts"
    path.write_text(known or "")
    path.chmod(0o600)
    yield path
