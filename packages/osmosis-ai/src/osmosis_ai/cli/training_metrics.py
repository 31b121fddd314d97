"""The metrics of a managed training: fetched, exported as a file, drawn as graphs.

Owns: the export's shape and place. The names of the metrics are the published ones, not the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.results import Graphs
from osmosis_ai.cli.run_records import WAITING
from osmosis_ai.errors import ConflictError, OsmosisError, PlatformError

if TYPE_CHECKING:
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

NOT_YET = "Metrics are not yet available for pending or queued training runs."
_KEYS = {
    "rollout/raw_reward": "training_reward",
    "eval/validation/reward": "validation_reward",
    "train/entropy_loss": "entropy",
    "rollout/response_lengths": "response_length",
    "rollout/total_lengths": "total_length",
    "rollout/truncated_ratio": "truncation_ratio",
}


@dataclass(frozen=True, slots=True)
class TrainingMetrics:
    """What is known of a training's metrics.

    Attributes:
        export: The object that is saved; None when there are none.
        problem: Why there are none.
        duration_ms: How long the training has taken.
    """

    export: Mapping[str, Any] | None
    problem: str | None = None
    duration_ms: float | None = None

    def graphs(self) -> Graphs:
        """One sparkline a metric."""
        metrics = self.export["metrics"] if self.export else []
        rows = [(m["title"], [p["value"] for p in m["data"] if p["value"] is not None]) for m in metrics]
        return Graphs(rows, title="Metrics")


def fetch_metrics(client: PlatformClient, record: Mapping[str, Any]) -> TrainingMetrics:
    """The metrics of a training record; an error of the platform is a reason why there are none."""
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    if (record.get("status") or "").lower() in WAITING:
        return TrainingMetrics(None, NOT_YET)
    try:
        reply = Record(client.get(f"/training-runs/{segment(record['id'])}/metrics"), "metrics")
        return _made(record, reply)
    except PlatformError as error:
        return TrainingMetrics(None, error.message)
    except OsmosisError as error:
        if error.error_code in ("AUTH_REQUIRED", "UPGRADE_REQUIRED"):
            raise
        return TrainingMetrics(None, error.message)


def _made(record: Mapping[str, Any], reply: Record) -> TrainingMetrics:
    overview = reply.record("overview")
    duration = overview.maybe_number("duration_ms")
    export = {
        "training_run": {
            "id": record["id"],
            "status": reply.text("status"),
            "name": record["name"],
            "base_model_name": record["model_name"],
            "dataset_name": record["dataset_name"],
            "rollout_name": record["rollout_name"],
            "duration_ms": duration,
            "started_at": record["started_at"],
            "latest_step": overview.maybe_int("latest_step"),
            "total_steps": overview.maybe_int("total_steps"),
        },
        "summary": {
            _KEYS.get(key := summary.text("key"), key): {
                name: summary.maybe_number(name) for name in ("initial", "latest", "delta", "min", "max")
            }
            for summary in overview.records("metric_summaries")
        },
        "metrics": [_metric(metric) for metric in reply.records("metrics")],
    }
    return TrainingMetrics(export, duration_ms=duration)


def _metric(metric: Record) -> dict[str, Any]:
    key = metric.text("metric_key")
    points = sorted(
        (point.integer("step"), point.integer("timestamp"), point.maybe_number("value"))
        for point in metric.records("data_points")
    )
    data = [{"step": step, "value": value, "timestamp": _moment(stamp)} for step, stamp, value in points]
    return {"key": _KEYS.get(key, key), "title": metric.text("title"), "data": data}


def _moment(epoch_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def export_path(given: str, default_name: str) -> Path:
    """Where `-o` puts the file: a folder takes the default name, another suffix becomes `.json`."""
    path = Path(given)
    if given.endswith("/") or path.is_dir():
        return path / default_name
    return path if path.suffix == ".json" else path.with_suffix(".json")


def default_name(record: Mapping[str, Any]) -> str:
    """The run's name with the start of its id, as far as a file's name can hold them."""
    from osmosis_ai.cli.output_places import file_word

    return f"{file_word(record['name'] or record['id'])}_{file_word(record['id'][:8])}.json"


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse to write over a file before anything is asked of the platform.

    Raises:
        ConflictError: It exists and may not be replaced.
    """
    if path.exists() and not overwrite:
        raise ConflictError(f"{path} exists already; name another file with -o, or add --overwrite to replace it.")


def save_export(export: Mapping[str, Any], path: Path) -> None:
    """Write the export, all of it or nothing; folders on the way are made.

    Raises:
        OSError: A folder cannot be made.
        OsmosisError: The file cannot be written.
    """
    from osmosis_ai.evaluation.atomic import json_bytes, write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json_bytes(export), durable=False)
