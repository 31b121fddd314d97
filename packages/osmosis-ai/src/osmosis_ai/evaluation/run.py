"""One evaluation run on this machine: its directory, and the start sequence under its lock (eval-run.md 4.4).

Leaves carrying it out to `execution`, and questions to the user, secrets' values and the drawing of results to the
command line.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation.atomic import storage_error
from osmosis_ai.evaluation.dataset import Dataset
from osmosis_ai.evaluation.hosting import SERVER_RECORD, TRIALS, RolloutSource
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.lock import run_lock
from osmosis_ai.evaluation.manifest import (
    Manifest,
    ResolvedInputs,
    archive_run,
    build_inputs,
    change_text,
    changed_inputs,
    manifest_name,
    read_manifest,
    write_manifest,
)
from osmosis_ai.evaluation.names import check_run_name, generate_run_name, lock_directory
from osmosis_ai.evaluation.process import reap
from osmosis_ai.evaluation.projection import Projection
from osmosis_ai.evaluation.report import RunReport, causes, shortfalls, total_cost
from osmosis_ai.evaluation.rows import Selection, item_keys, select
from osmosis_ai.evaluation.verdict import ItemKey, Outcome
from osmosis_ai.workspace.repository import read_git_state
from osmosis_ai.workspace.source import source_digest

if TYPE_CHECKING:
    from osmosis_ai.evaluation.observer import Observer
    from osmosis_ai.evaluation.walk import RunOutcome
    from osmosis_ai.gateway.policy import Policy
    from osmosis_ai.workspace.eval_config import EvalConfig

TUNNEL_RECORD = "tunnel.json"

type Warn = Callable[[str | None, str], None]
"""Takes a warning's code, or None, and its text."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for.

    Attributes:
        workspace_dir: Root of the Git work tree.
        dataset_source: `explicit`, `cache` or `download`.
        rows: A selector; wins over the config's limit.
        name: An existing name resumes that run; None makes one up.
        output_root: Absolute; runs and their locks lie in it.
        fresh: Archive the run of that name and start over.
        retry_failed: Also run failed and skipped items again.
        max_in_flight: Concurrency; wins over the config's batch_size.
        rollout_port: Of the rollout server, else the system's choice.
        listener_port: Of the gateway, else the system's choice.
        advertise_url: Public base URL of the gateway.
        tunnel: `cloudflared` or None.
        verbose: The observer gets every log line.
        max_cost_usd: Dispatch stops there.
        selection: The rows, when they are chosen already; else chosen from `rows` and the config.
    """

    workspace_dir: Path
    config: EvalConfig
    dataset: Dataset
    output_root: Path
    dataset_source: str = "explicit"
    rows: str | None = None
    name: str | None = None
    fresh: bool = False
    retry_failed: bool = False
    max_in_flight: int | None = None
    rollout_port: int | None = None
    listener_port: int | None = None
    advertise_url: str | None = None
    tunnel: str | None = None
    verbose: bool = False
    max_cost_usd: float | None = None
    selection: Selection | None = None

    @property
    def rollout_dir(self) -> Path:
        """The rollout's folder."""
        return self.workspace_dir / "rollouts" / self.config.rollout

    @property
    def source(self) -> RolloutSource:
        """The rollout's code."""
        config = self.config
        shown = f"rollouts/{config.rollout}/{config.entrypoint}"
        return RolloutSource(self.rollout_dir, config.entrypoint, shown, config.path)


class EvaluationRun:
    """A run that this process holds the lock of; a context manager, opened by `EvaluationRun.open`.

    Attributes:
        request: What was asked for.
        name: The run's name.
        run_dir: Its directory.
        selection: Its rows.
        manifest: What it is made of.
        journal: Its verdicts.
        pending: Keys that still have to run.
        resumed_count: Verdicts that stay.
    """

    def __init__(
        self,
        request: RunRequest,
        name: str,
        selection: Selection,
        manifest: Manifest,
        journal: FileJournal,
        warn: Warn,
        release: contextlib.ExitStack,
    ) -> None:
        self.request = request
        self.name = name
        self.run_dir = request.output_root / name
        self.selection = selection
        self.manifest = manifest
        self.journal = journal
        self.warn = warn
        self._release = release
        self.total_count = len(selection) * request.config.n
        self.pending: KeysView[ItemKey] = journal.pending(
            item_keys(len(selection), request.config.n), retry_failed=request.retry_failed
        )
        self.resumed_count = self.total_count - len(self.pending)

    @classmethod
    def open(cls, request: RunRequest, *, warn: Warn) -> Self:
        """Check the request, take the run's lock, end what earlier invocations left, make or resume the run directory.

        Raises:
            ValidationError: A value, a file or the run directory is wrong. Nothing was made.
            ConflictError: Another process holds the run, or its inputs changed.
        """
        check_request(request)
        selection = request.selection or select(request.dataset, rows=request.rows, limit=request.config.limit)
        root = request.output_root
        inputs = resolve_inputs(request, selection)
        name = check_run_name(request.name) if request.name is not None else generate_run_name(_taken(root))
        if (root / name).is_symlink():
            raise ConflictError(f"{root / name} is a symbolic link; a run directory must be a real one. Choose --name.")
        reap_orphans(root, warn)
        with contextlib.ExitStack() as stack:
            stack.enter_context(run_lock(root, name))
            run_dir = root / name
            if run_dir.is_symlink() or (run_dir.exists() and not run_dir.is_dir()):
                raise ConflictError(f"{run_dir} is not a directory of its own; choose another name with --name.")
            _reap_run(run_dir, warn)
            manifest = _make_or_resume(request, run_dir, name, inputs, warn)
            journal = FileJournal.open(run_dir)
            stack.callback(journal.release)
            return cls(request, name, selection, manifest, journal, warn, stack.pop_all())

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the journal's files and the lock."""
        self._release.close()

    @property
    def pending_count(self) -> int:
        """Work items that have to run."""
        return len(self.pending)

    @property
    def complete(self) -> bool:
        """Whether there is nothing to do."""
        return not self.pending

    async def execute(self, *, policy: Policy, secrets: Mapping[str, str], observer: Observer) -> RunReport:
        """Run what is pending. The caller made the policy and closes it.

        Args:
            policy: Answers the agents' chat calls.
            secrets: Values for the names in `[secrets]`, for this run only.
            observer: Watches.

        Raises:
            OsmosisError: The run could not start; its directory stays and can be resumed.
            Interrupted: The user asked twice to stop.
        """
        from osmosis_ai.evaluation.execution import Execution

        return await Execution(self, policy, secrets, observer).run()

    def projection(self, warn: Callable[[str], None]) -> Projection:
        """The keeper of the run's derived files."""
        return Projection(
            self.run_dir,
            self.manifest,
            self.journal.records(),
            dataset_name=self.request.config.dataset,
            total_dataset_rows=self.request.dataset.total_rows,
            sampled_rows=len(self.selection),
            pass_threshold=self.request.config.pass_threshold,
            warn=warn,
        )

    def report(self, outcome: RunOutcome | None = None, document: Mapping[str, Any] | None = None) -> RunReport:
        """What the run came to; without an outcome for an invocation with nothing to do.

        A finished run is not touched; one that ended between its last verdict and its last snapshot gets it now.
        """
        records = self.journal.records()
        if document is None:
            document = self.projection(lambda message: self.warn(None, message)).finish(self.status(outcome))
        failures = shortfalls(records.values())
        counts = dict.fromkeys(Outcome, 0)
        for entry in records.values():
            counts[entry.outcome] += 1
        return RunReport(
            run_name=self.name,
            local_run_id=self.manifest.local_run_id,
            run_dir=self.run_dir,
            status=self.status(outcome),
            total=self.total_count,
            halt_reason=outcome.halt_reason if outcome else None,
            halt_code=outcome.halt_code if outcome else None,
            dispatched=outcome.dispatched if outcome else 0,
            succeeded=counts[Outcome.GRADED],
            failed=counts[Outcome.FAILED],
            skipped=counts[Outcome.SKIPPED],
            resumed=self.resumed_count,
            cancelled=outcome.cancelled if outcome else 0,
            duration_ms=outcome.duration_ms if outcome else document["eval_run"].get("duration_ms", 0.0),
            metrics=document["summary"],
            figures=document.get("figures", {}),
            failures=failures,
            causes=causes(failures),
            cost_usd=total_cost(records.values()),
        )

    def status(self, outcome: RunOutcome | None) -> Literal["finished", "incomplete"]:
        """Whether every work item has its verdict and none was to be run again."""
        done = outcome.recorded >= self.pending_count if outcome else len(self.journal.records()) >= self.total_count
        return "finished" if done else "incomplete"


def check_request(request: RunRequest) -> None:
    """Find what is wrong with a request before anything is made or started.

    Raises:
        ValidationError: Rollout folder, entrypoint, pyproject.toml, a port, a number or the output root is wrong.
    """
    for flag, port in (("--rollout-port", request.rollout_port), ("--listener-port", request.listener_port)):
        if port is not None and not 1 <= port <= 65535:
            raise ValidationError(f"{flag} must be a port from 1 to 65535, not {port}; leave it out for a free one.")
    if request.rollout_port is not None and request.rollout_port == request.listener_port:
        raise ValidationError("--rollout-port and --listener-port must differ.")
    if request.max_in_flight is not None and request.max_in_flight < 1:
        raise ValidationError(f"--max-in-flight must be at least 1, not {request.max_in_flight}.")
    if request.max_cost_usd is not None and not request.max_cost_usd > 0:
        raise ValidationError(f"--max-cost must be more than 0 USD, not {request.max_cost_usd:g}.")
    request.source.check(request.output_root)


def resolve_inputs(request: RunRequest, selection: Selection) -> ResolvedInputs:
    """What decides the run's results.

    Raises:
        SourceError: A file of the rollout cannot be read.
    """
    config = request.config
    return build_inputs(
        model_path=config.model_path,
        dataset=request.dataset,
        selection=selection,
        n=config.n,
        rollout=config.rollout,
        entrypoint=config.entrypoint,
        source_digest=source_digest(request.rollout_dir, exclude=request.output_root),
        env=config.env,
        secret_names=config.secret_names,
        agent_timeout_s=config.agent_timeout_s,
        grader_timeout_s=config.grader_timeout_s,
    )


def reap_orphans(output_root: Path, warn: Warn) -> None:
    """End the servers and tunnels of runs whose process died, wherever the run's lock is free."""
    try:
        directories = [entry for entry in os.scandir(output_root) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for directory in directories:
        path = Path(directory.path)
        if not any(os.path.lexists(path / name) for name in (SERVER_RECORD, TUNNEL_RECORD)):
            continue
        with contextlib.suppress(OsmosisError), run_lock(output_root, directory.name):
            _reap_run(path, warn)


def _reap_run(run_dir: Path, warn: Warn) -> None:
    for name, what in ((SERVER_RECORD, "rollout server"), (TUNNEL_RECORD, "tunnel")):
        if reap(run_dir / name):
            warn(None, f"Terminated the orphaned {what} of run '{run_dir.name}', whose process had died.")


def _taken(output_root: Path) -> Callable[[str], bool]:
    return lambda name: os.path.lexists(output_root / name) or (output_root / lock_directory / f"{name}.lock").exists()


def _make_or_resume(request: RunRequest, run_dir: Path, name: str, inputs: ResolvedInputs, warn: Warn) -> Manifest:
    threshold = request.config.pass_threshold
    if request.fresh and run_dir.exists() and any(run_dir.iterdir()):
        archived = archive_run(run_dir)
        warn(None, f"Moved the earlier run to {archived}.")
    manifest = read_manifest(run_dir)
    if manifest is not None:
        if changed := changed_inputs(manifest, inputs, pass_threshold=threshold):
            told = [change_text(manifest, inputs, threshold, key) for key in changed]
            raise ConflictError(
                f"Run '{name}' was made with other inputs; changed: {', '.join(told)}.\n"
                "Choose another --name, or start over with --fresh (the old results are kept).",
                details={"run_name": name, "changed": changed},
            )
        return manifest
    if run_dir.exists() and (left := sorted(entry.name for entry in run_dir.iterdir())):
        raise ConflictError(
            f"{run_dir} holds {', '.join(left[:3])} but no {manifest_name}, so it is no run that can be resumed.\n"
            "Choose another --name, or start over with --fresh (what is there is kept)."
        )
    try:
        (run_dir / TRIALS).mkdir(parents=True, exist_ok=True)
        _keep_out_of_git(request)
    except OSError as error:
        raise storage_error(run_dir, error) from error
    return write_manifest(
        run_dir, run_name=name, inputs=inputs, pass_threshold=threshold, provenance=provenance(request)
    )


def _keep_out_of_git(request: RunRequest) -> None:
    """Have Git ignore `.osmosis`: results would make the source of every later run dirty."""
    state = request.workspace_dir / ".osmosis"
    if request.output_root.is_relative_to(state):
        with contextlib.suppress(FileExistsError), (state / ".gitignore").open("x") as file:
            file.write("*\n")


def provenance(request: RunRequest) -> dict[str, Any]:
    """Where the run comes from, as far as it is known."""
    config = request.config
    state = read_git_state(request.workspace_dir)
    path = config.path
    if path.is_relative_to(request.workspace_dir):
        path = path.relative_to(request.workspace_dir)
    known = {
        "sdk_version": PACKAGE_VERSION,
        "config_branch": config.branch,
        "config_commit_sha": config.commit_sha,
        "config_path": path.as_posix(),
        "advanced": dict(config.advanced) or None,
        "git_head": state.head,
        "git_branch": state.branch,
        "git_dirty": state.dirty,
    }
    return {key: value for key, value in known.items() if value is not None}
