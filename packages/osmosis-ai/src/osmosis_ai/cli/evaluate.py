"""One local evaluation, from checked flags to a result: preconditions, plan, question, secrets, policy, walk.

Owns: the order in which a user is told and asked things. The walk and its files are the evaluation room's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.cli.eval_flags import EvalFlags
from osmosis_ai.cli.eval_plan import plan_fields
from osmosis_ai.cli.eval_progress import make_progress
from osmosis_ai.cli.eval_report import continuation, noop_result, run_result
from osmosis_ai.cli.local_models import model_name, runs_here
from osmosis_ai.cli.output import Cancelled, Output
from osmosis_ai.cli.preconditions import agree, connect, local_dataset, require_modules, require_rollout
from osmosis_ai.cli.quiet import quiet_libraries
from osmosis_ai.client.scope import takes_any_host
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.rows import select
from osmosis_ai.evaluation.run import EvaluationRun, RunRequest
from osmosis_ai.extras import optional_imports
from osmosis_ai.workspace.eval_config import load_eval_config, locate_eval_config
from osmosis_ai.workspace.repository import (
    find_origin,
    find_work_tree,
    require_directories,
)

if TYPE_CHECKING:
    from osmosis_ai.cli.eval_upload import Published
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.evaluation.dataset import Dataset
    from osmosis_ai.evaluation.report import RunReport
    from osmosis_ai.gateway.policy import Policy

_COMMAND = "osmosis eval run"


def evaluate(output: Output, flags: EvalFlags) -> OperationResult:
    """Run what the flags say.

    Raises:
        OsmosisError: A precondition does not hold, or the run could not start or was broken off.
        Cancelled: The user said no.
    """
    quiet_libraries()
    require_modules("eval", "fastapi", "uvicorn")  # the gateway's server
    work_tree = find_work_tree()
    require_directories(work_tree)
    with ExitStack() as stack:
        client = None
        if flags.dataset_file is None or flags.upload:
            local = "drop --upload" if flags.dataset_file else "pass --dataset-file FILE to evaluate a local file"
            client = stack.enter_context(connect(output, work_tree, local))
        return _evaluate(output, flags, work_tree, client)


def _evaluate(output: Output, flags: EvalFlags, work_tree: Path, client: PlatformClient | None) -> OperationResult:
    config = load_eval_config(locate_eval_config(flags.config, work_tree, _COMMAND), work_tree)
    require_rollout(work_tree, config)
    if flags.model is not None:
        config = replace(config, model_path=model_name(flags.model, work_tree))
    if config.advanced:
        output.warn(f"[advanced] is recorded and has no effect on a local run: {', '.join(config.advanced)}")
    dataset, source = _dataset(output, flags, config.dataset, client)
    selection = select(dataset, rows=flags.rows, limit=config.limit)
    for warning in selection.warnings:
        output.warn(warning)
    request = RunRequest(
        workspace_dir=work_tree,
        config=config,
        dataset=dataset,
        dataset_source=source,
        selection=selection,
        rows=flags.rows,
        name=flags.name,
        output_root=Path(flags.output).resolve() if flags.output else work_tree / ".osmosis" / "evals",
        fresh=flags.fresh,
        retry_failed=flags.retry_failed,
        max_in_flight=flags.max_in_flight,
        rollout_port=flags.rollout_port,
        listener_port=flags.listener_port,
        advertise_url=flags.advertise_url,
        tunnel=flags.tunnel,
        verbose=flags.verbose,
        max_cost_usd=flags.max_cost_usd,
    )
    try:
        return _run(output, flags, request, client)
    except _AnotherRun:
        return _run(output, flags, replace(request, name=None), client)


def _dataset(output: Output, flags: EvalFlags, name: str, client: PlatformClient | None) -> tuple[Dataset, str]:
    """The dataset and where it came from: the file of the command line, else the platform's."""
    if flags.dataset_file is not None or client is None:
        return local_dataset(flags.dataset_file or ""), "explicit"
    from osmosis_ai.cli.platform_dataset import fetch_dataset

    found = fetch_dataset(output, client, name)
    return found.dataset, found.source


class _AnotherRun(Exception):
    """The named run is finished and the user wants a new one."""


def _run(output: Output, flags: EvalFlags, request: RunRequest, client: PlatformClient | None) -> OperationResult:
    origin = find_origin(request.workspace_dir, any_host=takes_any_host())
    with EvaluationRun.open(request, warn=lambda code, message: output.warn(message, code)) as run:
        if run.complete:
            if output.interactive and not flags.yes and request.name is not None and _wants_another(run.name):
                raise _AnotherRun
            return noop_result(run.report(), flags, request, origin, _publish(output, flags, run.report(), client))
        try:
            policy, secrets = _agree(output, flags, run, request)
        except BaseException:
            _take_back(run)
            raise
        try:
            report = _walk(output, flags, run, policy, secrets)
        except OsmosisError as error:
            if error.error_code != "INTERRUPTED":
                raise
            command = continuation(flags, run.name)
            error.message = f"Interrupted. Every verdict so far is kept. Go on:\n  {command}"
            raise
        return run_result(report, flags, request, origin, _publish(output, flags, report, client))


def _publish(output: Output, flags: EvalFlags, report: RunReport, client: PlatformClient | None) -> Published | None:
    """Send a finished run to the platform, where it was asked for; the run's lock is still held."""
    if not flags.upload or client is None:
        return None
    if report.status != "finished":
        output.warn("The run is not finished, so it was not uploaded; it will be when the run is.", "UPLOAD_SKIPPED")
        return None
    from osmosis_ai.cli.eval_upload import publish

    return publish(output, client, report.run_dir, replace=flags.retry_failed)


def _agree(output: Output, flags: EvalFlags, run: EvaluationRun, request: RunRequest) -> tuple[Policy, dict[str, str]]:
    """Show the plan, ask, and gather what the run needs from the user."""
    config = request.config
    policy = choose_policy(config.model_path, os.environ)  # refuses a model that there is not before anybody is asked
    try:
        secrets = agree(
            output,
            plan_fields(run, request),
            f"Run {run.pending_count} rollouts x model {config.model_path}?",
            yes=flags.yes,
            secret_names=config.secret_names,
            secrets_file=flags.secrets_file,
        )
    except BaseException:
        asyncio.run(policy.aclose())
        raise
    if not secrets or runs_here(config.model_path):
        return policy, secrets
    asyncio.run(policy.aclose())
    return choose_policy(config.model_path, {**os.environ, **secrets}), secrets


def _take_back(run: EvaluationRun) -> None:
    """Remove the directory of a run in which nothing was ever tried; one that was started before stays."""
    if run.journal.records() or (run.run_dir / "logs.txt").exists():
        return
    if not any((run.run_dir / "rollout_trials").glob("*")):
        shutil.rmtree(run.run_dir, ignore_errors=True)


def _walk(
    output: Output, flags: EvalFlags, run: EvaluationRun, policy: Policy, secrets: Mapping[str, str]
) -> RunReport:
    async def walk() -> RunReport:
        try:
            return await run.execute(policy=policy, secrets=secrets, observer=progress)
        finally:
            await policy.aclose()

    with make_progress(output, total=run.total_count, done=run.resumed_count, verbose=flags.verbose) as progress:
        return asyncio.run(walk())


def choose_policy(model_path: str, environ: Mapping[str, str]) -> Policy:
    """The policy that a config's `model_path` names: one that runs here, or a provider's model.

    Raises:
        ValidationError: There is no such embedded policy, or its extra is not installed.
    """
    if runs_here(model_path):
        with optional_imports("local"):
            from osmosis_trainer import embedded_policy

            return embedded_policy(model_path)
    with optional_imports("eval"):
        from osmosis_ai.gateway.provider import provider_policy

        return provider_policy(model_path, environ)


def _wants_another(name: str) -> bool:
    from osmosis_ai.cli.prompts import confirm

    try:
        return confirm(f"Run {name} is finished. Start a new run?", default=True)
    except Cancelled:
        return False
