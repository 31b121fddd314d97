"""Setting, deleting and resolving secrets. Values go in and reach runs; nothing gives one back to a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from osmosis_ai.redaction import Redactor

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.secrets import SealedSecret, SecretRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.errors import InvalidRequestError, MissingError
from osmosis_platform.secrets.redacting import knowing
from osmosis_platform.secrets.vault import Sealed, Vault

type Scope = Literal["workspace", "user"]

MAX_NAME = 255
MAX_VALUE_BYTES = 64 << 10
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
# SkyPilot sets variables of its own wherever it runs something. Daytona's key is a secret that rollouts need.
_RESERVED_PREFIXES = ("_OSMOSIS_", "OSMOSIS_PLATFORM_", "SKYPILOT_")
_RESERVED = frozenset(
    {"OSMOSIS_MASTER_KEY", "OSMOSIS_MASTER_KEY_FILE", "PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH"}
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a run gets.

    Attributes:
        values: Value by name; never printed, logged or stored.
        scopes: Where each came from: `run`, `user`, `user_override` (personal over workspace) or `workspace`.
        versions: Which version of a stored secret it is, for the run's record; what came with the run has none.
        missing: Names that nobody has a value for.
    """

    values: Mapping[str, str] = field(repr=False)
    scopes: Mapping[str, str]
    versions: Mapping[str, int]
    missing: tuple[str, ...]

    @property
    def redactor(self) -> Redactor:
        """Takes these values out of what the run writes."""
        return knowing(*self.values.values())

    def require(self, platform_url: str) -> None:
        """Lets the run pass if it has every value.

        Args:
            platform_url: Of the page where secrets are set.

        Raises:
            MissingError: `SECRETS_NOT_FOUND`, which the client turns into hints (platform-api.md 3.4).
        """
        if self.missing:
            names = ", ".join(self.missing)
            raise MissingError(
                f"Secret(s) not found: {names}. Set each with `osmosis secret set NAME`, or give it with the run.",
                code="SECRETS_NOT_FOUND",
                details={"missing_secrets": list(self.missing), "platform_url": platform_url},
            )


def check_name(name: str) -> str:
    """A secret's name: upper-case letters, digits and underscores, beginning with a letter, and not one of ours.

    Raises:
        InvalidRequestError: It has another form or is reserved.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"A secret's name has 1 to {MAX_NAME} characters: A-Z, 0-9 and _, beginning with a letter.", field="name"
        )
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        raise InvalidRequestError(f"The name {name} is reserved for the platform; choose another.", field="name")
    return name


def check_value(value: str) -> bytes:
    """A secret's value as it is encrypted.

    Raises:
        InvalidRequestError: It is empty, holds a NUL (no variable can), is no text, or is larger than 64 KiB.
    """
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequestError("The value is not text: it cannot be written in UTF-8.", field="value") from None
    if not data:
        raise InvalidRequestError("The value is empty.", field="value")
    if b"\0" in data:
        raise InvalidRequestError("The value holds a NUL character, which no environment variable can.", field="value")
    if len(data) > MAX_VALUE_BYTES:
        raise InvalidRequestError(f"The value is larger than {MAX_VALUE_BYTES} bytes.", field="value")
    return data


def set_secret(
    vault: Vault, work: UnitOfWork, workspace_id: str, actor: Actor, *, scope: Scope, name: str, value: str
) -> str:
    """Adds or replaces a secret, with its audit entry; the caller has checked the permission.

    Returns:
        Its id.

    Raises:
        InvalidRequestError: The name or the value is not one.
    """
    check_name(name)
    plaintext = check_value(value)
    owner_id = actor.user_id if scope == "user" else ""
    repository = SecretRepository(work)
    repository.lock(workspace_id, scope, owner_id, name)
    before = repository.find(workspace_id, scope, owner_id, name)
    version = 1 if before is None else before.version + 1
    sealed = vault.seal(work, workspace_id, plaintext, _place(scope, owner_id, name, version))
    secret = SealedSecret("", scope, owner_id, name, version, sealed.data_key_id, sealed.nonce, sealed.ciphertext)
    secret_id = repository.put(workspace_id, actor.user_id, secret)
    action = "secret.create" if before is None else "secret.update"
    AuditRepository(work).record(workspace_id, actor, action, "secret", secret_id, {"name": name, "scope": scope})
    return secret_id


def delete_secret(work: UnitOfWork, workspace_id: str, actor: Actor, *, scope: Scope, name: str) -> None:
    """Removes a secret, with its audit entry.

    Raises:
        MissingError: There is none of that name and scope.
    """
    owner_id = actor.user_id if scope == "user" else ""
    repository = SecretRepository(work)
    found = repository.find(workspace_id, scope, owner_id, name)
    if found is None or not repository.delete(workspace_id, scope, owner_id, name):
        word = "personal" if scope == "user" else "workspace"
        raise MissingError(f"There is no {word} secret {name[:MAX_NAME]!r} here.")
    AuditRepository(work).record(
        workspace_id, actor, "secret.delete", "secret", found.id, {"name": name, "scope": scope}
    )


def resolve(
    vault: Vault,
    work: UnitOfWork,
    workspace_id: str,
    user_id: str,
    names: Iterable[str],
    provided: Mapping[str, str] | None = None,
) -> Resolution:
    """Finds the values of a run: provided with it, else the person's own, else the workspace's (platform-api.md 15)."""
    wanted = sorted(set(names))
    given = dict(provided or {})
    found: dict[str, dict[str, SealedSecret]] = {}
    for secret in SecretRepository(work).named(workspace_id, user_id, wanted):
        found.setdefault(secret.name, {})[secret.scope] = secret
    values: dict[str, str] = {}
    scopes: dict[str, str] = {}
    versions: dict[str, int] = {}
    missing = []
    for name in wanted:
        mine = found.get(name, {})
        if name in given:
            values[name], scopes[name] = given[name], "run"
        elif mine:
            secret = mine.get("user") or mine["workspace"]
            values[name], versions[name] = _open(vault, work, workspace_id, secret), secret.version
            scopes[name] = "workspace" if secret.scope == "workspace" else "user_override" if len(mine) > 1 else "user"
        else:
            missing.append(name)
    return Resolution(values, scopes, versions, tuple(missing))


def _open(vault: Vault, work: UnitOfWork, workspace_id: str, secret: SealedSecret) -> str:
    sealed = Sealed(secret.data_key_id, secret.nonce, secret.ciphertext)
    place = _place(secret.scope, secret.owner_id, secret.name, secret.version)
    return vault.unseal(work, workspace_id, sealed, place).decode()


def _place(scope: str, owner_id: str, name: str, version: int) -> dict[str, str]:
    return {"scope": scope, "owner": owner_id, "name": name, "version": str(version)}
