"""The options of `train run`, checked against each other before anything is looked at or opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import ValidationError

ENGINES = ("numpy", "torch")


@dataclass(frozen=True, slots=True)
class TrainFlags:
    """What the command line of `train run` says; `check` makes sure it can be meant.

    Attributes:
        config: The config file as typed.
        dataset_file: A local dataset; None means the platform's.
        name: Name of the run; with `resume`, of the run to go on with, else the latest of this config.
        resume: Go on where that run ended.
        engine: Which engine owns the weights; None takes the first that can run the model.
        output: Root of the results as typed; None takes the workspace's.
        rows: Rows to train and validate on, such as `0-99`.
        max_steps: Stop after so many steps; wins over the config's.
        secrets_file: `NAME=value` lines for `[secrets]`.
        yes: Start without asking.
    """

    config: Path
    dataset_file: str | None = None
    name: str | None = None
    resume: bool = False
    engine: str | None = None
    output: str | None = None
    rows: str | None = None
    max_steps: int | None = None
    secrets_file: str | None = None
    yes: bool = False

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            ValidationError: Names the option and the remedy.
        """
        if self.engine is not None and self.engine not in ENGINES:
            raise ValidationError(f"--engine is one of {', '.join(ENGINES)}, got {self.engine!r}.")
        if self.rows is not None:
            from osmosis_ai.evaluation.rows import parse_selector

            parse_selector(self.rows)
        if self.max_steps is not None and self.max_steps < 1:
            raise ValidationError(f"--max-steps must be 1 or more, got {self.max_steps}.")
