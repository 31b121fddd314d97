"""Which files a run's download may hold: the fixed layout of evaluations and benchmarks, checked path by path.

Owns: the types a user can choose and the paths that belong to each. Nothing outside is ever written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osmosis_ai.errors import ValidationError

_TRIAL = r"row_[0-9]+_run_[0-9]+"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Layout:
    """The outputs of one kind of run.

    Attributes:
        kind: What it is called in messages.
        types: What can be chosen, in the order results name it.
        default: What is fetched without a choice.
        type_of: The type a path belongs to; None outside the layout.
    """

    kind: str
    types: tuple[str, ...]
    default: tuple[str, ...]
    type_of: Callable[[str], str | None]

    def choose(self, text: str | None) -> tuple[str, ...]:
        """The types of an option's value such as `metrics,logs` or `all`.

        Raises:
            ValidationError: An unknown or empty part, or `all` beside others.
        """
        if text is None:
            return self.default
        parts = [part.strip().lower() for part in text.split(",")]
        if parts == ["all"]:
            return self.types
        known = f"Choose from {', '.join(self.types)}, or all."
        if "all" in parts:
            raise ValidationError(f"--type all stands alone. {known}")
        for part in parts:
            if part not in self.types:
                named = f"does not know {part!r}" if part else "has an empty part"
                raise ValidationError(f"--type {named}. {known}")
        return tuple(dict.fromkeys(parts))

    def refuse(self, path: str, selected: Sequence[str]) -> str | None:
        """Why a path of the manifest is not taken; None when it is."""
        segments = path.split("/")
        if "\\" in path or _CONTROL.search(path) or {"", ".", ".."} & set(segments):
            return "Manifest path is outside the fixed run layout."
        kind = self.type_of(path)
        if kind is None:
            return "Manifest path is outside the fixed run layout."
        if kind not in selected:
            return f"Manifest path belongs to the type {kind}, which was not asked for."
        return None


def _eval_type(path: str) -> str | None:
    folder, _, rest = path.partition("/")
    match folder:
        case "metrics.json" | "logs.txt" | "summary.jsonl" if not rest:
            return {"metrics.json": "metrics", "logs.txt": "logs", "summary.jsonl": "trajectories"}[folder]
        case "trajectories" if rest and "/" not in rest:
            return "trajectories"
        case "artifacts" if rest and not re.fullmatch(rf"{_TRIAL}/manifest\.json", rest):
            return "artifacts"
    return None


def _benchmark_type(path: str) -> str | None:
    single = {"summary.csv": "summary", "results.csv": "results", "logs.txt": "logs"}
    if path in single:
        return single[path]
    return "artifacts" if path.startswith("artifacts/") and path.count("/") >= 2 else None


EVAL = Layout(
    "evaluation run", ("metrics", "trajectories", "artifacts", "logs"), ("metrics", "trajectories"), _eval_type
)
BENCHMARK = Layout(
    "benchmark run", ("summary", "results", "artifacts", "logs"), ("summary", "results"), _benchmark_type
)
