"""What `osmosis config validate` says of a config file: which kind it is, and all that can be known without a network.

Owns: telling the kind. The rules are the config modules'; the rollout's files are checked as a local run does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from osmosis_ai.cli.results import Cell, DetailResult, Fields, Lines, Text
from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.workspace.config_check import InvalidConfigError
from osmosis_ai.workspace.toml_file import read_toml

KINDS = ("eval", "training", "benchmark")
_SIGNS = {"evaluation": "eval", "training": "training", "sampling": "training", "checkpoints": "training"}


def validate_config(given: Path, kind: str | None) -> DetailResult:
    """Check one file.

    Args:
        given: The file, relative to the current directory.
        kind: `eval`, `training` or `benchmark`; None finds out.

    Raises:
        UsageError: It is a directory.
        ValidationError: Not readable, of no known kind, or a rule is broken; `details` has `kind`, `file` and
            `issues`: every finding with its line.
    """
    path = Path.cwd() / given
    chosen = kind or _kind(path)
    try:
        rows, warnings = _benchmark(path) if chosen == "benchmark" else _with_rollout(path, chosen)
    except ValidationError as error:
        findings = {"issues": error.findings} if isinstance(error, InvalidConfigError) else {}
        error.details = {"valid": False, "file": str(path), "kind": chosen, **error.details, **findings}
        raise
    data = {"valid": True, "file": str(path), "kind": chosen, "errors": [], "warnings": warnings}
    shown = Lines([Text(f"⚠ {line}", "warn") for line in warnings])
    status = Text(f"Valid {chosen} config", "good")
    return DetailResult(
        data, [Fields([("File", str(given)), ("Status", status), *rows]), shown], title="Config Validation"
    )


def _kind(path: Path) -> str:
    """The kind by the folder under `configs/`, else by the sections."""
    for parent in path.parents:
        if parent.parent.name == "configs" and parent.name in KINDS:
            return parent.name
    data = read_toml(path).data
    experiment = data.get("experiment")
    if "agents" in data or (isinstance(experiment, dict) and "benchmark" in experiment):
        return "benchmark"
    found = sorted({kind for section, kind in _SIGNS.items() if section in data})
    if len(found) == 1:
        return found[0]
    raise ValidationError(
        f"Cannot tell which kind of config {path} is: it lies under none of configs/eval, configs/training and"
        " configs/benchmark, and its sections do not say. Name it with --kind."
    )


def _benchmark(path: Path) -> tuple[list[tuple[str, Cell]], list[str]]:
    from osmosis_ai.workspace.benchmark_config import load_benchmark_config

    config = load_benchmark_config(path)
    warnings = ['HLE is usually run on its parity tasks: task_set = "parity" under [tasks].'] * config.misses_parity
    return [("Benchmark", config.benchmark), ("Agents", str(len(config.agents)))], warnings


def _with_rollout(path: Path, kind: str) -> tuple[list[tuple[str, Cell]], list[str]]:
    from osmosis_ai.cli.preconditions import require_rollout
    from osmosis_ai.workspace.eval_config import load_eval_config
    from osmosis_ai.workspace.repository import find_work_tree
    from osmosis_ai.workspace.training_config import load_training_config

    warnings = []
    try:
        work_tree = find_work_tree(path.parent if path.parent.is_dir() else None)
    except OsmosisError:
        work_tree = None
    load: Any = load_eval_config if kind == "eval" else load_training_config
    config = load(path, work_tree or path.parent)
    if work_tree is None:
        warnings.append("The file is in no Git work tree, so the rollout that it names was not looked for.")
    else:
        require_rollout(work_tree, config)
        home = work_tree / "configs" / kind
        if path.suffix != ".toml" or not path.resolve().is_relative_to(home.resolve()):
            warnings.append(f"To be used it must be a .toml file under configs/{kind}/.")
    rows: list[tuple[str, Cell]] = [
        ("Rollout", config.rollout),
        ("Entrypoint", config.entrypoint),
        ("Model", config.model_path),
        ("Dataset", config.dataset),
    ]
    return rows, warnings
