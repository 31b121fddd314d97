"""The eval file: `configs/eval/<name>.toml`, parsed once into an `EvalConfig` that cannot be wrong.

Owns: where the file may lie, every rule about its keys, one report with all findings. Whether the entrypoint exists
is asked when the server is about to start; whether the model exists is asked by the policy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.toml_file import TomlFile, read_toml

DEFAULT_PASS_THRESHOLD = 1.0
_HEADING = "Invalid eval config"
_SECTIONS = ("experiment", "evaluation", "advanced", "env", "secrets")
_EXPERIMENT_REQUIRED = ("rollout", "entrypoint", "model_path", "dataset")
_EXPERIMENT_KEYS = (*_EXPERIMENT_REQUIRED, "branch", "commit_sha")
_EVALUATION_KEYS = ("limit", "n", "batch_size", "pass_threshold", "agent_workflow_timeout_s", "grader_timeout_s")
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_PLACEHOLDER = re.compile(r"<your-[^>]*>")
_RESERVED_PREFIX = "_OSMOSIS_"


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


def locate_eval_config(given: Path, work_tree: Path, command: str) -> Path:
    """The absolute path of an eval file, after the rule about its place (links are followed first).

    Args:
        given: The path as typed, relative to the current directory.
        work_tree: Root of the Git work tree.
        command: The command to name in the error, such as `osmosis eval run`.

    Raises:
        ValidationError: It lies outside `configs/eval/`, does not end in `.toml` or does not exist.
    """
    directory = work_tree / "configs" / "eval"
    absolute = Path.cwd() / given
    try:
        inside = absolute.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise ValidationError(f"Cannot resolve config path {given}: {error}") from None
    if not inside:
        raise ValidationError(
            f"`{command}` config must live under `configs/eval/`.\n  Got: {absolute}\n  Expected under: {directory}"
        )
    if absolute.suffix != ".toml" and not absolute.is_dir():
        raise ValidationError(f"`{command}` config must be a .toml file.\n  Got: {absolute}")
    if not absolute.exists():
        raise ValidationError(f"Config file not found: {absolute}{_others(directory)}")
    return absolute


def _others(directory: Path) -> str:
    names = sorted(path.name for path in directory.glob("*.toml"))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"\n  In configs/eval/ there is: {', '.join(names[:10])}{more}" if names else ""


def load_eval_config(path: Path, work_tree: Path) -> EvalConfig:
    """Read and check an eval file.

    Args:
        path: The file, from `locate_eval_config`.
        work_tree: Root of the Git work tree; the rollout and entrypoint must stay inside `rollouts/`.

    Raises:
        UsageError: The path is a directory.
        ValidationError: Not readable, not TOML, or any rule is broken; `details` holds `error` (the heading) and
            `issues`, one `{key, message, line}` for each finding, all findings at once.
    """
    return _Check(read_toml(path), work_tree).config()


class _Check:
    """Collects every finding of one file."""

    def __init__(self, file: TomlFile, work_tree: Path) -> None:
        self.file = file
        self.work_tree = work_tree
        self.issues: list[dict[str, Any]] = []

    def report(self, key: str, message: str, *, at: Iterable[str] | None = None) -> None:
        line = self.file.line_of(*(at if at is not None else key.split(".")))
        issue: dict[str, Any] = {"key": key, "message": message}
        if line is not None:
            issue["line"] = line
        self.issues.append(issue)

    def config(self) -> EvalConfig:
        data = self.file.data
        for name in data:
            if name not in _SECTIONS:
                self.report(name, "is not a recognised section" + self._suggest(name, _SECTIONS, "[{}]"), at=[name])
        experiment = self._experiment(self._table("experiment", required=True))
        evaluation = self._evaluation(self._table("evaluation"))
        env = self._env(self._table("env"))
        secrets = self._secrets(self._table("secrets", required=True), env)
        advanced = self._table("advanced") or {}
        if self.issues:
            self._raise()
        return EvalConfig(
            path=self.file.path, secret_names=secrets, env=env, advanced=advanced, **experiment, **evaluation
        )

    def _raise(self) -> None:
        self.issues.sort(key=lambda issue: issue.get("line", 0))
        lines = [
            f"  - {issue['key']}: {issue['message']}" + (f" (line {issue['line']})" if "line" in issue else "")
            for issue in self.issues
        ]
        shown = self.file.path
        if shown.is_relative_to(self.work_tree):
            shown = shown.relative_to(self.work_tree)
        raise ValidationError(
            f"{_HEADING} {shown}:\n" + "\n".join(lines),
            details={"error": _HEADING, "issues": self.issues},
        )

    def _suggest(self, word: str, choices: Iterable[str], form: str = "{}") -> str:
        from difflib import get_close_matches  # only a mistake needs it

        near = get_close_matches(word, list(choices), n=1, cutoff=0.6)
        return f"; did you mean {form.format(near[0])}?" if near else ""

    def _table(self, name: str, *, required: bool = False) -> Mapping[str, Any] | None:
        """A section, or None when it is absent or no table."""
        if name not in self.file.data:
            if required:
                remedy = "; write `required = []` under it when nothing is needed" if name == "secrets" else ""
                self.report(name, f"missing [{name}] section{remedy}")
            return None
        value = self.file.data[name]
        if not isinstance(value, dict):
            self.report(name, f"must be a table, got {_shown(value)}")
            return None
        return value

    def _unknown(self, section: str, table: Mapping[str, Any], known: Iterable[str], hints: Mapping[str, str]) -> None:
        for key in table:
            if key not in known:
                hint = hints.get(key) or self._suggest(key, known)
                self.report(f"{section}.{key}", f"is not a recognised key{hint}", at=[section, key])

    def _experiment(self, table: Mapping[str, Any] | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if table is None:
            return values
        for key in _EXPERIMENT_KEYS:
            if key not in table:
                if key in _EXPERIMENT_REQUIRED:
                    self.report(f"experiment.{key}", "is missing")
                continue
            value = table[key]
            if not isinstance(value, str):
                self.report(f"experiment.{key}", f"must be a string, got {_shown(value)}")
            elif not value.strip():
                self.report(f"experiment.{key}", "must not be empty")
            elif _PLACEHOLDER.fullmatch(value):
                self.report(f"experiment.{key}", f"still holds the placeholder {value}; put your own value there")
            else:
                values[key] = value
        if "rollout" in values and (problem := _rollout_problem(values["rollout"], self.work_tree)):
            self.report("experiment.rollout", problem)
        elif "rollout" in values and "entrypoint" in values:
            folder = self.work_tree / "rollouts" / values["rollout"]
            if not _stays_inside(folder, values["entrypoint"]):
                where = f"rollouts/{values['rollout']}/"
                self.report("experiment.entrypoint", f"must stay inside {where}, got {_shown(values['entrypoint'])}")
        if "branch" in values and re.search(r"\s", values["branch"]):
            self.report("experiment.branch", f"must hold no white space, got {_shown(values['branch'])}")
        if "commit_sha" in values and not _COMMIT.fullmatch(values["commit_sha"]):
            got = _shown(values["commit_sha"])
            self.report("experiment.commit_sha", f"must be 7 to 40 hexadecimal characters, got {got}")
        if "branch" in table and "commit_sha" in table:
            self.report("experiment", "branch and commit_sha exclude each other; keep one")
        hints = {key: f"; it belongs under [evaluation]: move {key} there" for key in _EVALUATION_KEYS}
        self._unknown("experiment", table, _EXPERIMENT_KEYS, hints)
        return values

    def _evaluation(self, table: Mapping[str, Any] | None) -> dict[str, Any]:
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
        for key, check in checks.items():
            if key not in table:
                continue
            value = table[key]
            if problem := check(value):
                self.report(f"evaluation.{key}", problem)
            else:
                values[names.get(key, key)] = value if check is _at_least_one else float(value)
        hints = {
            "timeout": "; the limits are agent_workflow_timeout_s and grader_timeout_s",
            "agent_timeout_s": "; did you mean agent_workflow_timeout_s?",
            "rows": "; choose rows on the command line with --rows, or the first ones with limit",
        }
        self._unknown("evaluation", table, _EVALUATION_KEYS, hints)
        return values

    def _env(self, table: Mapping[str, Any] | None) -> dict[str, str]:
        values: dict[str, str] = {}
        for name, value in (table or {}).items():
            at = ["env", name]
            if not isinstance(value, str):
                self.report(f"env.{name}", f"must be a string, got {_shown(value)}", at=at)
            elif "\0" in value:
                self.report(f"env.{name}", "must hold no NUL character", at=at)
            elif _PLACEHOLDER.fullmatch(value):
                self.report(f"env.{name}", f"still holds the placeholder {value}; put your own value there", at=at)
            if not _ENV_NAME.fullmatch(name):
                self.report(f"env.{name}", "is not a variable name of capitals, digits and underscores", at=at)
            elif name.startswith(_RESERVED_PREFIX):
                self.report(f"env.{name}", f"the prefix {_RESERVED_PREFIX} is reserved for Osmosis itself", at=at)
            if isinstance(value, str):
                values[name] = value
        return values

    def _secrets(self, table: Mapping[str, Any] | None, env: Mapping[str, str]) -> tuple[str, ...]:
        if table is None:
            return ()
        for key in table:
            if key != "required":
                remedy = f'; list the name instead: required = ["{key}"]' if _SECRET_NAME.fullmatch(key) else ""
                self.report(f"secrets.{key}", f"is not a recognised key{remedy}", at=["secrets", key])
        if "required" not in table:
            self.report("secrets.required", "is missing; write `required = []` when nothing is needed")
            return ()
        required = table["required"]
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            self.report("secrets.required", f"must be a list of strings, got {_shown(required)}")
            return ()
        seen: set[str] = set()
        for name in required:
            if not _SECRET_NAME.fullmatch(name):
                rule = "names start with a capital and hold capitals, digits and underscores"
                self.report("secrets.required", f"{_shown(name)} is not a secret name: {rule}")
            elif name in seen:
                self.report("secrets.required", f"{name} is listed twice")
            elif name in env:
                self.report("secrets.required", f"{name} is also in [env]; every variable has exactly one source")
            seen.add(name)
        return tuple(required)


def _rollout_problem(name: str, work_tree: Path) -> str | None:
    """Why `name` is no folder name under `rollouts/`."""
    if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        return f"must be one folder name under rollouts/, got {_shown(name)}"
    if not _stays_inside(work_tree / "rollouts", name):
        return f"rollouts/{name} leads outside rollouts/; links out of it are refused"
    return None


def _stays_inside(directory: Path, relative: str) -> bool:
    """Whether `directory/relative`, links followed, is a place strictly inside `directory`."""
    if "\0" in relative or PurePosixPath(relative).is_absolute():
        return False
    try:
        root = directory.resolve()
        target = (directory / relative).resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    return target != root and target.is_relative_to(root)


def _at_least_one(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"must be an integer, got {_shown(value)}"
    return None if value >= 1 else f"must be a positive integer, got {value}"


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, got {_shown(value)}"
    try:
        finite = math.isfinite(float(value))
    except OverflowError:
        finite = False
    return None if finite else f"must be finite, got {_shown(value)}"


def _not_negative(value: Any) -> str | None:
    return _number(value) or (f"must be 0 or more, got {value}" if value < 0 else None)


def _positive(value: Any) -> str | None:
    return _number(value) or (f"must be more than 0 seconds, got {value}" if value <= 0 else None)


def _shown(value: Any) -> str:
    """A short literal for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
