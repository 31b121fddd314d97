"""The training file: `configs/training/<name>.toml`, parsed once into a `TrainingFile` that cannot be wrong.

Owns: `[training]`, `[sampling]`, `[checkpoints]` with their types and ranges, and how `[advanced.training]` is held to
the options that a trainer hands in. What eval and training files share is `config_check`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.workspace.config_check import ConfigCheck, locate_config, not_a_number, not_an_integer, shown
from osmosis_ai.workspace.toml_file import read_toml

type OptionKind = Literal["integer", "number", "boolean", "string"]

_SECTIONS = ("experiment", "training", "sampling", "checkpoints", "advanced", "env", "secrets")
ADVANCED = "advanced.training"
_ARTICLES: Mapping[str, str] = {"integer": "an integer", "number": "a number"}


@dataclass(frozen=True, slots=True)
class Option:
    """One key of a training file: where it stands, what it may be, what it means.

    Attributes:
        section: `training`, `sampling`, `checkpoints` or `advanced.training`.
        key: Its name there.
        kind: Its TOML type; an integer is a number too.
        default: Taken when it is absent; None where absent means off or the trainer's choice.
        doc: One sentence for the reference.
        least: Smallest value allowed.
        above: The value is greater than this.
        most: Greatest value allowed.
        below: The value is smaller than this.
        choices: The strings allowed; empty allows any.
        several: Several of the choices may be named, separated by commas, or none.
    """

    section: str
    key: str
    kind: OptionKind
    default: Any
    doc: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    several: bool = False

    @property
    def name(self) -> str:
        """The key with its section: `training.lr`."""
        return f"{self.section}.{self.key}"

    @property
    def allowed(self) -> str:
        """What it may be, in words: `a number above 0`, `an integer of 2 or more`."""
        match self.kind:
            case "boolean":
                return "true or false"
            case "string":
                if self.several:
                    return f"any of {', '.join(self.choices)}, separated by commas"
                return f"one of {', '.join(self.choices)}" if self.choices else "a string"
        if self.least is not None and self.most is not None:
            return f"{_ARTICLES[self.kind]} from {self.least:g} to {self.most:g}"
        lower = f" of {self.least:g} or more" if self.least is not None else ""
        lower = f" above {self.above:g}" if self.above is not None else lower
        upper = f" at most {self.most:g}" if self.most is not None else ""
        upper = f" below {self.below:g}" if self.below is not None else upper
        return f"{_ARTICLES[self.kind]}{lower}{',' if lower and upper else ''}{upper}"

    def problem(self, value: Any) -> str | None:
        """Why a value is not allowed, with the allowed range; None when it is."""
        return f"must be {self.allowed}, got {shown(value)}" if self._wrong(value) else None

    def _wrong(self, value: Any) -> bool:
        match self.kind:
            case "boolean":
                return not isinstance(value, bool)
            case "string":
                if not isinstance(value, str):
                    return True
                named = [name.strip() for name in value.split(",") if name.strip()] if self.several else [value]
                return bool(self.choices) and not set(named) <= set(self.choices)
            case "integer":
                if not_an_integer(value):
                    return True
            case "number":
                if not_a_number(value):
                    return True
        return (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
            or (self.below is not None and value >= self.below)
        )


STANDARD_OPTIONS: tuple[Option, ...] = (
    Option("training", "lr", "number", 1e-5, "Learning rate of the optimiser.", above=0, most=1),
    Option("training", "total_epochs", "integer", 1, "Passes over the dataset.", least=1),
    Option("training", "n_samples_per_prompt", "integer", 8, "Rollouts of one row that are compared.", least=2),
    Option("training", "rollout_batch_size", "integer", 32, "Rows of one step.", least=1),
    Option("training", "max_prompt_length", "integer", 8192, "Longest prompt in tokens.", least=1),
    Option("training", "max_response_length", "integer", 8192, "Longest response in tokens.", least=1),
    Option("training", "agent_workflow_timeout_s", "number", 450.0, "Limit of one agent workflow, seconds.", above=0),
    Option("training", "grader_timeout_s", "number", 150.0, "Limit of one grader, seconds.", above=0),
    Option("sampling", "rollout_temperature", "number", 1.0, "Temperature of collected rollouts.", above=0, most=10),
    Option("sampling", "rollout_top_p", "number", 1.0, "Nucleus of the distribution sampled from.", above=0, most=1),
    Option("checkpoints", "eval_interval", "integer", None, "Validate every so many steps; absent is off.", least=1),
    Option("checkpoints", "checkpoint_save_freq", "integer", 20, "Save a checkpoint every so many steps.", least=1),
)
"""The keys of the published training file, with the documented defaults."""


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """One training as the file describes it: only what it says, no defaults filled in.

    Attributes:
        path: The file, absolute.
        rollout: Folder name under `rollouts/`.
        entrypoint: File to run, relative to the rollout's folder.
        model_path: The base model: `osmosis/<name>` for one that ships with the trainer, a Hugging Face path, a folder.
        dataset: Platform dataset name; `--dataset-file` replaces it locally.
        branch: Git branch the platform checks out; never together with `commit_sha`.
        commit_sha: Commit the platform checks out, 7 to 40 hex digits.
        training: Keys of `[training]` that are there.
        sampling: Keys of `[sampling]` that are there.
        checkpoints: Keys of `[checkpoints]` that are there.
        options: Keys of `[advanced.training]` that are there.
        secret_names: Variables whose values come from outside the file.
        env: Literal variables of the rollout's process.
        advanced: The whole `[advanced]` table, as it is forwarded.
    """

    path: Path
    rollout: str
    entrypoint: str
    model_path: str
    dataset: str
    branch: str | None = None
    commit_sha: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    secret_names: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    advanced: Mapping[str, Any] = field(default_factory=dict)


def locate_training_config(given: Path, work_tree: Path, command: str) -> Path:
    """The absolute path of a training file.

    Raises:
        ValidationError: It lies outside `configs/training/`, does not end in `.toml` or does not exist.
    """
    return locate_config(given, work_tree, "training", command)


def load_training_config(path: Path, work_tree: Path, options: Iterable[Option] | None = None) -> TrainingFile:
    """Read and check a training file.

    Args:
        path: The file, from `locate_training_config`.
        work_tree: Root of the Git work tree; the rollout and entrypoint must stay inside `rollouts/`.
        options: Every key of the trainer that will run it; those of `[advanced.training]` count beside the standard
            ones, and unknown ones are refused. None leaves `[advanced.training]` to whoever gets the file.

    Raises:
        UsageError: The path is a directory.
        ValidationError: Not readable, not TOML, or any rule is broken (`InvalidConfigError`, all findings at once).
    """
    check = ConfigCheck(read_toml(path), work_tree, "Invalid training config")
    known = [*STANDARD_OPTIONS, *(option for option in options or () if option.section == ADVANCED)]
    check.sections(_SECTIONS)
    experiment = check.experiment({option.key: option.section for option in known})
    tables = {
        section: _options(check, section, check.table(section), known)
        for section in ("training", "sampling", "checkpoints")
    }
    advanced = check.table("advanced") or {}
    own = advanced.get("training", {})
    if not isinstance(own, dict):
        check.report(ADVANCED, f"must be a table, got {shown(own)}")
    elif options is not None:
        _options(check, ADVANCED, own, known)
    env = check.env()
    secrets = check.secrets(env, required=False)
    if check.issues:
        check.refuse()
    return TrainingFile(
        path=path, secret_names=secrets, env=env, advanced=advanced, options=own, **experiment, **tables
    )


def _options(
    check: ConfigCheck, section: str, table: Mapping[str, Any] | None, known: Iterable[Option]
) -> Mapping[str, Any]:
    """Check the keys of one section; a key of another section is told where it belongs."""
    if table is None:
        return {}
    here = {option.key: option for option in known if option.section == section}
    homes = {option.key: option.section for option in known if option.section != section}
    for key, option in here.items():
        if key in table and (problem := option.problem(table[key])):
            check.report(option.name, problem)
    hints = {key: f"; it belongs under [{home}]: move {key} there" for key, home in homes.items()}
    check.unknown(section, table, here, hints)
    return table
