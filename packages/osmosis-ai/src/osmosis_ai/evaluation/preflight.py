"""The question before a run costs anything: does the policy answer? Asked again after a while, or with another key."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.errors import OsmosisError

if TYPE_CHECKING:
    from osmosis_ai.gateway.policy import Policy, PolicyError

REMEMBERED_S = 600.0
_RELEVANT = re.compile(r"KEY|TOKEN|SECRET|BASE|HOST|URL|ENDPOINT|REGION|PROJECT|PROXY|CREDENTIALS|PROFILE|VERSION")
REMEDIES: Mapping[str, str] = {
    "authentication": "Check the provider's key (in the environment, or through [secrets] and --secrets-file).",
    "quota": "The provider refuses for lack of quota or credit; top up, or choose another model_path.",
    "not_found": "Check model_path in the eval config: provider/model.",
    "unavailable": "Check the network and the provider's base URL (for example OPENAI_BASE_URL).",
    "timeout": "Check the network and the provider's base URL (for example OPENAI_BASE_URL).",
    "bad_request": "The model does not take a plain chat call; choose another model_path.",
    "protocol": "The base URL leads to something that is not a chat completions API; check it.",
}
"""What a person can do about each kind of `PolicyError` that stops a run."""


class PreflightError(OsmosisError):
    """The policy cannot be reached, authenticated to or found, so no row was started."""

    code = "POLICY_ERROR"


async def preflight(
    policy: Policy, environ: Mapping[str, str], *, cache_dir: Path, log: Callable[[str, str], None]
) -> None:
    """Ask the policy once, unless the same question was answered in the last ten minutes.

    Args:
        policy: Who will answer the agents.
        environ: Where its keys and addresses come from; they name the question, as a digest.
        cache_dir: Where answered questions are remembered.
        log: Takes level and message.

    Raises:
        PreflightError: It cannot answer. A rate limit passes: the gateway waits for it.
    """
    from osmosis_ai.gateway.policy import PolicyError

    path = cache_dir / "preflight.json"
    question = _question(policy.model, environ)
    if time.time() - _remembered(path).get(question, 0) < REMEMBERED_S:
        log("INFO", "the model answered a moment ago")
        return
    try:
        await policy.preflight()
    except PolicyError as error:
        if error.kind == "rate_limit":
            log("WARNING", f"the model is there but limits the rate of calls: {error.message}")
            return
        log("ERROR", error.message)
        raise _refusal(policy.model, error) from error
    log("INFO", "the model answers")
    _remember(path, question)


def forget(policy_model: str, environ: Mapping[str, str], *, cache_dir: Path) -> None:
    """The answer no longer holds (the policy failed for good during the run): ask again next time."""
    path = cache_dir / "preflight.json"
    answers = _remembered(path)
    if answers.pop(_question(policy_model, environ), None) is not None:
        _write(path, answers)


def _refusal(model: str, error: PolicyError) -> PreflightError:
    remedy = REMEDIES.get(error.kind, "")
    message = f"The model {model} cannot be used ({error.kind.replace('_', ' ')}): {error.message}"
    return PreflightError(f"{message}\n{remedy}".rstrip(), details={"kind": error.kind, "status": error.status})


def _question(model: str, environ: Mapping[str, str]) -> str:
    parts = [model, *(f"{name}={environ[name]}" for name in sorted(environ) if _RELEVANT.search(name))]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _remembered(path: Path) -> dict[str, float]:
    try:
        data = json.loads(path.read_text())
        now = time.time()
        return {k: v for k, v in data.items() if isinstance(v, int | float) and 0 <= now - v < REMEMBERED_S}
    except (OSError, ValueError, AttributeError):
        return {}


def _remember(path: Path, question: str) -> None:
    _write(path, _remembered(path) | {question: time.time()})


def _write(path: Path, answers: Mapping[str, float]) -> None:
    """Best effort: a cache that cannot be written costs one call."""
    temporary = path.with_name(f".preflight.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(answers, file)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
