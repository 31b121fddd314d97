"""What config files share: where they lie, `[experiment]`, `[env]`, `[secrets]`, one report.

Owns: the rules of those sections and the form of the report. The sections of one kind of file are its own module's.
Whether the entrypoint exists is asked when the server is about to start; whether the model exists, by the policy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.toml_file import TomlFile

_EXPERIMENT_REQUIRED = ("rollout", "entrypoint", "model_path", "dataset")
_EXPERIMENT_KEYS = (*_EXPERIMENT_REQUIRED, "branch", "commit_sha")
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_PLACEHOLDER = re.compile(r"<your-[^>]*>")
_RESERVED_PREFIX = "_OSMOSIS_"


def locate_config(given: Path, work_tree: Path, kind: str, command: str) -> Path:
    """The absolute path of a config file, after the rule about its place (links are followed first).

    Args:
        given: The path as typed, relative to the current directory.
        work_tree: Root of the Git work tree.
        kind: `eval` or `training`: the folder under `configs/`.
        command: The command to name in the error, such as `osmosis eval run`.

    Raises:
        ValidationError: It lies outside `configs/<kind>/`, does not end in `.toml` or does not exist.
    """
    directory = work_tree / "configs" / kind
    absolute = Path.cwd() / given
    try:
        inside = absolute.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise ValidationError(f"Cannot resolve config path {given}: {error}") from None
    if not inside:
        raise ValidationError(
            f"`{command}` config must live under `configs/{kind}/`.\n  Got: {absolute}\n  Expected under: {directory}"
        )
    if absolute.suffix != ".toml" and not absolute.is_dir():
        raise ValidationError(f"`{command}` config must be a .toml file.\n  Got: {absolute}")
    if not absolute.exists():
        raise ValidationError(f"Config file not found: {absolute}{_others(directory)}")
    return absolute


def _others(directory: Path) -> str:
    names = sorted(path.name for path in directory.glob("*.toml"))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"\n  In configs/{directory.name}/ there is: {', '.join(names[:10])}{more}" if names else ""


type About = Literal["structure", "shape", "meaning"]


class InvalidConfigError(ValidationError):
    """A config file breaks rules.

    Attributes:
        findings: Every finding as `{key, message, line}` (no `line` where the key stands nowhere), in the order of the
            file. `details` has what the published client has: the structural ones under `issues`.
    """

    def __init__(self, message: str, *, details: Mapping[str, Any], findings: list[dict[str, Any]]) -> None:
        super().__init__(message, details=details)
        self.findings = findings


class ConfigCheck:
    """Collects every finding of one file.

    Args:
        file: The parsed file.
        work_tree: Root of the Git work tree; the rollout and entrypoint must stay inside `rollouts/`.
        heading: First line of the report, such as `Invalid eval config`.
        strict: The published client reads this kind of file by one schema: it lists what is no table, and unknown
            sections last (config.md 6).
    """

    def __init__(self, file: TomlFile, work_tree: Path, heading: str, *, strict: bool = False) -> None:
        self.file = file
        self.work_tree = work_tree
        self.heading = heading
        self.strict = strict
        self.issues: list[dict[str, Any]] = []
        self._structural: list[tuple[int, dict[str, Any]]] = []
        self._strangers: set[str] = set()
        self._shapeless = False

    @property
    def _whole(self) -> About:
        """What a problem with a whole section or its form is about."""
        return "structure" if self.strict else "shape"

    def report(
        self,
        key: str,
        message: str,
        *,
        at: Iterable[str] | None = None,
        about: About = "structure",
    ) -> None:
        """Note a finding.

        Args:
            key: Where it is.
            message: What is wrong.
            at: The key's path, where it is not `key` split at its dots.
            about: Decides what `details` has of it (config.md 2). `structure`: listed under `issues`. `shape`: the
                published client looks no further (a required key or a whole section is missing or wrong), so there is
                no list. `meaning`: names and what they collide with, never listed.
        """
        line = self.file.line_of(*(at if at is not None else key.split(".")))
        issue: dict[str, Any] = {"key": key, "message": message}
        if about == "structure":
            self._structural.append((line or 0, dict(issue)))
        self._shapeless |= about == "shape"
        if line is not None:
            issue["line"] = line
        self.issues.append(issue)

    def refuse(self) -> NoReturn:
        """Raise the report.

        Raises:
            InvalidConfigError: Always; its message has every finding with its line, in the order of the file. `details`
                has `error` (the heading) and `issues`, one `{key, message}` for each finding about the structure,
                unless there is none or the file's very shape is wrong.
        """
        self.issues.sort(key=lambda issue: issue.get("line", 0))
        lines = [
            f"  - {issue['key']}: {issue['message']}" + (f" (line {issue['line']})" if "line" in issue else "")
            for issue in self.issues
        ]
        shown_path = self.file.path
        if shown_path.is_relative_to(self.work_tree):
            shown_path = shown_path.relative_to(self.work_tree)

        def place(entry: tuple[int, dict[str, Any]]) -> tuple[bool, int]:
            return (entry[1]["key"] in self._strangers) is self.strict, entry[0]

        issues = [issue for _, issue in sorted(self._structural, key=place)]
        listed = bool(issues) and not self._shapeless
        raise InvalidConfigError(
            f"{self.heading} {shown_path}:\n" + "\n".join(lines),
            details={"error": self.heading, "issues": issues} if listed else {},
            findings=self.issues,
        )

    def sections(self, known: Collection[str]) -> None:
        """Report sections that the kind of file does not have."""
        for name in self.file.data:
            if name not in known:
                self._strangers.add(name)
                self.report(name, "is not a recognised section" + suggestion(name, known, "[{}]"), at=[name])

    def table(self, name: str, *, required: bool = False) -> Mapping[str, Any] | None:
        """A section, or None when it is absent or no table."""
        if name not in self.file.data:
            if required:
                remedy = "; write `required = []` under it when nothing is needed" if name == "secrets" else ""
                self.report(name, f"missing [{name}] section{remedy}", about="shape")
            return None
        value = self.file.data[name]
        if not isinstance(value, dict):
            self.report(
                name, f"must be a table, got {shown(value)}", about=self._whole if name != "experiment" else "shape"
            )
            return None
        return value

    def unknown(
        self, section: str, table: Mapping[str, Any], known: Collection[str], hints: Mapping[str, str] | None = None
    ) -> None:
        """Report keys that a section does not have; `hints` say what was meant by some."""
        for key in table:
            if key not in known:
                hint = (hints or {}).get(key) or suggestion(key, known)
                self.report(f"{section}.{key}", f"is not a recognised key{hint}", at=[*section.split("."), key])

    def experiment(self, homes: Mapping[str, str]) -> dict[str, Any]:
        """The keys of `[experiment]`; `homes` names the section of keys that belong elsewhere in this kind of file."""
        table = self.table("experiment", required=True)
        values: dict[str, Any] = {}
        if table is None:
            return values
        for key in _EXPERIMENT_KEYS:
            if key not in table:
                if key in _EXPERIMENT_REQUIRED:
                    self.report(f"experiment.{key}", "is missing", about="shape")
                continue
            value = self.text(f"experiment.{key}", table[key])
            if value is not None:
                values[key] = value
        if "rollout" in values and (problem := _rollout_problem(values["rollout"], self.work_tree)):
            self.report("experiment.rollout", problem, about="meaning")
        elif "rollout" in values and "entrypoint" in values:
            folder = self.work_tree / "rollouts" / values["rollout"]
            if not _stays_inside(folder, values["entrypoint"]):
                where = f"rollouts/{values['rollout']}/"
                problem = f"must stay inside {where}, got {shown(values['entrypoint'])}"
                self.report("experiment.entrypoint", problem, about="meaning")
        if "branch" in values and re.search(r"\s", values["branch"]):
            self.report("experiment.branch", f"must hold no white space, got {shown(values['branch'])}")
        if "commit_sha" in values and not _COMMIT.fullmatch(values["commit_sha"]):
            got = shown(values["commit_sha"])
            self.report("experiment.commit_sha", f"must be 7 to 40 hexadecimal characters, got {got}")
        if "branch" in table and "commit_sha" in table:
            self.report("experiment", "branch and commit_sha exclude each other; keep one")
        hints = {key: f"; it belongs under [{home}]: move {key} there" for key, home in homes.items()}
        self.unknown("experiment", table, _EXPERIMENT_KEYS, hints)
        return values

    def env(self) -> dict[str, str]:
        """The literal variables of `[env]`."""
        return self.variables("env", self.table("env") or {})

    def variables(self, section: str, table: Mapping[str, Any]) -> dict[str, str]:
        """The literal variables of a table of them."""
        values: dict[str, str] = {}
        for name, value in table.items():
            key, at = f"{section}.{name}", [*section.split("."), name]
            if not isinstance(value, str):
                self.report(key, f"must be a string, got {shown(value)}", at=at)
            elif "\0" in value:
                self.report(key, "must hold no NUL character", at=at)
            elif _PLACEHOLDER.fullmatch(value):
                self.report(key, f"still holds the placeholder {value}; put your own value there", at=at)
            if not _ENV_NAME.fullmatch(name):
                self.report(key, "is not a variable name of capitals, digits and underscores", at=at, about="meaning")
            elif name.startswith(_RESERVED_PREFIX):
                problem = f"the prefix {_RESERVED_PREFIX} is reserved for Osmosis itself"
                self.report(key, problem, at=at, about="meaning")
            if isinstance(value, str):
                values[name] = value
        return values

    def text(self, key: str, value: Any, *, at: Iterable[str] | None = None) -> str | None:
        """A string that says something; None when it is absent, or was reported."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.report(key, f"must be a string, got {shown(value)}", at=at)
        elif not value.strip():
            # Of the required keys the published client finds only these two empty, when it looks for the files.
            needed = key in ("experiment.rollout", "experiment.entrypoint")
            self.report(key, "must not be empty", at=at, about="meaning" if needed else "structure")
        elif _PLACEHOLDER.fullmatch(value):
            self.report(key, f"still holds the placeholder {value}; put your own value there", at=at)
        else:
            return value
        return None

    def secrets(
        self, env: Mapping[str, str], *, required: bool, names_required: bool = True, most: int | None = None
    ) -> tuple[str, ...]:
        """The names in `[secrets].required`; none of them may be in `env` too.

        Args:
            env: The names that `[env]` sets.
            required: Whether the section must be there.
            names_required: Whether the section must say `required`; else it is empty.
            most: How many names it may hold.
        """
        table = self.table("secrets", required=required)
        if table is None:
            return ()
        for key in table:
            if key != "required":
                remedy = f'; list the name instead: required = ["{key}"]' if _SECRET_NAME.fullmatch(key) else ""
                self.report(
                    f"secrets.{key}", f"is not a recognised key{remedy}", at=["secrets", key], about=self._whole
                )
        if "required" not in table:
            if not names_required:
                return ()
            self.report("secrets.required", "is missing; write `required = []` when nothing is needed", about="shape")
            return ()
        names = table["required"]
        if self.strict and isinstance(names, list):
            for position, name in enumerate(names):
                if not isinstance(name, str):
                    self.report(f"secrets.required.{position}", f"must be a string, got {shown(name)}")
            names = [name for name in names if isinstance(name, str)]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.report("secrets.required", f"must be a list of strings, got {shown(names)}", about=self._whole)
            return ()
        if most is not None and len(names) > most:
            self.report("secrets.required", f"holds at most {most} names, got {len(names)}")
        seen: set[str] = set()
        for name in names:
            if problem := name_problem(name):
                self.report("secrets.required", problem, about="meaning")
            elif name in seen:
                self.report("secrets.required", f"{name} is listed twice", about="meaning")
            elif name in env:
                problem = f"{name} is also in [env]; every variable has exactly one source"
                self.report("secrets.required", problem, about="meaning")
            seen.add(name)
        return tuple(names)


def suggestion(word: str, choices: Iterable[str], form: str = "{}") -> str:
    """`; did you mean X?` for the nearest choice, or nothing."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {form.format(near[0])}?" if near else ""


def name_problem(name: str) -> str | None:
    """Why a string is no secret's name."""
    if _SECRET_NAME.fullmatch(name):
        return None
    return f"{shown(name)} is not a secret name: names start with a capital and hold capitals, digits and underscores"


def not_an_integer(value: Any) -> str | None:
    """Why a value is no integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"must be an integer, got {shown(value)}"
    return None


def not_a_number(value: Any) -> str | None:
    """Why a value is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, got {shown(value)}"
    try:
        finite = math.isfinite(float(value))
    except OverflowError:
        finite = False
    return None if finite else f"must be finite, got {shown(value)}"


def shown(value: Any) -> str:
    """A short literal for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _rollout_problem(name: str, work_tree: Path) -> str | None:
    """Why `name` is no folder name under `rollouts/`."""
    if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        return f"must be one folder name under rollouts/, got {shown(name)}"
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
