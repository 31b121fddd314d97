"""Writing a rollout's trajectory and diagnostics, so that a reader sees a whole file or none."""

from __future__ import annotations

import json
import logging
import secrets
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.backend.artifacts import default_artifact_root
from osmosis_ai.rollout.trajectory.atif import format_trajectory
from osmosis_ai.rollout.trajectory.converter import json_value, trajectory_document
from osmosis_ai.rollout.trajectory.report import TrajectoryReport, apply_report
from osmosis_ai.rollout.types.execution import ExecutionResult

logger = logging.getLogger(__name__)

TRAJECTORY_FILE = "trajectory.json"
DIAGNOSTICS_FILE = "diagnostics.json"


def save_trajectory(
    *,
    rollout_id: str,
    result: ExecutionResult,
    request_label: str | None = None,
    request_metadata: dict[str, Any] | None = None,
    request_extra_fields: dict[str, Any] | None = None,
    report: TrajectoryReport | None = None,
    artifact_root: Path | None = None,
    diagnostics: dict[str, Any] | None = None,
) -> None:
    """Write `<root>/<id>/trajectory.json` and, when there are diagnostics, `diagnostics.json`. Never raises.

    There is no trajectory without a sample, without messages, or when `trajectory_messages` is None.
    """
    root = artifact_root if artifact_root is not None else default_artifact_root()
    sample = result.sample
    if sample is not None and sample.trajectory_messages:
        try:
            document = trajectory_document(
                sample,
                rollout_id=rollout_id,
                request_label=request_label,
                request_metadata=request_metadata,
                request_extra_fields=request_extra_fields,
            )
            if report is not None:
                document = apply_report(document, report)
            write_atomically(root / rollout_id / TRAJECTORY_FILE, format_trajectory(document).encode())
        except Exception as exc:
            logger.warning("the trajectory of rollout %s is not saved: %s: %s", rollout_id, type(exc).__name__, exc)
    if diagnostics:
        try:
            text = json.dumps(json_value(diagnostics), indent=2, sort_keys=True, ensure_ascii=False)
            write_atomically(root / rollout_id / DIAGNOSTICS_FILE, text.encode())
        except Exception as exc:
            logger.warning("the diagnostics of rollout %s are not saved: %s: %s", rollout_id, type(exc).__name__, exc)


def write_atomically(path: Path, data: bytes) -> None:
    """Write the file in one piece: a temporary file beside it, then a rename.

    Raises:
        OSError: It cannot be written; the file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            temporary.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
