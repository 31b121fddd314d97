"""Outputs of a managed run into a folder: what is chosen, the question above 100 MiB, the bar, the result.

Owns: the words and the places. The manifest, the layout and the transfer are the client's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import path_text, plural, size_text
from osmosis_ai.cli.output_places import refuse_file, run_folder
from osmosis_ai.cli.results import Block, Column, OperationResult, Table
from osmosis_ai.errors import ConflictError, NotFoundError, PlatformError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.transfer.download import Manifest, Outcome, Plan
    from osmosis_ai.client.transfer.layout import Layout

_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)


def check_rows(text: str) -> str:
    """A selector as the platform takes it: digits and ranges without blanks.

    Raises:
        ValidationError: It is none.
    """
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValidationError(f'--rows must be rows and ranges such as "3,7,10-20", without blanks; got {text!r}.')
        if found[2] is not None and int(found[2]) < int(found[1]):
            raise ValidationError(f"--rows {text!r}: the range {part} ends before it starts.")
    return text


def download_eval(
    invocation: Invocation,
    name: str,
    *,
    types: str | None,
    rows: str | None,
    folder: str | None,
    overwrite: bool,
    yes: bool,
) -> OperationResult:
    """Fetch outputs of an evaluation; the repository around the current directory says of which workspace.

    Raises:
        ValidationError: A type or a row selector is none, or the run has not begun.
        OsmosisError: No scope, no login, nobody to ask, or the platform's error.
    """
    from osmosis_ai.cli.eval_runs import fetch_eval
    from osmosis_ai.client.scope import resolve_git_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.transfer.layout import EVAL

    refuse_file(folder)
    selected = EVAL.choose(types)
    params = {"types": ",".join(selected), "rows": check_rows(rows) if rows is not None else None}
    scope = resolve_git_scope()
    with open_client(scope, warn=invocation.output.warn) as client:
        with invocation.output.working("Fetching evaluation run..."):
            record, _ = fetch_eval(client, name)
        if (record["status"] or "").lower() == "pending":
            raise ValidationError(f"Evaluation run {name} is pending; it has no outputs yet.")
        path = f"/eval-runs/{segment(record['id'])}/samples"
        root = _root(folder, "evals", record, scope)
        result = _Download(invocation, client, EVAL, selected, path, params, root).run(overwrite=overwrite, yes=yes)
    return result.show("eval", record, scope, {"rows": rows})


def download_benchmark_run(
    invocation: Invocation, name: str, *, types: str | None, folder: str | None, overwrite: bool, yes: bool
) -> OperationResult:
    """Fetch outputs of a benchmark run; of a running one, what is there now.

    Raises:
        ValidationError: A type is none.
        ConflictError: The run has not begun.
        OsmosisError: No scope, no login, nobody to ask, or the platform's error.
    """
    from osmosis_ai.cli.benchmark_runs import fetch_run
    from osmosis_ai.cli.run_records import WAITING
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.transfer.layout import BENCHMARK

    refuse_file(folder)
    selected = BENCHMARK.choose(types)
    scope = resolve_scope(invocation.workspace)
    with open_client(scope, warn=invocation.output.warn) as client:
        with invocation.output.working("Fetching benchmark run..."):
            record, _ = fetch_run(client, name)
        if (record["status"] or "").lower() in WAITING:
            raise ConflictError(f"Benchmark run {name} is {record['status']}; it has no outputs yet.")
        path = f"/benchmark-runs/{segment(record['id'])}/outputs"
        root = _root(folder, "benchmarks", record, scope)
        params = {"types": ",".join(selected)}
        result = _Download(invocation, client, BENCHMARK, selected, path, params, root).run(
            overwrite=overwrite, yes=yes
        )
    return result.show("benchmark", record, scope, {})


def fetch_metrics_file(client: PlatformClient, run_id: str, folder: Path) -> Path:
    """Fetch an evaluation's `metrics.json` into a folder, which is made; what was there is replaced.

    Raises:
        OsmosisError: The platform offers no such file, or it cannot be fetched.
        OSError: It cannot be written.
    """
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.transfer.download import download_files, plan_download, read_manifest
    from osmosis_ai.client.transfer.layout import EVAL

    path = f"/eval-runs/{segment(run_id)}/samples"
    manifest = read_manifest(client.get(f"{path}/manifest", params={"types": "metrics"}), EVAL, ("metrics",))
    if [file.path for file in manifest.files] != ["metrics.json"]:
        raise PlatformError("The platform's manifest does not hold exactly one metrics.json.")
    outcome = download_files(client, f"{path}/download-urls", plan_download(manifest, folder, overwrite=True))
    if outcome.failed:
        raise PlatformError(outcome.failed[0].error)
    return folder / "metrics.json"


def _root(folder: str | None, kind: str, record: Mapping[str, Any], scope: Scope) -> Path:
    if folder is None:
        return run_folder(kind, record["name"], record["id"], scope.base_directory)
    return Path(folder)


class _Download:
    """One download, before and after."""

    def __init__(
        self,
        invocation: Invocation,
        client: PlatformClient,
        layout: Layout,
        selected: Sequence[str],
        path: str,
        params: Mapping[str, str | None],
        root: Path,
    ) -> None:
        self.output = invocation.output
        self.client = client
        self.layout = layout
        self.selected = selected
        self.path = path
        self.params = params
        self.root = root
        self.manifest: Manifest
        self.plan: Plan
        self.outcome: Outcome

    def run(self, *, overwrite: bool, yes: bool) -> _Download:
        """Ask for the manifest, the user and the files."""
        from osmosis_ai.cli.transfer_progress import moving
        from osmosis_ai.client.transfer.download import download_files, plan_download, read_manifest

        with self.output.working("Fetching download manifest..."):
            try:
                reply = self.client.get(f"{self.path}/manifest", params=self.params)
            except NotFoundError as error:
                raise ValidationError(
                    f"The outputs of this {self.layout.kind} cannot be found ({error.message}); it may have been deleted,"
                    " or the platform offers no downloads."
                ) from None
        self.manifest = read_manifest(reply, self.layout, self.selected)
        if not self.manifest.files:
            refused = "".join(f"\n  - {failure.path}: {failure.error}" for failure in self.manifest.refused)
            raise ValidationError(f"There is nothing to download of types {', '.join(self.selected)}.{refused}")
        self.plan = plan = plan_download(self.manifest, self.root, overwrite=overwrite)
        if plan.needs_consent and not yes:
            self.output.confirm(
                "Download these run outputs?",
                default=False,
                summary={
                    "Files": f"{len(plan.wanted):,}",
                    "Download size": size_text(plan.wanted_bytes),
                    "Destination": str(self.root),
                },
                notes=[f"Selected types: {', '.join(self.selected)}"],
            )
        with moving(self.output, "Downloading", plan.wanted_bytes) as on_bytes:
            self.outcome = download_files(self.client, f"{self.path}/download-urls", plan, on_bytes=on_bytes)
        return self

    def show(self, group: str, record: Mapping[str, Any], scope: Scope, extra: Mapping[str, Any]) -> OperationResult:
        """What was fetched, what was there, what failed."""
        outcome, plan = self.outcome, self.plan
        count, size = len(outcome.downloaded), size_text(outcome.bytes_downloaded)
        message = f"Downloaded {plural(count, 'file')} ({size}) to {path_text(self.root)}"
        asides = [f"{len(plan.present):,} there already"] if plan.present else []
        if outcome.failed:
            asides.append(f"{len(outcome.failed):,} failed; run the command again for them")
        blocks: list[Block] = []
        if outcome.failed:
            rows = [(failure.path, failure.error) for failure in outcome.failed]
            blocks.append(Table((Column("File", keep=True), Column("Problem")), rows, title="Not Downloaded"))
        return OperationResult(
            operation=f"{group}.download",
            status="partial" if outcome.failed else "success",
            resource={
                f"{group}_run": {"id": record["id"], "name": record["name"]},
                "status": record["status"],
                "selected_types": list(self.selected),
                "files_downloaded": count,
                "files_skipped": len(plan.present),
                "files_failed": [failure.to_json() for failure in outcome.failed],
                "bytes_downloaded": outcome.bytes_downloaded,
                "total_files": len(self.manifest.files),
                "total_bytes": self.manifest.total_bytes,
                "breakdown": self.manifest.breakdown(self.selected),
                "manifest_totals": dict(self.manifest.totals),
                "output_path": str(self.root),
                **scope.extras(),
                **extra,
            },
            message=message + (f" ({', '.join(asides)})" if asides else ""),
            blocks=blocks,
        )
