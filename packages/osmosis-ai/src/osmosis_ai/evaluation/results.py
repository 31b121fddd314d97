"""Reading a run directory back: made by us or by the published package, complete, going on, or downloaded.

Nothing here writes. Verdicts come from the journal (events.jsonl); where there is none, as in a download, from the
index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation import artifacts
from osmosis_ai.evaluation.events import (
    Entry,
    attempts_name,
    entry_of,
    events_name,
    index_name,
    parse_verdict,
    read_events,
)
from osmosis_ai.evaluation.manifest import Manifest, read_manifest
from osmosis_ai.evaluation.projection import metrics_name, progress_name, summary_name
from osmosis_ai.evaluation.rows import parse_selector
from osmosis_ai.evaluation.verdict import Attempt, Failure, Fault, ItemKey, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class RunResults:
    """A run as its directory tells it.

    Attributes:
        manifest: None in a downloaded run.
        verdicts: The last verdict of each item, by key, ascending.
        metrics: The document of metrics.json, or empty.
        progress: The document of progress.json, or empty.
    """

    run_dir: Path
    manifest: Manifest | None
    verdicts: Mapping[ItemKey, Entry]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.manifest.run_name if self.manifest else str(self._eval_run.get("name") or self.run_dir.name)

    @property
    def model(self) -> str:
        """The model it was made with, or an empty text."""
        value = self.manifest.inputs.get("model_path") if self.manifest else self._eval_run.get("model_name")
        return str(value or "")

    @property
    def rollout(self) -> str:
        """The rollout it ran, or an empty text."""
        value = self._input("rollout").get("name") if self.manifest else self._eval_run.get("rollout_name")
        return str(value or "")

    @property
    def status(self) -> str:
        """Running, finished or incomplete, as metrics.json says; `running` also after a crash. Empty when unknown."""
        return str(self._eval_run.get("status") or "")

    @property
    def dataset_sha256(self) -> str | None:
        """The digest of the dataset's bytes, None when unknown."""
        value = self._input("dataset").get("sha256")
        return value if isinstance(value, str) else None

    @property
    def pass_threshold(self) -> float:
        """The reward that passes: the manifest's, else the metrics', else 1."""
        if self.manifest is not None and self.manifest.pass_threshold is not None:
            return self.manifest.pass_threshold
        summary = self.metrics.get("summary")
        value = summary.get("pass_threshold") if isinstance(summary, dict) else None
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 1.0

    @property
    def n(self) -> int:
        """Attempts a row."""
        value = self.manifest.inputs.get("n") if self.manifest else None
        if isinstance(value, int) and value > 0:
            return value
        return max((run for _, run in self.verdicts), default=0) + 1

    @property
    def total_items(self) -> int:
        """Work items of the run, recorded or not."""
        value = self.progress.get("total_runs")
        return value if isinstance(value, int) else len(self.verdicts)

    @property
    def pending_items(self) -> int:
        """Work items without a verdict."""
        return max(0, self.total_items - len(self.verdicts))

    def source_row(self, row_index: int) -> int | None:
        """The row's position in the dataset file, None when unknown."""
        entry = self.verdicts.get((row_index, 0))
        if entry is not None and entry.source_row_index is not None:
            return entry.source_row_index
        selector = self._input("dataset").get("selected_source_rows")
        if not isinstance(selector, str):
            return None
        try:
            ranges = parse_selector(selector)
        except ValidationError:
            return None
        indices = (index for first, last in ranges for index in range(first, last + 1))
        return next(islice(indices, row_index, None), None)

    def trajectory_path(self, key: ItemKey) -> Path | None:
        """The copy of the item's trajectory, None when there is none."""
        path = self.run_dir / "trajectories" / f"{artifacts.item_name(key)}.json"
        return path if path.is_file() else None

    def verdict(self, key: ItemKey) -> Verdict | None:
        """The whole verdict of an item, with its message and traceback."""
        path = self.run_dir / events_name
        found: Verdict | None = None
        try:
            for _, verdict in read_events(path):
                if verdict.key == key:
                    found = verdict
        except OSError:
            return None
        return found

    def attempts(self) -> Iterator[Attempt]:
        """The attempts that ended nothing, in the order they happened; lines that cannot be read are passed over."""
        try:
            with (self.run_dir / attempts_name).open("rb") as stream:
                for line in stream:
                    if attempt := _attempt(line):
                        yield attempt
        except OSError:
            return

    @property
    def _eval_run(self) -> Mapping[str, Any]:
        value = self.metrics.get("eval_run")
        return value if isinstance(value, dict) else {}

    def _input(self, key: str) -> Mapping[str, Any]:
        value = self.manifest.inputs.get(key) if self.manifest else None
        return value if isinstance(value, dict) else {}


def read_run(run_dir: Path) -> RunResults:
    """Read a run directory.

    Raises:
        NotFoundError: There is no such directory, or no run in it.
        ValidationError: Its manifest, journal or index is damaged; names file and line.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"There is no run at {run_dir}. Give a run's name or its directory.")
    manifest = read_manifest(run_dir)
    verdicts = _read_journal(run_dir / events_name)
    if not verdicts:
        for name in (index_name, summary_name):
            if verdicts := _read_index(run_dir / name):
                break
    metrics = _read_document(run_dir / metrics_name)
    if manifest is None and not verdicts and not metrics:
        raise NotFoundError(f"{run_dir} holds no run: no manifest.json, events.jsonl, summary.jsonl or metrics.json.")
    ordered = {key: verdicts[key] for key in sorted(verdicts)}
    return RunResults(run_dir, manifest, ordered, metrics, _read_document(run_dir / progress_name))


def _read_journal(path: Path) -> dict[ItemKey, Entry]:
    entries: dict[ItemKey, Entry] = {}
    failures: dict[Failure, Failure] = {}
    try:
        for _, verdict in read_events(path):
            entries[verdict.key] = entry_of(verdict, resumed=False, failures=failures)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    return entries


def _read_index(path: Path) -> dict[ItemKey, Entry]:
    entries: dict[ItemKey, Entry] = {}
    failures: dict[Failure, Failure] = {}
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.isspace():
                    continue
                try:
                    record = json.loads(line)
                    verdict = parse_verdict(record)
                except (ValueError, RecursionError) as error:
                    raise ValidationError(
                        f"{path}, line {number}: not the result of a work item ({error}). Download the run again."
                    ) from error
                entries[verdict.key] = entry_of(verdict, resumed=record.get("resumed") is True, failures=failures)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    return entries


def _read_document(path: Path) -> dict[str, Any]:
    """A derived document; a missing or damaged one is empty, since it can be made again."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _attempt(line: bytes) -> Attempt | None:
    try:
        record = json.loads(line)
        failure = record["failure"]
        return Attempt(
            row_index=record["row_index"],
            run_index=record["run_index"],
            rollout_id=record["rollout_id"],
            number=record["number"],
            failure=Failure(
                Fault(failure["fault"]), failure["code"], failure.get("message", ""), failure.get("traceback_tail")
            ),
            tokens=record.get("tokens"),
            cost_usd=record.get("cost_usd"),
            duration_ms=record.get("duration_ms"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def outcome_counts(verdicts: Mapping[ItemKey, Entry]) -> dict[str, int]:
    """How many items are graded, skipped and failed."""
    counts = {"graded": 0, "skipped": 0, "failed": 0}
    names = {Outcome.GRADED: "graded", Outcome.SKIPPED: "skipped", Outcome.FAILED: "failed"}
    for entry in verdicts.values():
        counts[names[entry.outcome]] += 1
    return counts
