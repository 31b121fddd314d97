"""Secrets of a workspace as results: the list, setting one, deleting one. Values are never shown and never arguments.

Owns the names' and scopes' rules. How a value is asked for is the output's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, date_cell
from osmosis_ai.cli.listing import Listing
from osmosis_ai.cli.paging import check_paging
from osmosis_ai.cli.results import Cell, Column, ListResult, OperationResult
from osmosis_ai.errors import InteractiveRequiredError, NotFoundError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

SCOPES = ("personal", "workspace")
_WIRE_SCOPES = {"personal": "user", "workspace": "workspace", "all": "all"}
_SHOWN_SCOPES = {"user": "personal"}
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_LONGEST_NAME = 255
_PATH = "/environment-secrets"
_KEY = "environment_secrets"


def secret_record(secret: Record) -> dict[str, Any]:
    """A secret's metadata with the keys of the JSON contract."""
    scope = secret.maybe_text("scope") or ""
    return {
        "id": secret.text("id"),
        "name": secret.maybe_text("name") or "",
        "scope": _SHOWN_SCOPES.get(scope, scope),
        "created_at": secret.maybe_text("created_at") or "",
        "updated_at": secret.maybe_text("updated_at") or "",
        "creator_name": secret.maybe_text("creator_name"),
        "updater_name": secret.maybe_text("updater_name"),
    }


def _row(item: Mapping[str, Any]) -> list[Cell]:
    return [item["name"], item["scope"].capitalize(), date_cell(item["updated_at"]), item["updater_name"] or ABSENT]


def list_secrets(invocation: Invocation, scope: str, limit: int, everything: bool) -> ListResult:
    """The secrets one can see, without their values.

    Raises:
        ValidationError: An unknown scope, or options that exclude each other.
        OsmosisError: No workspace, no login, or the platform's error.
    """
    if scope not in _WIRE_SCOPES:
        raise ValidationError(f"--scope must be 'all', 'workspace' or 'personal', not {scope!r}.")
    check_paging(limit, everything)
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    listing = Listing(
        path=_PATH,
        key=_KEY,
        record=secret_record,
        columns=(Column("Name", keep=True), Column("Scope"), Column("Updated"), Column("Updated By")),
        row=_row,
        empty="There are no secrets here yet. Store one: osmosis secret set OPENAI_API_KEY",
        params={"scope": _WIRE_SCOPES[scope]},
    )
    found = resolve_scope(invocation.workspace)
    with open_client(found, warn=invocation.output.warn) as client, invocation.output.working("Fetching secrets..."):
        page = listing.fetch(client, limit, everything)
    url = page.reply.maybe_text("platform_url")
    extras = {**found.extras(), **({"platform_url": url} if url else {})}
    return listing.result(page, extras=extras, hints=[f"View secrets: {url}"] if url else [])


def set_secret(invocation: Invocation, name: str, scope: str, variable: str | None) -> OperationResult:
    """Create a secret or give it a new value, from an environment variable or a hidden prompt.

    Raises:
        ValidationError: The name, the scope or the variable will not do.
        InteractiveRequiredError: No variable is named and nobody can be asked.
        Cancelled: The user left the prompt.
        OsmosisError: No workspace, no login, or the platform's error; the value is cut out of it.
    """
    check_name(name)
    _check_scope(scope)
    output = invocation.output
    if variable is not None and not variable.strip():
        raise ValidationError("--env needs the name of the environment variable that holds the value.")
    if variable is None and not output.interactive:
        raise InteractiveRequiredError(
            "A value is needed: name the environment variable that holds it with --env, or run this at a terminal to"
            " type it unseen.",
            details={"flags": ["--env"]},
        )
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client
    from osmosis_ai.client.wire import Record

    found = resolve_scope(invocation.workspace)
    with open_client(found, warn=output.warn) as client:
        value = output.ask_hidden(f"Value of {name}") if variable is None else _from_environment(variable)
        client.hide(value)
        with output.working(f'Saving secret "{name}"...'):
            reply = client.post(_PATH, {"name": name, "value": value, "scope": _WIRE_SCOPES[scope]})
    secret = Record(reply, "secret")
    url = secret.maybe_text("platform_url")
    return OperationResult(
        operation="secret.set",
        resource={**secret_record(secret), **found.extras()},
        message=f'Secret "{name}" saved in {scope} scope.',
        next_steps=[f"View secrets: {url}"] if url else [],
        next_steps_structured=[{"action": "view_secrets", "url": url}] if url else [],
        extras={"platform_url": url} if url else {},
    )


def delete_secret(invocation: Invocation, name: str, scope: str, *, yes: bool) -> OperationResult:
    """Delete a secret after a question.

    Raises:
        ValidationError: The name or the scope will not do.
        NotFoundError: There is none of that name in the scope; says so when the other scope has it.
        InteractiveRequiredError: Without `yes` where nobody can be asked.
        Cancelled: The answer was no.
        OsmosisError: No workspace, no login, or the platform's error.
    """
    check_name(name)
    _check_scope(scope)
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    found = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(found, warn=output.warn) as client:
        _require_present(client, name, scope)
        if not yes:
            output.confirm(
                f'Delete {scope} secret "{name}"? This cannot be undone.',
                default=False,
                summary={"Name": name, "Scope": scope},
            )
        with output.working(f'Deleting secret "{name}"...'):
            client.delete(_PATH, {"name": name, "scope": _WIRE_SCOPES[scope]})
    return OperationResult(
        operation="secret.delete",
        resource={"name": name, "scope": scope, **found.extras()},
        message=f'Secret "{name}" deleted from {scope} scope.',
    )


def check_name(name: str) -> None:
    """Check the form of a secret's name.

    Raises:
        ValidationError: It is not capital letters, digits and underscores after a first letter, or too long.
    """
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
        hint = f" Did you mean {near}?" if near != name and _NAME.fullmatch(near) else ""
        raise ValidationError(
            f"Secret name {name!r} must be capital letters, digits and '_', starting with a letter"
            f" (^[A-Z][A-Z0-9_]*$).{hint}"
        )
    if len(name) > _LONGEST_NAME:
        raise ValidationError(f"A secret's name has at most {_LONGEST_NAME} characters; this one has {len(name)}.")


def _check_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise ValidationError(f"--scope must be 'workspace' or 'personal', not {scope!r}.")


def _from_environment(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        state = "not set" if value is None else "empty"
        raise ValidationError(f"The environment variable {variable} is {state}; nothing was saved.")
    from osmosis_ai.workspace.secrets import check_sendable

    return check_sendable(variable, value)


def _require_present(client: PlatformClient, name: str, scope: str) -> None:
    if _is_stored(client, name, scope):
        return
    other = next(known for known in SCOPES if known != scope)
    if _is_stored(client, name, other):
        raise NotFoundError(
            f'Secret "{name}" not found in {scope} scope.\nDid you mean: osmosis secret delete {name} --scope {other}'
        )
    raise NotFoundError(f'Secret "{name}" not found. See the names: osmosis secret list')


def _is_stored(client: PlatformClient, name: str, scope: str) -> bool:
    page = client.pages(_PATH, key=_KEY, fetch_all=True, params={"scope": _WIRE_SCOPES[scope]})
    return any(item.maybe_text("name") == name for item in page.items)
