"""Live previews: the conversation so far of a running rollout, as a small redacted ATIF file that is replaced in place.

Owns where previews go, what they may show and how often. The sample source decides what there is to show.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from osmosis_ai.redaction import MARK, Redactor
from osmosis_ai.rollout.context import ROLLOUT_PREVIEW_ROOT_ENV, RolloutContext
from osmosis_ai.rollout.trajectory.converter import json_value, trajectory_document
from osmosis_ai.rollout.trajectory.save import write_atomically
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutStatus
from osmosis_ai.rollout.utils.errors import redactor_of

logger = logging.getLogger(__name__)

PREVIEW_FILE = "preview.json"
PREVIEW_VERSION = 1
INTERVAL_S = 3.0
MAX_MESSAGES = 100
MAX_TEXT_CHARS = 16_384
MAX_SOURCE_BYTES = 8 * 1024 * 1024
MAX_OUTPUT_BYTES = 900 * 1024
_STOP_S = 2.0

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,255}")
_SECRET_KEY = re.compile(r"api[-_]?key|authorization|password|passwd|secret|access[-_]?token|bearer|credential", re.I)
_SECRET_TEXT = re.compile(r"\b(?:sk|pk|rk|ghp|gho|xox[a-z])[-_][A-Za-z0-9_-]{16,}|\bBearer\s+[A-Za-z0-9._~+/-]{16,}=*")
_TOKEN_KEYS = frozenset(
    {"token_ids", "prompt_token_ids", "completion_token_ids", "logprobs", "top_logprobs", "output_token_logprobs"}
)


class HasStatus(Protocol):
    """Whoever knows where the rollout stands."""

    status: RolloutStatus


def preview_path(rollout_id: str) -> Path | None:
    """Where the rollout's preview goes.

    None without `_OSMOSIS_ROLLOUT_PREVIEW_ROOT`, when that is not absolute or leads through a symbolic link, or when
    the id is not plain enough to name a directory that other programs read.
    """
    configured = os.environ.get(ROLLOUT_PREVIEW_ROOT_ENV)
    if not configured or _ID.fullmatch(rollout_id) is None:
        return None
    root = Path(configured)
    if not root.is_absolute() or any(part.is_symlink() for part in (root, *root.parents)):
        logger.warning("no previews: %s must be an absolute path without symbolic links", ROLLOUT_PREVIEW_ROOT_ENV)
        return None
    path = root / rollout_id / PREVIEW_FILE
    return None if path.parent.is_symlink() or path.is_symlink() else path


@asynccontextmanager
async def previewed(
    context: RolloutContext, progress: HasStatus, *, label: str | None = None, interval_s: float | None = None
) -> AsyncGenerator[None]:
    """Write the context's previews to its `preview_path` for as long as the block runs."""
    publishing = asyncio.create_task(_publish(context, progress, label, interval_s or INTERVAL_S))
    try:
        yield
    finally:
        publishing.cancel()
        await asyncio.wait((publishing,), timeout=_STOP_S)


async def _publish(context: RolloutContext, progress: HasStatus, label: str | None, interval_s: float) -> None:
    path = context.preview_path
    assert path is not None
    last: bytes | None = None
    while True:
        # The workflow runs before the first look, so a workflow that opts out at its start is never shown.
        await asyncio.sleep(interval_s)
        if not context.preview_enabled:
            return
        if context.sample_source is None:
            continue
        try:
            sample = await context.sample_source.get_preview(MAX_MESSAGES)
            if sample is None or not context.preview_enabled:
                continue
            # A thread: redacting and writing a long conversation would hold up every rollout of this server.
            last = await asyncio.to_thread(
                _write, path, sample, last, context.rollout_id, str(progress.status), label, (context.api_key,)
            )
        except Exception:
            logger.debug("no preview of rollout %s this time", context.rollout_id, exc_info=True)


def _write(
    path: Path,
    sample: RolloutSample,
    last: bytes | None,
    rollout_id: str,
    status: str,
    label: str | None,
    secrets: Iterable[str | None],
) -> bytes:
    """Write the preview unless its input is the same as the last one's; returns the input's digest."""
    messages, truncated = _newest(sample)
    digest = hashlib.sha256(json.dumps([status, messages], default=str).encode("utf-8", "replace")).digest()
    if digest == last:
        return digest
    shown = sample.model_copy(
        update={
            "messages": [],
            "trajectory_messages": redact(messages, secrets),
            "metrics": {},
            "extra_fields": {},
        }
    )
    document = trajectory_document(shown, rollout_id=rollout_id, request_label=label)
    turn = sample.extra_fields.get("_preview_turn")
    facts = {
        "rollout_id": rollout_id,
        "preview": True,
        "turn": turn if isinstance(turn, int) else sum(step["source"] == "agent" for step in document["steps"]),
        "truncated": truncated or bool(sample.extra_fields.get("_preview_truncated")),
        "status": status,
        "preview_version": PREVIEW_VERSION,
        "updated_at": datetime.now(UTC).isoformat(),
    }
    document["extra"] = {"osmosis": facts}
    write_atomically(path, _within_limit(document))
    return digest


def _newest(sample: RolloutSample) -> tuple[list[Any], bool]:
    """The newest messages that fit into the source limit, and whether some were left out."""
    messages = sample.trajectory_messages if sample.trajectory_messages is not None else sample.messages
    kept: list[Any] = []
    size = 0
    for message in reversed(messages[-MAX_MESSAGES:]):
        plain = json_value(message)
        size += len(json.dumps(plain))
        if size > MAX_SOURCE_BYTES:
            break
        kept.append(plain)
    return kept[::-1], len(kept) < len(messages)


def redact(value: Any, secrets: Iterable[str | None] = ()) -> Any:
    """A copy without secrets, token ids and log-probabilities, and with long texts clipped."""
    return _shown(value, redactor_of(secrets))


def _shown(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        text = _SECRET_TEXT.sub(MARK, redactor.text(value))
        return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"
    if isinstance(value, Mapping):
        return {
            key: MARK if _SECRET_KEY.search(str(key)) and isinstance(item, str) else _shown(item, redactor)
            for key, item in value.items()
            if key not in _TOKEN_KEYS
        }
    if isinstance(value, (list, tuple)):
        return [_shown(item, redactor) for item in value]
    return value


def _within_limit(document: dict[str, Any]) -> bytes:
    """The document as bytes; the oldest steps go until it fits."""
    data = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    steps = document["steps"]
    while len(data) > MAX_OUTPUT_BYTES and len(steps) > 1:
        steps = steps[max(1, len(steps) // 4) :]
        for number, step in enumerate(steps, start=1):
            step["step_id"] = number
        document = {**document, "steps": steps, "final_metrics": {"total_steps": len(steps)}}
        document["extra"]["osmosis"]["truncated"] = True
        data = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > MAX_OUTPUT_BYTES:
        raise ValueError(f"one step alone is larger than {MAX_OUTPUT_BYTES} bytes")
    return data
