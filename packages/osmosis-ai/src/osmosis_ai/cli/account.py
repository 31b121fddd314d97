"""Logging in and out and saying who one is, as results. The work is done by the client room.

Owns: what a person is told and asked on the way.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, day_text
from osmosis_ai.cli.results import DetailResult, Fields, OperationResult
from osmosis_ai.client.address import active_platform_url
from osmosis_ai.client.credentials import TOKEN_VARIABLE, environment_token, resolve_credential
from osmosis_ai.client.logins import load_login
from osmosis_ai.errors import (
    ConflictError,
    CredentialsDamagedError,
    CredentialsVersionError,
    InteractiveRequiredError,
    OsmosisError,
)

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.client.account import Account
    from osmosis_ai.client.login import DeviceCode
    from osmosis_ai.client.logins import Login

_NEXT_STEPS = [
    {
        "action": "platform.clone_repository",
        "description": "Create or open a workspace on the platform, then clone the repository that belongs to it.",
    },
    {"action": "doctor", "description": "In the clone, run `osmosis doctor`."},
]


def log_in(output: Output, token: str | None) -> OperationResult:
    """`auth login`: by a personal token, or in a browser.

    Raises:
        ConflictError: `OSMOSIS_TOKEN` is set, which takes the place of every stored login.
        InteractiveRequiredError: Nobody can follow a browser login in this format.
        OsmosisError: The platform refuses, or the login cannot be stored.
    """
    if environment_token(os.environ):
        raise ConflictError(
            f"{TOKEN_VARIABLE} is set and takes the place of a stored login, so `auth login` is disabled. Unset it to"
            " log in; where nobody logs in, skip this command."
        )
    if token is None and output.format != "rich":
        raise InteractiveRequiredError(
            f"Logging in needs a person in this mode. Pass --token to store a personal token; where nobody logs in, set"
            f" {TOKEN_VARIABLE} and skip 'auth login'."
        )
    from_browser = token is None
    account, login = store_login(output, _read_token(output) if token == "-" else token)  # noqa: S105
    return OperationResult(
        operation="auth.login",
        resource={
            "email": account.user.email,
            "name": account.user.name,
            "expires_at": account.expires_at.isoformat(),
            "platform_url": login.platform_url,
            "workspace": None,
            "source": "device" if from_browser else "token",
            "verified": True,
            "saved": True,
            "token_store": login.token_store,
        },
        message=f"Logged in as {account.user.email}.",
        next_steps=[str(step["description"]) for step in _NEXT_STEPS],
        next_steps_structured=_NEXT_STEPS,
    )


def store_login(output: Output, token: str | None = None) -> tuple[Account, Login]:
    """Make and store a login for the active platform.

    Raises:
        OsmosisError: The platform refuses, or the login cannot be stored.
    """
    from osmosis_ai.client.login import login_with_device, login_with_token

    platform_url = active_platform_url()
    if token is not None:
        with output.working("Verifying token..."):
            return login_with_token(platform_url, token, warn=output.warn)
    return login_with_device(platform_url, lambda code: _show_code(output, code), warn=output.warn)


def log_out(output: Output, *, yes: bool) -> OperationResult:
    """`auth logout`.

    Raises:
        InteractiveRequiredError: Nobody can be asked.
        Cancelled: The answer was no.
        OsmosisError: The stored login cannot be removed.
    """
    platform_url = active_platform_url()
    from_environment = environment_token(os.environ) is not None
    unset = f"{TOKEN_VARIABLE} is set. Run 'unset {TOKEN_VARIABLE}' to log out."
    resource: dict[str, Any] = {"logged_in": from_environment}
    after = {
        "persistent_login": False,
        "effective_source": "environment" if from_environment else None,
        "platform_url": platform_url,
    }
    steps = [{"action": "unset_env", "name": TOKEN_VARIABLE}] if from_environment else []
    if not _has_stored_login(platform_url):
        set_in_environment = {"env_token_set": True} if from_environment else {}
        return OperationResult(
            operation="auth.logout",
            status="noop",
            resource={**resource, **set_in_environment, **after},
            message=unset if from_environment else "Not logged in.",
            next_steps_structured=steps,
        )
    if not yes:
        if not output.interactive:
            raise InteractiveRequiredError("Use --yes to confirm in non-interactive mode.")
        output.confirm(f"Log out of {platform_url}?", default=False, summary={})
    from osmosis_ai.client.login import logout

    with output.working("Logging out..."):
        done = logout(platform_url, warn=output.warn)
    return OperationResult(
        operation="auth.logout",
        resource={**resource, "revoked": done.revoked, "env_token_set": from_environment, **after},
        message="The saved login is removed; the environment's token is still in use."
        if from_environment
        else "Logged out.",
        next_steps=[unset] if from_environment else [],
        next_steps_structured=steps,
    )


def who_am_i(output: Output) -> DetailResult:
    """`auth whoami`: asks the platform, and for the workspace of the repository around the current directory.

    Raises:
        AuthRequiredError: No login, or one that is not accepted.
        OsmosisError: The platform cannot be asked.
    """
    credential = resolve_credential(warn=output.warn)
    from osmosis_ai.client.account import verify
    from osmosis_ai.client.scope import find_git_scope

    scope = find_git_scope()
    with output.working("Verifying token..."):
        account = verify(credential, warn=output.warn, scope=scope)
    stored = _stored_login(credential.platform_url)
    expires_at = account.expires_at
    if not account.end_stated and stored is not None and credential.source == "credentials":
        expires_at = stored.expires_at
    facts: dict[str, Any] = {
        "email": account.user.email,
        "name": account.user.name,
        "expires_at": expires_at.isoformat(),
        "platform_url": credential.platform_url,
        "source": credential.source,
        "effective_source": credential.effective_source,
        "persistent_login": stored is not None,
    }
    token_id = {"token_id": account.token_id} if account.token_id else {}
    rows = [
        ("Email", account.user.email),
        ("Name", account.user.name or ABSENT),
        ("Platform", credential.platform_url),
        ("Auth Source", credential.effective_source),
        ("Saved Login", f"yes ({stored.token_store})" if stored else "no"),
        ("Expires", day_text(expires_at.isoformat())),
    ]
    if account.workspace is not None:
        rows += [("Workspace", account.workspace.name), ("Role", account.workspace.role or ABSENT)]
    return DetailResult(
        data={
            "account": {**facts, **token_id},
            **facts,
            "workspace": account.workspace.to_json() if account.workspace else None,
        },
        blocks=[Fields(rows)],
        title="Account",
    )


def _read_token(output: Output) -> str:
    """The token from standard input, where neither a list of processes nor a shell's history shows it."""
    if output.interactive:
        return output.ask_hidden("Token")
    import sys

    return sys.stdin.readline().strip()


def _has_stored_login(platform_url: str) -> bool:
    """Whether there is something to remove; damaged metadata counts."""
    try:
        return load_login(platform_url) is not None
    except (CredentialsDamagedError, CredentialsVersionError):
        return True


def _stored_login(platform_url: str) -> Login | None:
    try:
        return load_login(platform_url)
    except OsmosisError:
        return None


def _show_code(output: Output, code: DeviceCode) -> None:
    """Tell the code, put it on the clipboard, open the page."""
    from osmosis_ai.cli.desktop import copy_text, open_page

    copied = copy_text(code.user_code) if output.interactive else ""
    page = code.complete_uri or code.uri
    output.present(
        Fields(
            [("Code", f"{code.user_code}  ({copied})" if copied else code.user_code), ("Page", page)], title="Log in"
        )
    )
    opened = output.interactive and open_page(page)
    output.note(
        "Confirm the code in the browser that has opened. Waiting..."
        if opened
        else "Open the page in a browser and confirm the code. Waiting..."
    )
