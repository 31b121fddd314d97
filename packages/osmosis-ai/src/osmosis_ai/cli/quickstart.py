"""The set-up wizard: login, workspace, repository, clone, billing, goal. Each step looks before it does anything.

Owns: the order of the steps and their questions. Cloning is `cloning`'s, the texts for agents are `agent_prompt`'s.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from osmosis_ai.cli.account import store_login
from osmosis_ai.cli.cloning import find_clone, make_clone
from osmosis_ai.cli.output import Cancelled
from osmosis_ai.cli.results import Lines, OperationResult, Text
from osmosis_ai.client.address import PRODUCTION_URL
from osmosis_ai.client.credentials import environment_token, resolve_credential
from osmosis_ai.client.session import PlatformClient, open_client
from osmosis_ai.client.workspaces import (
    AccountWorkspace,
    SetUp,
    create_workspace,
    fetch_set_up,
    fetch_workspaces,
    find_named,
    is_clone_of,
    record_intent,
)
from osmosis_ai.errors import (
    AuthRequiredError,
    ConflictError,
    InteractiveRequiredError,
    NotFoundError,
    OsmosisError,
    PlatformError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from osmosis_ai.cli.output import Output
    from osmosis_ai.client.workspaces import Intent

MANUAL = "https://docs.osmosis.ai/platform/onboarding#manual-setup"
POLL_S = 5.0
PATIENCE_S = 900.0
_GOALS: tuple[tuple[str, Intent], ...] = (
    ("Train a model", "train"),
    ("Evaluate a model on a dataset", "eval"),
    ("Run a benchmark", "benchmark"),
    ("Look around first", "explore"),
)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What the steps before the goal have found."""

    workspace: AccountWorkspace
    repository: str
    directory: Path


def run_wizard(output: Output, workspace: str | None) -> OperationResult:
    """`quickstart`.

    Args:
        output: Where it speaks and asks.
        workspace: Value of `--workspace`, or None.

    Raises:
        InteractiveRequiredError: Nobody can answer.
        OsmosisError: The platform's error, no workspace, no git.
        click.exceptions.Exit: Cancelled, with status 130.
    """
    if output.format != "rich":
        raise InteractiveRequiredError(
            "osmosis quickstart asks questions and prints a text for a coding agent, so it cannot run with --json or"
            f" --plain. Set the workspace up by hand: {MANUAL}"
        )
    if not output.interactive:
        raise InteractiveRequiredError(
            f"osmosis quickstart needs a terminal to ask questions. Set the workspace up by hand: {MANUAL}"
        )
    try:
        return _run(output, workspace)
    except Cancelled:
        output.cancelled()
        raise click.exceptions.Exit(130) from None


def _run(output: Output, wanted: str | None) -> OperationResult:
    workspaces = _log_in(output)
    with open_client(None, warn=output.warn) as client:
        chosen = _choose_workspace(client, workspaces, wanted)
        _done(output, f"Workspace {chosen.name}")
        set_up = _wait_for_repository(output, client, chosen)
        repository = set_up.repository or ""
        _done(output, f"Repository {repository} is connected")
        directory = find_clone(client.platform_url, chosen.id, set_up)
        if directory is None:
            directory = make_clone(output, client.platform_url, chosen.id, set_up)
        _done(output, f"Clone at {directory}")
        billing = _check_billing(output, client, chosen, set_up)
        intent = _ask_goal()
        ready = _Ready(chosen, repository, directory)
        result = _tell(output, client, ready, intent, billing)
        try:
            record_intent(client, chosen.id, intent)
        except OsmosisError as error:
            output.warn(f"The platform did not record that the set-up is complete: {error.message}")
    return result


def _log_in(output: Output) -> list[AccountWorkspace]:
    """The account's workspaces, by a login that works; a new one is made where there is none."""
    fresh = False
    try:
        resolve_credential(warn=output.warn)
    except AuthRequiredError:
        store_login(output)
        fresh = True
    try:
        workspaces = _fetch(output)
    except AuthRequiredError:
        if fresh or environment_token(os.environ):
            raise
        output.note("The saved login is not accepted any more; log in again.")
        store_login(output)
        workspaces = _fetch(output)
    _done(output, "Logged in")
    return workspaces


def _fetch(output: Output) -> list[AccountWorkspace]:
    with open_client(None, warn=output.warn) as client, output.working("Fetching workspaces..."):
        found = fetch_workspaces(client)
    return found or [_make_workspace(output)]


def _make_workspace(output: Output) -> AccountWorkspace:
    """The account's first workspace, where the platform is not the production one, which makes them on its pages."""
    from osmosis_ai.cli.prompts import ask_text

    with open_client(None, warn=output.warn) as client:
        where = f"{client.platform_url}, then run 'osmosis quickstart' again."
        if client.platform_url == PRODUCTION_URL:
            raise NotFoundError(f"This account belongs to no workspace yet. Create one at {where}")
        output.present(
            Lines(["This account belongs to no workspace yet. To join one, ask its owner for an invitation."])
        )
        while True:
            try:
                return create_workspace(client, ask_text("Name of a new workspace"))
            except (ConflictError, ValidationError) as error:
                output.note(error.message)
            except NotFoundError:
                raise NotFoundError(f"This account belongs to no workspace yet. Create one at {where}") from None


def _choose_workspace(
    client: PlatformClient, workspaces: Sequence[AccountWorkspace], wanted: str | None
) -> AccountWorkspace:
    if wanted is not None:
        found = find_named(workspaces, wanted.strip(), any_case=True)
        if found is None:
            names = ", ".join(one.name for one in workspaces[:20])
            raise NotFoundError(f"This account belongs to no workspace called {wanted.strip()!r}. There is: {names}.")
        return found
    from osmosis_ai.client.scope import find_git_scope

    scope = find_git_scope()
    if scope is not None:
        for one in workspaces:
            if one.repository and is_clone_of(scope.identity, one.repository, one.clone_url):
                return one
    if len(workspaces) == 1:
        return workspaces[0]
    from osmosis_ai.cli.prompts import choose

    labels = [f"{one.name}  ({one.repository or 'no repository yet'})" for one in workspaces]
    return workspaces[choose("Which workspace?", labels)]


def _wait_for_repository(output: Output, client: PlatformClient, workspace: AccountWorkspace) -> SetUp:
    """Wait until the workspace has a repository."""
    set_up = fetch_set_up(client, workspace.id)
    if not set_up.connected:
        page = _page(client, workspace, "integrations/git")
        output.present(Lines([f"The workspace has no repository yet. Connect one here: {page}"]))
        end = time.monotonic() + PATIENCE_S
        with output.working("Waiting for the repository (Ctrl-C stops)..."):
            while not set_up.connected and time.monotonic() < end:
                time.sleep(POLL_S)
                with contextlib.suppress(PlatformError):  # a moment without an answer does not end the waiting
                    set_up = fetch_set_up(client, workspace.id)
        if not set_up.connected:
            raise PlatformError(
                f"No repository was connected within {PATIENCE_S / 60:.0f} minutes. Connect one at {page}, then run"
                " 'osmosis quickstart' again."
            )
    if not set_up.repository:
        raise PlatformError("The platform says that a repository is connected, but not which one.")
    return set_up


def _check_billing(output: Output, client: PlatformClient, workspace: AccountWorkspace, set_up: SetUp) -> bool:
    """Report billing; where it is missing, give time to set it up and look once more."""
    if not set_up.billing_ready:
        from osmosis_ai.cli.prompts import pause

        page = _page(client, workspace, "billing")
        output.present(Lines([f"Billing is not set up; managed runs need it. Set it up here: {page}"]))
        pause("Press Enter to go on, now or when it is done.")
        set_up = fetch_set_up(client, workspace.id)
    if set_up.billing_ready:
        _done(output, "Billing is set up")
    else:
        output.warn("Billing is still missing: local evaluations work, managed runs will be refused.")
    return set_up.billing_ready


def _ask_goal() -> Intent:
    from osmosis_ai.cli.prompts import choose

    return _GOALS[choose("What do you want to do first?", [label for label, _ in _GOALS])][1]


def _tell(output: Output, client: PlatformClient, ready: _Ready, intent: Intent, billing: bool) -> OperationResult:
    """The text for the goal, on the screen and the clipboard."""
    from osmosis_ai.cli.agent_prompt import DOCS, agent_prompt

    resource = {
        "workspace": {"id": ready.workspace.id, "name": ready.workspace.name},
        "repository": ready.repository,
        "workspace_directory": str(ready.directory),
        "billing_ready": billing,
        "intent": intent,
        "platform_url": client.platform_url,
    }
    steps = [f"cd {shlex.quote(str(ready.directory))}"]
    if intent == "explore":
        return OperationResult(
            operation="quickstart", resource=resource, message="Ready.",
            blocks=[Lines([f"{title}: {url}" for title, url in DOCS], title="Where to read on")], next_steps=steps,
        )  # fmt: skip
    task = None
    if intent in ("train", "eval"):
        from osmosis_ai.cli.prompts import ask_text

        task = ask_text("What should the agent be able to do? One sentence")
    text = agent_prompt(intent, task, ready.workspace.name, ready.directory)
    from osmosis_ai.cli.desktop import copy_text

    copied = f" It is {where}." if (where := copy_text(text)) else ""
    return OperationResult(
        operation="quickstart", resource={**resource, "agent_prompt": text},
        message=f"Ready. Give the text above to your coding agent in the clone.{copied}",
        blocks=[Lines(text.splitlines(), title="For your coding agent")], next_steps=steps,
    )  # fmt: skip


def _page(client: PlatformClient, workspace: AccountWorkspace, rest: str) -> str:
    return f"{client.platform_url}/{quote(workspace.name, safe='')}/{rest}"


def _done(output: Output, text: str) -> None:
    output.present(Lines([Text(f"✓ {text}", "good")]))
