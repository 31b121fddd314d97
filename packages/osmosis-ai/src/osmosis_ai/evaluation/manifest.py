"""The manifest of a run: what it is made of, fixed at its start, and whether a later start is the same run."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.evaluation.atomic import json_bytes, storage_error, write_atomic
from osmosis_ai.evaluation.dataset import Dataset
from osmosis_ai.evaluation.rows import Selection, parse_selector

manifest_name = "manifest.json"
schema_version = 1
versions: Mapping[str, Any] = {"rollout_protocol": "0.4", "dataset_normalization": 1, "state_schema": 1}
threshold_key = "pass_threshold"
_digests = {"sha256": "content", "source_digest": "source files"}
_shown_chars = 40

type ResolvedInputs = dict[str, Any]
"""The manifest's `inputs`: what decides the results. Two starts with equal inputs are the same run."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What manifest.json says.

    Attributes:
        local_run_id: 32 hex digits.
        pass_threshold: Locked like the inputs; None in a manifest of the published package, which does not store it.
        digest: SHA-256 of the file's bytes.
    """

    local_run_id: str
    run_name: str
    created_at: str
    inputs: ResolvedInputs
    pass_threshold: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""


def build_inputs(
    *,
    model_path: str,
    dataset: Dataset,
    selection: Selection,
    n: int,
    rollout: str,
    entrypoint: str,
    source_digest: str,
    env: Mapping[str, str],
    secret_names: Iterable[str],
    agent_timeout_s: float | None = None,
    grader_timeout_s: float | None = None,
) -> ResolvedInputs:
    """Gather what decides a run's results; names of secrets are in it, their values never."""
    return {
        "model_path": model_path,
        "dataset": {"sha256": dataset.sha256, "selected_source_rows": selection.selector},
        "n": n,
        "rollout": {"name": rollout, "entrypoint": entrypoint, "source_digest": source_digest},
        "env": dict(sorted(env.items())),
        "secret_names": sorted(secret_names),
        "timeouts": {"agent_timeout_sec": agent_timeout_s, "grader_timeout_sec": grader_timeout_s},
        "versions": dict(versions),
    }


def read_manifest(run_dir: Path) -> Manifest | None:
    """Read a run's manifest; None when the directory holds none.

    Raises:
        ValidationError: It is no manifest, or one of another schema version.
    """
    path = run_dir / manifest_name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise TypeError("it is no JSON object")
        if document.get("schema_version") != schema_version:
            raise _other_version(path, document.get("schema_version"))
        threshold = document.get(threshold_key)
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, (int, float))):
            raise TypeError(f"{threshold_key} is no number")
        inputs = document["inputs"]
        provenance = document.get("provenance", {})
        if not isinstance(inputs, dict) or not isinstance(provenance, dict):
            raise TypeError("inputs or provenance is no object")
        return Manifest(
            local_run_id=_text(document, "local_run_id"),
            run_name=_text(document, "run_name"),
            created_at=_text(document, "created_at"),
            inputs=inputs,
            pass_threshold=threshold,
            provenance=provenance,
            digest=hashlib.sha256(data).hexdigest(),
        )
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValidationError(
            f"{path} is damaged: {reason}. Restore it, or start over with --fresh (the old results are kept).",
        ) from error


def write_manifest(
    run_dir: Path,
    *,
    run_name: str,
    inputs: ResolvedInputs,
    pass_threshold: float,
    provenance: Mapping[str, Any] | None = None,
) -> Manifest:
    """Write the manifest of a new run with a new id.

    Raises:
        OsmosisError: The disk is full or refuses.
    """
    document = {
        "schema_version": schema_version,
        "local_run_id": secrets.token_hex(16),
        "run_name": run_name,
        "created_at": utc_timestamp(),
        "inputs": inputs,
        threshold_key: pass_threshold,
        "provenance": {key: value for key, value in (provenance or {}).items() if value is not None},
    }
    write_atomic(run_dir / manifest_name, json_bytes(document))
    manifest = read_manifest(run_dir)
    if manifest is None:
        raise OsmosisError(f"{run_dir / manifest_name} vanished while the run started. Start again.")
    return manifest


def changed_inputs(manifest: Manifest, inputs: ResolvedInputs, *, pass_threshold: float | None = None) -> list[str]:
    """Name the top-level inputs (and `pass_threshold`) in which a start differs from the run; none: the same run.

    A manifest without a threshold (published package) locks none.
    """
    ours, theirs = _comparable(inputs), _comparable(manifest.inputs)
    changed = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    if manifest.pass_threshold is not None and pass_threshold is not None and manifest.pass_threshold != pass_threshold:
        changed.append(threshold_key)
    return changed


def change_text(manifest: Manifest, inputs: ResolvedInputs, pass_threshold: float, key: str) -> str:
    """A changed top-level input for a person: what of it, and short values before and now (not of `env`)."""
    before, now = manifest.inputs.get(key), inputs.get(key)
    if key == threshold_key:
        before, now = manifest.pass_threshold, pass_threshold
    if not isinstance(before, dict) or not isinstance(now, dict):
        return _part_text(key, before, now)
    parts = sorted(part for part in before.keys() | now.keys() if before.get(part) != now.get(part))
    if key == "env":
        return f"env ({', '.join(parts)})"
    return f"{key} ({'; '.join(_part_text(part, before.get(part), now.get(part)) for part in parts)})"


def archive_run(run_dir: Path, *, now: datetime | None = None) -> Path:
    """Move a run directory to `<name>.archive-<UTC time>[-k]` beside it, and return that path; nothing is deleted.

    Raises:
        OsmosisError: It cannot be moved.
    """
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    base = run_dir.with_name(f"{run_dir.name}.archive-{stamp}")
    target, number = base, 1
    while target.exists() or target.is_symlink():
        target, number = base.with_name(f"{base.name}-{number}"), number + 1
    try:
        return run_dir.rename(target)
    except OSError as error:
        raise storage_error(target, error) from error


def utc_timestamp(moment: datetime | None = None) -> str:
    """A moment (now) as the run's files write it: ISO 8601, microseconds, Z."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _part_text(part: str, before: Any, now: Any) -> str:
    if part in _digests:
        return f"other {_digests[part]}"
    name = {"selected_source_rows": "rows"}.get(part, part)
    texts = ["none" if value is None else str(value) for value in (before, now)]
    return f"{name} {texts[0]}, now {texts[1]}" if max(map(len, texts)) <= _shown_chars else f"other {name}"


def _comparable(inputs: ResolvedInputs) -> dict[str, Any]:
    """Inputs without what is only another way to write the same rows."""
    result = json.loads(json_bytes(inputs))
    dataset = result.get("dataset")
    if isinstance(dataset, dict) and isinstance(selector := dataset.get("selected_source_rows"), str):
        try:
            dataset["selected_source_rows"] = [list(pair) for pair in parse_selector(selector)]
        except ValidationError:
            pass  # compared as the text it is
    return result


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key} is no text")
    return value


def _other_version(path: Path, version: Any) -> ValidationError:
    return ValidationError(
        f"{path} has schema version {version!r}, and this osmosis reads {schema_version}. Use the version that made "
        "the run, or start over with --fresh (the old results are kept).",
    )
