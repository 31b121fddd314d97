"""The eval file: `configs/eval/<name>.toml`, parsed once into an `EvalConfig` that cannot be wrong.

Owns: `[evaluation]`, and that `[secrets]` must be there. What eval and training files share is `config_check`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.workspace.config_check import ConfigCheck, locate_config, not_a_number, not_an_integer
from osmosis_ai.workspace.toml_file import read_toml

DEFAULT_PASS_THRESHOLD = 1.0
_SECTIONS = ("experiment", "evaluation", "advanced", "env", "secrets")
_EVALUATION_KEYS = ("limit", "n", "batch_size", "pass_threshold", "agent_workflow_timeout_s", "grader_timeout_s")


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """One evaluation as the file describes it.

    Attributes:
        path: The file, absolute.
        rollout: Folder name under `rollouts/`.
        entrypoint: File to run, relative to the rollout's folder.
        model_path: `provider/model`, or `osmosis/<name>` for an embedded policy.
        dataset: Platform dataset name; `--dataset-file` replaces it locally.
        branch: Git branch the platform checks out; never together with `commit_sha`.
        commit_sha: Commit the platform checks out, 7 to 40 hex digits.
        limit: First rows to take; None takes all.
        n: Attempts a row, at least 1.
        batch_size: Concurrent rollouts; None leaves it to the server's capacity.
        pass_threshold: A reward at or above it passes.
        agent_timeout_s: Limit of one agent workflow, seconds; None leaves it to the server.
        grader_timeout_s: Limit of one grader, seconds; None leaves it to the server.
        secret_names: Variables whose values come from outside the file.
        env: Literal variables of the rollout's process.
        advanced: Free table, recorded and otherwise unused.
        evaluation: Keys of `[evaluation]` as the file has them, without defaults: what a managed run is sent.
    """

    path: Path
    rollout: str
    entrypoint: str
    model_path: str
    dataset: str
    branch: str | None = None
    commit_sha: str | None = None
    limit: int | None = None
    n: int = 1
    batch_size: int | None = None
    pass_threshold: float = DEFAULT_PASS_THRESHOLD
    agent_timeout_s: float | None = None
    grader_timeout_s: float | None = None
    secret_names: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    advanced: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)


def locate_eval_config(given: Path, work_tree: Path, command: str) -> Path:
    """The absolute path of an eval file.

    Raises:
        ValidationError: It lies outside `configs/eval/`, does not end in `.toml` or does not exist.
    """
    return locate_config(given, work_tree, "eval", command)


def load_eval_config(path: Path, work_tree: Path) -> EvalConfig:
    """Read and check an eval file.

    Args:
        path: The file, from `locate_eval_config`.
        work_tree: Root of the Git work tree; the rollout and entrypoint must stay inside `rollouts/`.

    Raises:
        UsageError: The path is a directory.
        ValidationError: Not readable, not TOML, or any rule is broken (`InvalidConfigError`, all findings at once).
    """
    check = ConfigCheck(read_toml(path), work_tree, "Invalid eval config")
    check.sections(_SECTIONS)
    experiment = check.experiment(dict.fromkeys(_EVALUATION_KEYS, "evaluation"))
    evaluation = _evaluation(check)
    env = check.env()
    secrets = check.secrets(env, required=True)
    advanced = check.table("advanced") or {}
    if check.issues:
        check.refuse()
    return EvalConfig(
        path=path,
        secret_names=secrets,
        env=env,
        advanced=advanced,
        evaluation=check.file.data.get("evaluation", {}),
        **experiment,
        **evaluation,
    )


def _evaluation(check: ConfigCheck) -> dict[str, Any]:
    table = check.table("evaluation")
    if table is None:
        return {}
    names = {"agent_workflow_timeout_s": "agent_timeout_s"}
    checks: dict[str, Callable[[Any], str | None]] = {
        "limit": _at_least_one,
        "n": _at_least_one,
        "batch_size": _at_least_one,
        "pass_threshold": _not_negative,
        "agent_workflow_timeout_s": _positive,
        "grader_timeout_s": _positive,
    }
    values: dict[str, Any] = {}
    for key, rule in checks.items():
        if key not in table:
            continue
        value = table[key]
        if problem := rule(value):
            check.report(f"evaluation.{key}", problem, about="meaning")
        else:
            values[names.get(key, key)] = value if rule is _at_least_one else float(value)
    hints = {
        "timeout": "; the limits are agent_workflow_timeout_s and grader_timeout_s",
        "agent_timeout_s": "; did you mean agent_workflow_timeout_s?",
        "rows": "; choose rows on the command line with --rows, or the first ones with limit",
    }
    check.unknown("evaluation", table, _EVALUATION_KEYS, hints)
    return values


def _at_least_one(value: Any) -> str | None:
    return not_an_integer(value) or (None if value >= 1 else f"must be a positive integer, got {value}")


def _not_negative(value: Any) -> str | None:
    return not_a_number(value) or (f"must be 0 or more, got {value}" if value < 0 else None)


def _positive(value: Any) -> str | None:
    return not_a_number(value) or (f"must be more than 0 seconds, got {value}" if value <= 0 else None)
