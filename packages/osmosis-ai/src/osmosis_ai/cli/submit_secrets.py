"""The secrets of a managed run: which values are given here, which the platform has, which nobody has yet.

Owns: the order file, environment, stored record, hidden prompt, and how each is told. Values given here travel in the
one request only; they enter no summary, message or file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from osmosis_ai.cli.dates import ABSENT
from osmosis_ai.errors import InteractiveRequiredError, NotFoundError, OsmosisError, ValidationError
from osmosis_ai.workspace.secrets import check_sendable, read_secrets_file
from osmosis_ai.workspace.source_pin import Notice

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.client.session import PlatformClient

_GIVEN = "Run"
_FATAL = ("AUTH_REQUIRED", "UPGRADE_REQUIRED")


@dataclass(frozen=True, slots=True)
class SubmitSecrets:
    """What a submit says about secrets.

    Attributes:
        required: The names of `[secrets].required`.
        provided: Values found here, for names of `required` only.
        sources: For every secret of the run, in order: `Run`, `Workspace`, `Personal`,
            `Personal (overrides workspace)`, or a dash where it is not known.
        notices: What went wrong on the way and does not stop the submit.
    """

    required: tuple[str, ...] = ()
    provided: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


def gather_secrets(
    output: Output,
    client: PlatformClient,
    *,
    required: Sequence[str],
    referenced: Sequence[str] = (),
    secrets_file: str | None,
) -> SubmitSecrets:
    """Find the values of a run's secrets, and ask for those that nobody has.

    Args:
        output: Asks and warns.
        client: Knows the stored records.
        required: Names whose values may be given here.
        referenced: Every name of the run; those beyond `required` must be stored.
        secrets_file: Value of `--secrets-file`.

    Raises:
        InteractiveRequiredError: Names of `required` have no value and nobody can be asked; `details` names all.
        ValidationError: Other names are not stored (the message has the commands that store them), or the secrets file
            is wrong.
        OsmosisError: The platform refuses the login.
    """
    names = tuple(dict.fromkeys([*referenced, *required]))
    file_values = read_secrets_file(secrets_file) if secrets_file else {}
    if not names:
        return SubmitSecrets()
    client.hide(*file_values.values())
    provided = {name: value for name in required if (value := file_values.get(name) or os.environ.get(name))}
    provided = {name: check_sendable(name, value) for name, value in provided.items()}
    client.hide(*provided.values())
    stored, notices = _stored_scopes(client)
    if stored is not None:
        _refuse_unstored([name for name in names if name not in required and name not in stored])
        ask = output.ask_hidden if output.interactive else None
        provided |= _asked([name for name in required if name not in provided and name not in stored], ask)
        client.hide(*provided.values())
    unknown = f"not known: {notices[0].message}" if notices else ABSENT
    sources = {name: _GIVEN if name in provided else (stored or {}).get(name, unknown) for name in names}
    return SubmitSecrets(tuple(required), provided, sources, notices)


def _stored_scopes(client: PlatformClient) -> tuple[dict[str, str] | None, tuple[Notice, ...]]:
    """Where each stored secret lies, in words; None, and why, when the platform could not be asked."""
    try:
        page = client.pages("/environment-secrets", key="environment_secrets", fetch_all=True, params={"scope": "all"})
    except OsmosisError as error:
        if error.error_code in _FATAL:
            raise
        message = (
            "The stored secrets could not be looked up, so the platform resolves what is not given here:"
            f" {error.message}"
        )
        return None, (Notice("SECRET_LOOKUP_FAILED", message),)
    scopes: dict[str, set[str]] = {}
    for item in page.items:
        scopes.setdefault(item.text("name"), set()).add(item.text("scope"))
    words = {}
    for name, found in scopes.items():
        personal = bool(found & {"user", "personal"})
        both = personal and "workspace" in found
        words[name] = "Personal (overrides workspace)" if both else "Personal" if personal else "Workspace"
    return words, ()


def _refuse_unstored(names: list[str]) -> None:
    if names:
        commands = "\n".join(f"  osmosis secret set {name}" for name in names)
        raise ValidationError(
            f"These secrets must be stored before the run, and are not: {', '.join(names)}. Store them with:\n{commands}"
        )


def _asked(names: list[str], ask: Callable[[str], str] | None) -> dict[str, str]:
    if not names:
        return {}
    if ask is None:
        raise InteractiveRequiredError(
            f"No value found for: {', '.join(names)}. Export them, pass --secrets-file, or store them with"
            " `osmosis secret set NAME`.",
            details={"missing": names, "flags": ["--secrets-file"]},
        )
    return {name: ask(name) for name in names}


def explain_missing(error: OsmosisError) -> OsmosisError:
    """Add the commands that store the secrets which the platform says are missing."""
    _, found, names = error.message.partition("Secret(s) not found:")
    if isinstance(error, NotFoundError) and found:
        wanted = [name.strip(" .") for name in names.splitlines()[0].split(",")]
        commands = "\n".join(f"  osmosis secret set {name}" for name in wanted if name.replace("_", "").isalnum())
        error.message += f"\nStore them with:\n{commands}" if commands else ""
        if isinstance(url := error.details.get("platform_url"), str):
            error.message += f"\nOr on {url}"
    return error
