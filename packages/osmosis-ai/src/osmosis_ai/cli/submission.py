"""A managed training or evaluation from a config file to the submitted run: one flow for both.

Owns: the order in which things are checked, told and asked: scope, config, import, source, secrets, consent, request.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.results import Block, Cell, Fields, Lines, OperationResult, Text
from osmosis_ai.cli.submit_secrets import SubmitSecrets, explain_missing, gather_secrets
from osmosis_ai.errors import NotFoundError, OsmosisError, PlatformError, UnreachableError, ValidationError
from osmosis_ai.workspace.entrypoint_check import check_entrypoint
from osmosis_ai.workspace.eval_config import EvalConfig, load_eval_config, locate_eval_config
from osmosis_ai.workspace.source_pin import AskUpstream, Notice, plan_source
from osmosis_ai.workspace.training_config import TrainingFile, load_training_config, locate_training_config

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import GitScope, Scope
    from osmosis_ai.client.session import PlatformClient

type Config = EvalConfig | TrainingFile

HIDDEN = "[given here]"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What differs between the two."""

    group: str
    noun: str
    endpoint: str
    locate: Callable[[Path, Path, str], Path]
    load: Callable[[Path, Path], Config]
    request: Callable[[Any], dict[str, Any]]


def _eval_request(config: EvalConfig) -> dict[str, Any]:
    return {"evaluation_config": dict(config.evaluation)}


def _training_request(config: TrainingFile) -> dict[str, Any]:
    return {
        "training_config": dict(config.training),
        "sampling_config": dict(config.sampling),
        "checkpoints_config": dict(config.checkpoints),
    }


_KINDS: Mapping[str, _Kind] = {
    "train": _Kind(
        "train", "training run", "/training-runs", locate_training_config, load_training_config, _training_request
    ),
    "eval": _Kind("eval", "evaluation run", "/eval-runs", locate_eval_config, load_eval_config, _eval_request),
}


def submit(
    invocation: Invocation, group: str, given: str, *, yes: bool, secrets_file: str | None, dry_run: bool
) -> OperationResult:
    """Submit a run with source.

    Args:
        invocation: The root options.
        group: `train` or `eval`.
        given: The config's path as typed; it starts at the root of the work tree.
        yes: Whether the user agreed on the command line.
        secrets_file: Value of `--secrets-file`.
        dry_run: Whether to stop before anything is sent.

    Raises:
        Cancelled: The user said no.
        OsmosisError: A check fails, nobody can be asked, or the platform's error.
    """
    from osmosis_ai.client.session import open_client

    kind = _KINDS[group]
    output = invocation.output
    source, path = _source(invocation.workspace, given)
    with open_client(None, warn=output.warn) as client:
        client.scope = scope = _scope(output, client, source, invocation.workspace)
        command = f"osmosis {group} submit"
        config = kind.load(kind.locate(path, source.work_tree, command), source.work_tree)
        notices: list[Notice] = []
        with output.working("Checking the entrypoint..."):
            problem = check_entrypoint(source.work_tree, config.rollout, config.entrypoint, env=config.env)
        if problem:
            notices.append(Notice("PREFLIGHT_SKIPPED", problem))
        plan = plan_source(
            source.work_tree,
            source.identity,
            branch=config.branch,
            commit_sha=config.commit_sha,
            upstream=_asked_upstream(source),
        )
        notices += plan.notices
        secrets = gather_secrets(output, client, required=config.secret_names, secrets_file=secrets_file)
        notices += secrets.notices
        rows = _summary(config, source, invocation.workspace)
        consent(
            output,
            kind.noun,
            rows,
            dict(sorted(config.env.items())),
            secrets,
            notes=plan.notes,
            notices=notices,
            question=f"Submit this {kind.noun}?",
            yes=yes or dry_run,
        )
        body = _body(config, kind.request(config), secrets)
        resource = _resource(config, source, scope)
        if dry_run:
            return dry_result(f"{group}.submit", kind.endpoint, body, secrets, resource)
        with not_twice(f"osmosis {group} list"):
            with output.working(f"Submitting {kind.noun}..."):
                answer = send(client, kind.endpoint, body)
            return _result(kind, answer, config, resource)


def _source(workspace: str | None, given: str) -> tuple[GitScope, Path]:
    """The repository that holds the config, and the config's absolute path.

    Raises:
        ValidationError: With `--workspace`, the path is not absolute; the repository is not fit.
        WorkspaceRequiredError: Not inside a Git work tree.
    """
    from osmosis_ai.client.scope import resolve_git_scope

    path = Path(given)
    if workspace is not None:
        if not path.is_absolute():
            raise ValidationError(
                "--workspace with a train or eval submit needs an absolute config path: the repository is found from it."
            )
        return resolve_git_scope(_existing_folder(path)), path
    source = resolve_git_scope()
    in_tree = source.work_tree / path
    return source, in_tree if in_tree.exists() or not (Path.cwd() / path).exists() else Path.cwd() / path


def _asked_upstream(source: GitScope) -> AskUpstream:
    """Who knows the commits of the repository: GitHub, where it lies there; else nobody."""

    def ask(identity: str, commit: str) -> bool | None:
        if "github.com" not in source.remote_url.lower():
            return None
        from osmosis_ai.client.commits import commit_on_github

        return commit_on_github(identity, commit)

    return ask


def _existing_folder(path: Path) -> Path:
    folder = next((parent for parent in path.parents if parent.is_dir()), None)
    return folder or Path.cwd()


def _scope(output: Output, client: PlatformClient, source: GitScope, workspace: str | None) -> Scope:
    """The scope of the requests: the repository's, or the named workspace once it is known to belong to it.

    Raises:
        NotFoundError: The account has no workspace of this name.
        ValidationError: It has no repository, or another one.
    """
    from osmosis_ai.client.scope import WorkspaceScope, named_scope
    from osmosis_ai.client.workspaces import fetch_workspaces, find_named, is_clone_of

    if workspace is None:
        return source
    name = named_scope(workspace).name
    with output.working("Checking the workspace..."):
        workspaces = fetch_workspaces(client)
    found = find_named(workspaces, name)
    if found is None:
        known = ", ".join(one.name for one in workspaces) or "none"
        raise NotFoundError(f"This account has no workspace {name!r}. It has: {known}.")
    connected = found.repository
    if connected is None:
        raise ValidationError(
            f"Workspace {name!r} has no connected repository, and this run takes its code from one; connect it first."
        )
    if not is_clone_of(source.identity, connected, found.clone_url):
        raise ValidationError(
            f"Workspace {name!r} is connected to {connected}, but the config belongs to {source.identity}."
        )
    return WorkspaceScope(name, source.work_tree)


def _summary(config: Config, source: GitScope, workspace: str | None) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [("Workspace", workspace.strip())] if workspace is not None else []
    rows += [
        ("Repository", source.identity),
        ("Rollout", config.rollout),
        ("Entrypoint", config.entrypoint),
        ("Model", config.model_path),
        ("Dataset", config.dataset),
    ]
    if config.branch:
        rows.append(("Branch", config.branch))
    if config.commit_sha:
        rows.append(("Commit", config.commit_sha[:7]))
    return rows


def consent(
    output: Output,
    noun: str,
    rows: list[tuple[str, Cell]],
    env: Mapping[str, str],
    secrets: SubmitSecrets,
    *,
    notes: tuple[str, ...],
    notices: list[Notice],
    question: str,
    yes: bool,
) -> None:
    """Show what is about to happen and ask; with `yes` notices are warnings, in every format.

    Raises:
        Cancelled: The answer was no.
        InteractiveRequiredError: Nobody can be asked; `details` holds all of it.
    """
    variables: list[tuple[str, Cell]] = list(env.items())
    sources: list[tuple[str, Cell]] = list(secrets.sources.items())
    if yes or output.interactive:
        blocks: list[Block] = [
            Fields(rows, title=noun.capitalize()),
            Fields(variables, title="Environment Variables"),
            Fields(sources, title="Secrets"),
        ]
        output.present(*blocks)
    if yes:
        output.present(Lines([Text(note, "dim") for note in notes]))
        for notice in notices:
            # A program that pins nothing would hear this at every submit, also when nothing here differs.
            if output.format != "json" or len(notices) > 1 or notice.code != "SOURCE_NOT_PINNED":
                output.warn(notice.message, notice.code)
        return
    # A failed look-up stands beside each secret that it leaves unknown, so it needs no line of its own.
    asides = [notice.message for notice in notices if notice not in secrets.notices]
    summary = {label: str(value) for label, value in rows}
    summary |= {f"env.{name}": str(value) for name, value in variables}
    summary |= {f"secret.{name}": str(value) for name, value in sources}
    output.confirm(question, default=True, summary=summary, notes=notes, warnings=asides)


def _body(config: Config, own: Mapping[str, Any], secrets: SubmitSecrets) -> dict[str, Any]:
    """The request; parts with nothing in them are left out."""
    experiment = {
        "rollout": config.rollout,
        "entrypoint": config.entrypoint,
        "model_path": config.model_path,
        "dataset": config.dataset,
        "branch": config.branch,
        "commit_sha": config.commit_sha,
    }
    body = {
        "experiment_config": {key: value for key, value in experiment.items() if value is not None},
        **own,
        "advanced_config": dict(config.advanced),
        "env_config": dict(config.env),
    }
    body = {key: value for key, value in body.items() if value}
    if secrets.required:
        provided = {"provided": dict(secrets.provided)} if secrets.provided else {}
        body["secrets"] = {"required": list(secrets.required), **provided}
    return body


@contextmanager
def not_twice(listing: str) -> Generator[None]:
    """Around a submit and the reading of its answer: where the run may exist although this failed, say where to look.

    Args:
        listing: The command that lists such runs.

    Raises:
        PlatformError: With that remedy.
    """
    try:
        yield
    except PlatformError as error:
        lost = error.details.get("status_code") in (None, 502, 504) and not isinstance(error, UnreachableError)
        if lost:
            error.message += f"\nThe run may exist all the same. Look before you submit it again: {listing}"
        raise


def send(client: PlatformClient, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Make the request of a submit.

    Raises:
        OsmosisError: The platform's error, with the commands that mend it.
        ValidationError: A value of the config cannot be written as JSON, such as a date.
    """
    import json

    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"The config holds a value that cannot be sent: {error}. Write it as a string.") from None
    try:
        return client.post(endpoint, body)
    except OsmosisError as error:
        raise explain_missing(error) from None


def dry_result(
    operation: str, endpoint: str, body: Mapping[str, Any], secrets: SubmitSecrets, resource: Mapping[str, Any]
) -> OperationResult:
    """What would be sent, without the values of secrets."""
    import json

    from osmosis_ai.client.session import API_PREFIX

    shown = dict(body)
    if secrets.provided:
        shown["secrets"] = {**body["secrets"], "provided": dict.fromkeys(secrets.provided, HIDDEN)}
    text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    return OperationResult(
        operation=operation,
        status="noop",
        resource={
            "dry_run": True,
            "request": {"method": "POST", "path": f"{API_PREFIX}{endpoint}", "body": json.loads(text)},
            **resource,
        },
        message="Nothing was sent: without --dry-run it is the request shown.",
        blocks=[Lines(text.splitlines(), title=f"POST {API_PREFIX}{endpoint}")],
    )


def _resource(config: Config, source: GitScope, scope: Scope) -> dict[str, Any]:
    return {
        **source.extras(),
        **scope.extras(),
        "config": {
            "rollout": config.rollout,
            "entrypoint": config.entrypoint,
            "model": config.model_path,
            "dataset": config.dataset,
            "branch": config.branch,
            "commit_sha": config.commit_sha,
        },
    }


def _result(kind: _Kind, answer: dict[str, Any], config: Config, resource: dict[str, Any]) -> OperationResult:
    from osmosis_ai.client.wire import Record

    reply = Record(answer, "answer")
    name, url = reply.text("name"), reply.maybe_text("platform_url")
    steps: list[dict[str, str]] = [
        {"action": f"{kind.group}_info", "name": name},
        {"action": f"{kind.group}_list"},
        *([{"action": "open_url", "url": url}] if url else []),
    ]
    return OperationResult(
        operation=f"{kind.group}.submit",
        resource={
            "id": reply.text("id"),
            "name": name,
            "status": reply.text("status"),
            "model_name": config.model_path,
            "dataset_name": config.dataset,
            "created_at": reply.text("created_at"),
            **({"url": url} if url else {}),
            **resource,
        },
        message=f"{kind.noun.capitalize()} submitted: {name}",
        next_steps=[
            f"Status: {reply.text('status')} (osmosis {kind.group} info {shlex.quote(name)} --watch follows it)",
            f"Rollout: {config.rollout}",
            f"Model: {config.model_path}",
            f"Dataset: {config.dataset}",
            *([f"View: {url}"] if url else []),
        ],
        next_steps_structured=steps,
    )
