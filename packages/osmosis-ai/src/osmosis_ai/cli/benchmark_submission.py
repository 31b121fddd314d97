"""A benchmark run from a config file to the submitted run.

Owns: its summary and its request. The config's rules are the workspace room's, consent and secrets are `submission`'s.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.results import Cell, OperationResult
from osmosis_ai.cli.submission import consent, dry_result, not_twice, send
from osmosis_ai.cli.submit_secrets import SubmitSecrets, gather_secrets
from osmosis_ai.workspace.benchmark_config import (
    DEFAULT_ATTEMPTS,
    DEFAULT_CONCURRENCY,
    BenchmarkAgent,
    BenchmarkConfig,
    load_benchmark_config,
)

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope

_ENDPOINT = "/benchmark-runs"


def submit_benchmark(
    invocation: Invocation, given: str, *, yes: bool, secrets_file: str | None, dry_run: bool
) -> OperationResult:
    """Submit a benchmark run.

    Args:
        invocation: The root options.
        given: The config's path as typed.
        yes: Whether the user agreed on the command line.
        secrets_file: Value of `--secrets-file`.
        dry_run: Whether to stop before anything is sent.

    Raises:
        Cancelled: The user said no.
        OsmosisError: A check fails, nobody can be asked, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    output = invocation.output
    scope = resolve_scope(invocation.workspace)
    with open_client(scope, warn=output.warn) as client:
        config = load_benchmark_config(Path(given))
        if config.misses_parity:
            output.warn(
                'HLE is usually run on its parity tasks: write task_set = "parity" under [tasks].',
                "HLE_PARITY_RECOMMENDED",
            )
        secrets = gather_secrets(
            output,
            client,
            required=config.secret_names,
            referenced=config.referenced_secrets,
            secrets_file=secrets_file,
        )
        consent(
            output,
            "benchmark run",
            _summary(config, scope),
            _variables(config),
            secrets,
            notes=(),
            notices=list(secrets.notices),
            question="Submit this benchmark run?",
            yes=yes or dry_run,
        )
        body = _body(config, secrets)
        resource = {**scope.extras(), "config": _shown(config)}
        if dry_run:
            return dry_result("benchmark.submit", _ENDPOINT, body, secrets, resource)
        with not_twice("osmosis benchmark runs list"):
            with output.working("Submitting benchmark run..."):
                answer = send(client, _ENDPOINT, body)
            return _result(answer, config, resource)


def _summary(config: BenchmarkConfig, scope: Scope) -> list[tuple[str, Cell]]:
    extras = scope.extras()
    where = (
        ("Workspace", extras["workspace"]["name"])
        if "workspace" in extras
        else ("Repository", extras["git"]["identity"])
    )
    rows: list[tuple[str, Cell]] = [
        where,
        ("Benchmark", config.benchmark),
        ("Tasks", _tasks(config)),
        ("Agents", str(len(config.agents))),
        ("Attempts per task", str(config.execution.get("attempts_per_task", DEFAULT_ATTEMPTS))),
        ("Max concurrent attempts", str(config.execution.get("max_concurrent_attempts", DEFAULT_CONCURRENCY))),
    ]
    for number, agent in enumerate(config.agents, 1):
        rows.append((f"agent.{number} · {agent.harness or 'default'}", agent.model_name))
    return rows


def _variables(config: BenchmarkConfig) -> dict[str, str]:
    """The literal variables of all agents, then those of single ones."""
    found = dict(sorted(config.env.items()))
    for number, agent in enumerate(config.agents, 1):
        for name, value in sorted(agent.env.items()):
            over = " (overrides global)" if name in config.env else ""
            found[f"agent {number} · {name}{over}"] = value
    return found


def _tasks(config: BenchmarkConfig) -> str:
    if names := config.tasks.get("task_names"):
        return ", ".join(names)
    if categories := config.tasks.get("categories"):
        return f"categories: {', '.join(categories)}"
    return f"task set {config.tasks['task_set']}" if "task_set" in config.tasks else "all tasks"


def _agent(agent: BenchmarkAgent) -> dict[str, Any]:
    own = {"harness": agent.harness, "harness_api_key_secret": agent.harness_api_key_secret}
    return {
        **{key: value for key, value in own.items() if value is not None},
        "model": dict(agent.model),
        "env": dict(agent.env),
    }


def _execution(config: BenchmarkConfig) -> dict[str, Any]:
    verifier = {"verifier_secrets": list(config.verifier_secrets)} if config.verifier_secrets else {}
    return {**config.execution, **verifier}


def _shown(config: BenchmarkConfig) -> dict[str, Any]:
    return {
        "experiment": {"benchmark": config.benchmark},
        "tasks": dict(config.tasks),
        "agents": [_agent(agent) for agent in config.agents],
        "execution": _execution(config),
    }


def _body(config: BenchmarkConfig, secrets: SubmitSecrets) -> dict[str, Any]:
    """The request; parts with nothing in them are left out."""
    body = {
        "experiment_config": {"benchmark": config.benchmark},
        "agents": [_agent(agent) for agent in config.agents],
        "tasks_config": dict(config.tasks),
        "execution_config": _execution(config),
        "env_config": dict(config.env),
    }
    body = {key: value for key, value in body.items() if value}
    if secrets.required:
        body["secrets"] = {"required": list(secrets.required), "provided": dict(secrets.provided)}
    return body


def _result(answer: dict[str, Any], config: BenchmarkConfig, resource: dict[str, Any]) -> OperationResult:
    from osmosis_ai.client.wire import Record

    reply = Record(answer, "answer")
    name, url = reply.text("name"), reply.maybe_text("platform_url")
    return OperationResult(
        operation="benchmark.submit",
        resource={
            "id": reply.text("id"),
            "name": name,
            "status": reply.text("status"),
            "benchmark_name": config.benchmark,
            "workflow_id": reply.text("workflow_id"),
            "task_count": reply.integer("task_count"),
            "created_at": reply.text("created_at"),
            **({"platform_url": url} if url else {}),
            **resource,
        },
        message=f"Benchmark run submitted: {name}",
        next_steps=[
            f"Status: {reply.text('status')}",
            f"Benchmark: {config.benchmark}",
            f"Look at it: osmosis benchmark runs info {shlex.quote(name)}",
            *([f"View: {url}"] if url else []),
        ],
        next_steps_structured=[
            {"action": "benchmark_info", "name": name},
            {"action": "benchmark_list"},
            *([{"action": "open_url", "url": url}] if url else []),
        ],
    )
