"""The derived files of a run: index, summary, progress, metrics, copies of trajectories and artifacts.

All of it is made from the journal and can be made again; nothing here is the truth. The work for one verdict does not
grow with the run, and the whole-run files are written at a bounded rate.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation import artifacts
from osmosis_ai.evaluation.atomic import json_bytes, storage_error, write_atomic
from osmosis_ai.evaluation.events import Entry, index_name
from osmosis_ai.evaluation.jsontext import encode_json
from osmosis_ai.evaluation.manifest import Manifest, utc_timestamp
from osmosis_ai.evaluation.metrics import figures, summarise
from osmosis_ai.evaluation.verdict import ItemKey, Verdict

summary_name = "summary.jsonl"
progress_name, metrics_name = "progress.json", "metrics.json"
_least_interval_s = 1.0
_share = 25  # refreshing may take a twenty-fifth of the time

type RunStatus = Literal["running", "finished", "incomplete"]


class Projection:
    """Keeps the derived files of one invocation up to date; its methods may be called from any thread.

    Args:
        run_dir: The run's directory.
        manifest: Its manifest.
        records: The journal's live view; a verdict is in it before `verdict` is called.
        dataset_name: The name in the config.
        total_dataset_rows: Rows of the dataset file.
        sampled_rows: Rows of the selection.
        pass_threshold: A reward of at least this passes.
        warn: Told of artifacts that were left out and of derived files that could not be written.
    """

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest,
        records: Mapping[ItemKey, Entry],
        *,
        dataset_name: str,
        total_dataset_rows: int,
        sampled_rows: int,
        pass_threshold: float,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.run_dir = run_dir
        self._manifest = manifest
        self._records = records
        self._dataset_name = dataset_name
        self._total_dataset_rows = total_dataset_rows
        self._sampled_rows = sampled_rows
        self._threshold = pass_threshold
        self._warn = warn or (lambda message: None)
        self._lock = threading.RLock()  # the runner calls from worker threads, so that disks do not stop the loop
        self._lines: dict[ItemKey, bytes] = {}
        self._found_tokens: dict[ItemKey, int] = {}
        self._restored = False
        self._worked = False
        # Start and duration add up over the invocations that did work; one that does none changes nothing.
        earlier = self._earlier_run()
        self._started_at = str(earlier.get("started_at") or utc_timestamp())
        self._earlier_ms = float(earlier.get("duration_ms") or 0.0)
        self._started = time.monotonic()
        self._refreshed = -1e9
        self._cost_s = 0.0

    def verdict(self, verdict: Verdict | Entry) -> None:
        """Copy what the item's attempt left behind and take it into the next snapshot."""
        with self._lock:
            self._restore()
            self._worked = True
            self._take(verdict.key)

    def refresh(self, force: bool = False) -> bool:
        """Write the snapshots when it is time again: at most once a second, and a small share of the time.

        A finished run is left as it is until there is a verdict.

        Returns:
            Whether they were written.
        """
        with self._lock:
            waited = time.monotonic() - self._refreshed
            if not force and waited < max(_least_interval_s, _share * self._cost_s):
                return False
            if not self._worked and self._finished_metrics() is not None:
                return False
            try:
                self._write("running", durable=False)
            except OsmosisError as error:
                self._warn(error.message)
            return True

    def finish(self, status: Literal["finished", "incomplete"]) -> dict[str, Any]:
        """Write the last snapshots, durably; a finished run to which nothing was added is left as it is.

        Returns:
            The document of metrics.json: `eval_run`, `summary` and `figures` (ours).

        Raises:
            OsmosisError: The disk is full or refuses.
        """
        with self._lock:
            if not self._worked and (kept := self._finished_metrics()) is not None:
                return kept
            self._restore()
            for key in self._records.keys() - self._lines.keys():
                self._take(key)
            return self._write(status, durable=True)

    def metrics(self, status: RunStatus = "running") -> dict[str, Any]:
        """The document of metrics.json as it would be written now."""
        with self._lock:
            self._restore()
            eval_run = {
                "id": self._manifest.local_run_id,
                "status": status,
                "name": self._manifest.run_name,
                "dataset_name": self._dataset_name,
                "model_name": self._manifest.inputs.get("model_path"),
                "rollout_name": self._manifest.inputs.get("rollout", {}).get("name"),
                "duration_ms": round(self._earlier_ms + (time.monotonic() - self._started) * 1000, 3),
                "started_at": self._started_at,
                "completed_at": utc_timestamp() if status == "finished" else None,
            }
            summary = summarise(self._counted(), self._threshold, self._runs)
            ours = figures(self._counted(), self._threshold)
            return {
                "eval_run": {key: value for key, value in eval_run.items() if value is not None},
                "summary": summary,
                "figures": ours,
            }

    @property
    def _runs(self) -> int:
        n = self._manifest.inputs.get("n", 1)
        return n if isinstance(n, int) else 1

    def _counted(self) -> Iterator[Entry]:
        """The recorded entries, with token counts from trajectories where the gateway counted none."""
        for key in list(self._lines):
            entry = self._records[key]
            found = self._found_tokens.get(key)
            yield entry if found is None or entry.tokens is not None else replace(entry, tokens=found)

    def _write(self, status: RunStatus, *, durable: bool) -> dict[str, Any]:
        started = time.monotonic()
        self._restore()
        metrics = self.metrics(status)
        index = b"".join(self._lines[key] for key in sorted(self._lines))
        progress = {
            "total_runs": self._sampled_rows * self._runs,
            "sampled_rows": self._sampled_rows,
            "total_dataset_rows": self._total_dataset_rows,
        }
        for name, data in (
            (index_name, index),
            (summary_name, index),
            (progress_name, json_bytes(progress)),
            (metrics_name, json_bytes(metrics)),
        ):
            write_atomic(self.run_dir / name, data, durable=durable)
        self._refreshed = time.monotonic()
        self._cost_s = self._refreshed - started
        return metrics

    def _finished_metrics(self) -> dict[str, Any] | None:
        try:
            document = json.loads((self.run_dir / metrics_name).read_bytes())
            return document if document["eval_run"]["status"] == "finished" else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _earlier_run(self) -> dict[str, Any]:
        """The `eval_run` that an earlier invocation of this run left in metrics.json."""
        try:
            eval_run = json.loads((self.run_dir / metrics_name).read_bytes())["eval_run"]
            started, duration = eval_run["started_at"], eval_run.get("duration_ms", 0.0)
            ours = eval_run["id"] == self._manifest.local_run_id and isinstance(started, str)
            return eval_run if ours and isinstance(duration, int | float) and duration >= 0 else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _restore(self) -> None:
        """Once: take over what earlier invocations projected, and make what they could not."""
        if self._restored:
            return
        self._restored = True
        artifacts.clear_scratch(self.run_dir)
        earlier = self._earlier_lines()
        trajectories = _names(self.run_dir / "trajectories")
        copies = _names(self.run_dir / artifacts.artifacts_name)
        for key, entry in list(self._records.items()):
            if not entry.resumed:
                continue  # of this invocation: `verdict` takes it
            name = artifacts.item_name(key)
            line = earlier.get(key)
            if line is None or line.get("rollout_id") != entry.rollout_id:
                self._take(key)
                continue
            if name not in copies:
                self._copy_artifacts(key, entry)
            has_trajectory = line.get("trajectory_filename") == artifacts.trajectory_name
            if has_trajectory != (f"{name}.json" in trajectories):
                self._take_trajectory(key, entry)
                continue
            tokens = line.get("tokens")
            if entry.tokens is None and isinstance(tokens, int):
                self._found_tokens[key] = tokens
            self._lines[key] = _index_line(entry, has_trajectory, self._found_tokens.get(key))

    def _earlier_lines(self) -> dict[ItemKey, dict[str, Any]]:
        lines: dict[ItemKey, dict[str, Any]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError), (self.run_dir / index_name).open("rb") as stream:
            for text in stream:
                line = json.loads(text)
                lines[line["row_index"], line["run_index"]] = {
                    key: line.get(key) for key in ("rollout_id", "trajectory_filename", "tokens")
                }
        return lines

    def _take(self, key: ItemKey) -> None:
        entry = self._records[key]
        self._found_tokens.pop(key, None)
        self._take_trajectory(key, entry)
        self._copy_artifacts(key, entry)

    def _take_trajectory(self, key: ItemKey, entry: Entry) -> None:
        trajectory = artifacts.read_trajectory(self.run_dir, entry.rollout_id)
        try:
            artifacts.write_trajectory(self.run_dir, key, trajectory)
        except OsmosisError as error:
            self._warn(error.message)
        except OSError as error:
            self._warn(storage_error(self.run_dir / "trajectories", error).message)
        if trajectory is not None and trajectory.tokens is not None and entry.tokens is None:
            self._found_tokens[key] = trajectory.tokens
        self._lines[key] = _index_line(entry, trajectory is not None, self._found_tokens.get(key))

    def _copy_artifacts(self, key: ItemKey, entry: Entry) -> None:
        try:
            artifacts.copy_artifacts(self.run_dir, key, entry.rollout_id, self._warn)
        except OSError as error:
            self._warn(storage_error(self.run_dir / artifacts.artifacts_name, error).message)


def _index_line(entry: Entry, has_trajectory: bool, found_tokens: int | None) -> bytes:
    """A line of index.jsonl: exactly the published keys, in their order, absent ones left out."""
    record = {
        "row_index": entry.row_index,
        "run_index": entry.run_index,
        "rollout_id": entry.rollout_id,
        "trajectory_filename": artifacts.trajectory_name if has_trajectory else None,
        "status": entry.outcome.value,
        "reward": entry.reward,
        "tokens": entry.tokens if entry.tokens is not None else found_tokens,
        "duration_ms": entry.duration_ms,
        "error_type": entry.error_type,
        "resumed": True if entry.resumed else None,
    }
    present = {key: value for key, value in record.items() if value is not None}
    return encode_json(json.dumps(present, ensure_ascii=False, allow_nan=False)) + b"\n"


def _names(directory: Path) -> set[str]:
    try:
        return {path.name for path in directory.iterdir()}
    except OSError:
        return set()
