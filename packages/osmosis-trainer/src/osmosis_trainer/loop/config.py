"""How a training is to go: every option with its range and meaning, and what the chosen algorithm makes of them.

Options are the keys of the training file: the published sections, and `[advanced.training]` for the rest. Reading the
file is `osmosis_ai.workspace.training_config`'s, which gets its rules from `training_options`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_args

from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.training_config import ADVANCED, STANDARD_OPTIONS, Option, TrainingFile

from osmosis_trainer.engine.sampling import SamplingParams
from osmosis_trainer.losses import LossConfig, LossName, Normalisation

type Algorithm = Literal["grpo", "dr_grpo", "dapo", "cispo", "gspo", "importance_sampling"]
type Schedule = Literal["constant", "linear", "cosine"]

ALGORITHMS: tuple[str, ...] = get_args(Algorithm.__value__)

WRITERS: tuple[str, ...] = ("wandb", "mlflow", "tensorboard", "trackio")
"""Every writer that `writers` may name."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What an algorithm is made of."""

    loss: LossName
    normalisation: Normalisation
    std_scaling: bool
    overlong_masking: bool
    clip: tuple[float, float]


_RECIPES: Mapping[str, _Recipe] = {
    "grpo": _Recipe("ppo", "token_mean", False, False, (0.2, 0.28)),
    "dr_grpo": _Recipe("ppo", "constant", False, False, (0.2, 0.2)),
    "dapo": _Recipe("ppo", "token_mean", True, True, (0.2, 0.28)),
    "cispo": _Recipe("cispo", "token_mean", True, False, (1.0, 4.0)),
    "gspo": _Recipe("gspo", "rollout_mean", True, False, (3e-4, 4e-4)),
    "importance_sampling": _Recipe("importance_sampling", "token_mean", False, False, (1.0, math.inf)),
}

_OWN_OPTIONS: tuple[Option, ...] = (
    Option(
        ADVANCED,
        "algorithm",
        "string",
        "grpo",
        "grpo: clipped ratio a token, mean over tokens. dr_grpo: divided by a constant length instead, so long wrong "
        "answers are not favoured. dapo: grpo with std_scaling and overlong_masking. cispo: a clipped weight, clipped "
        "tokens keep learning. gspo: one ratio a sequence. importance_sampling: no clipping.",
        choices=ALGORITHMS,
    ),
    Option(ADVANCED, "lora_rank", "integer", 16, "Inner size of the adapter.", least=1, most=1024),
    Option(
        ADVANCED, "lora_alpha", "number", 32.0, "The adapter's update is scaled by lora_alpha / lora_rank.", above=0
    ),
    Option(ADVANCED, "seed", "integer", 0, "Decides the adapter's start, the order of rows and all sampling.", least=0),
    Option(
        ADVANCED,
        "std_scaling",
        "boolean",
        None,
        "Divide advantages by the standard deviation of their group's rewards; absent leaves it to the algorithm.",
    ),
    Option(
        ADVANCED,
        "normalisation",
        "string",
        None,
        "What a step's loss is divided by: token_mean, all trained tokens; rollout_mean, the tokens of each rollout, "
        "however many conversations it has; constant, max_response_length. Absent leaves it to the algorithm.",
        choices=("token_mean", "rollout_mean", "constant"),
    ),
    Option(
        ADVANCED,
        "clip_low",
        "number",
        None,
        "Ratios below 1 - clip_low are clipped; absent takes the algorithm's own.",
        least=0,
        most=1,
    ),
    Option(
        ADVANCED,
        "clip_high",
        "number",
        None,
        "Ratios above 1 + clip_high are clipped; absent takes the algorithm's own.",
        least=0,
    ),
    Option(
        ADVANCED,
        "ratio_keep_low",
        "number",
        None,
        "Tokens with a smaller ratio learn nothing (IcePop, usually 0.5); absent keeps all.",
        least=0,
        most=1,
    ),
    Option(
        ADVANCED,
        "ratio_keep_high",
        "number",
        None,
        "Tokens with a larger ratio learn nothing (IcePop, usually 2); absent keeps all.",
        least=1,
    ),
    Option(
        ADVANCED,
        "overlong_masking",
        "boolean",
        None,
        "Learn nothing from rollouts an answer of which was cut by length; absent leaves it to the algorithm.",
    ),
    Option(
        ADVANCED,
        "staleness",
        "integer",
        0,
        "Steps by which the weights that drew a rollout may be older than those it trains. 0 waits for each step's "
        "rollouts; above 0 the next steps' rollouts run while this step trains.",
        least=0,
        most=16,
    ),
    Option(
        ADVANCED,
        "refill_limit",
        "number",
        0.0,
        "Groups whose rewards are all equal teach nothing: other rows take their place, at most this many times a "
        "step's rows; 0 takes the step as it is.",
        least=0,
        most=8,
    ),
    Option(
        ADVANCED,
        "agent_error_reward",
        "number",
        None,
        "Reward of a rollout whose agent failed; absent gives it none, so it has no weight.",
    ),
    Option(
        ADVANCED,
        "validation_rows",
        "integer",
        None,
        "Rows never trained on, for validation; absent takes a tenth, at most 64, where eval_interval is set, else none.",
        least=0,
    ),
    Option(
        ADVANCED,
        "validation_samples",
        "integer",
        1,
        "Rollouts of each validation row.",
        least=1,
        most=64,
    ),
    Option(
        ADVANCED,
        "validation_temperature",
        "number",
        0.0,
        "Temperature of validation rollouts; 0 takes the likeliest tokens, as a deployment would.",
        least=0,
        most=10,
    ),
    Option(
        ADVANCED, "max_steps", "integer", None, "Stop after so many steps; absent goes through all epochs.", least=1
    ),
    Option(
        ADVANCED,
        "lr_schedule",
        "string",
        "constant",
        "How the learning rate goes to its end: constant, or linear or cosine down to lr_floor times lr.",
        choices=get_args(Schedule.__value__),
    ),
    Option(ADVANCED, "lr_floor", "number", 0.0, "Where linear and cosine end, as a part of lr.", least=0, most=1),
    Option(ADVANCED, "warmup_steps", "integer", 0, "Steps in which the learning rate rises from 0 to lr.", least=0),
    Option(ADVANCED, "grad_clip", "number", 1.0, "Longest gradient; 0 does not clip.", least=0),
    Option(ADVANCED, "weight_decay", "number", 0.0, "Decoupled decay of the adapter's weights.", least=0, below=1),
    Option(ADVANCED, "adam_beta1", "number", 0.9, "Decay of the gradient's running mean.", least=0, below=1),
    Option(ADVANCED, "adam_beta2", "number", 0.95, "Decay of its square's.", least=0, below=1),
    Option(
        ADVANCED,
        "updates_per_step",
        "integer",
        1,
        "Optimiser steps on the same rollouts; more than one leans on the clipped ratio.",
        least=1,
        most=16,
    ),
    Option(
        ADVANCED,
        "max_in_flight",
        "integer",
        None,
        "Rollouts at once; absent takes what the rollout's server allows.",
        least=1,
    ),
    Option(
        ADVANCED,
        "state_save_freq",
        "integer",
        1,
        "Keep what a killed run goes on from every so many steps, beside the checkpoints.",
        least=1,
    ),
    Option(
        ADVANCED,
        "keep_checkpoints",
        "integer",
        0,
        "Checkpoints to keep, the latest ones; 0 keeps all.",
        least=0,
    ),
    Option(
        ADVANCED,
        "no_signal_steps",
        "integer",
        5,
        "Warn, with the cause, when so many steps in a row had nothing to learn from.",
        least=1,
    ),
    Option(
        ADVANCED,
        "writers",
        "string",
        "",
        "Where metrics go besides metrics.jsonl, through the named libraries where they are installed.",
        choices=WRITERS,
        several=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """One training's options; `training_options` says what each means and may be. Lengths are in tokens.

    Attributes with None leave the choice to the algorithm, or turn something off; the properties say what came of it.
    """

    lr: float = 1e-5
    total_epochs: int = 1
    n_samples_per_prompt: int = 8
    rollout_batch_size: int = 32
    max_prompt_length: int = 8192
    max_response_length: int = 8192
    agent_workflow_timeout_s: float = 450.0
    grader_timeout_s: float = 150.0
    rollout_temperature: float = 1.0
    rollout_top_p: float = 1.0
    eval_interval: int | None = None
    checkpoint_save_freq: int = 20
    algorithm: Algorithm = "grpo"
    lora_rank: int = 16
    lora_alpha: float = 32.0
    seed: int = 0
    std_scaling: bool | None = None
    normalisation: Literal["token_mean", "rollout_mean", "constant"] | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    ratio_keep_low: float | None = None
    ratio_keep_high: float | None = None
    overlong_masking: bool | None = None
    staleness: int = 0
    refill_limit: float = 0.0
    agent_error_reward: float | None = None
    validation_rows: int | None = None
    validation_samples: int = 1
    validation_temperature: float = 0.0
    max_steps: int | None = None
    lr_schedule: Schedule = "constant"
    lr_floor: float = 0.0
    warmup_steps: int = 0
    grad_clip: float = 1.0
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    updates_per_step: int = 1
    max_in_flight: int | None = None
    state_save_freq: int = 1
    keep_checkpoints: int = 0
    no_signal_steps: int = 5
    writers: str = ""

    def __post_init__(self) -> None:
        wrong = [
            f"{option.name} {problem}"
            for option in training_options()
            if (value := getattr(self, option.key)) != option.default and (problem := option.problem(value))
        ]
        if wrong:
            raise ValidationError("The training cannot go like that:\n" + "\n".join(f"  - {line}" for line in wrong))

    @classmethod
    def of_file(cls, file: TrainingFile) -> TrainingConfig:
        """The options that a training file gives, the others at their defaults.

        Raises:
            ValidationError: A value is out of range, all at once; a checked file has none.
        """
        given = {**file.training, **file.sampling, **file.checkpoints, **file.options}
        kinds = {option.key: option.kind for option in training_options()}
        values: dict[str, Any] = {k: float(v) if kinds[k] == "number" else v for k, v in given.items()}
        return cls(**values)

    @property
    def writer_names(self) -> tuple[str, ...]:
        """The writers asked for."""
        return tuple(name.strip() for name in self.writers.split(",") if name.strip())

    @property
    def scales_by_std(self) -> bool:
        """Whether advantages are divided by their group's standard deviation."""
        return self._recipe.std_scaling if self.std_scaling is None else self.std_scaling

    @property
    def masks_overlong(self) -> bool:
        """Whether rollouts cut by length teach nothing."""
        return self._recipe.overlong_masking if self.overlong_masking is None else self.overlong_masking

    @property
    def loss(self) -> LossConfig:
        """The loss of a step."""
        recipe = self._recipe
        return LossConfig(
            name=recipe.loss,
            clip_low=recipe.clip[0] if self.clip_low is None else self.clip_low,
            clip_high=recipe.clip[1] if self.clip_high is None else self.clip_high,
            keep_low=self.ratio_keep_low,
            keep_high=self.ratio_keep_high,
            normalisation=self.normalisation or recipe.normalisation,
            constant_length=self.max_response_length,
            sampling=self.sampling,
        )

    @property
    def sampling(self) -> SamplingParams:
        """How rollouts are drawn, and so what the trainer's log-probabilities are of."""
        return SamplingParams(temperature=self.rollout_temperature, top_p=self.rollout_top_p)

    @property
    def validation_sampling(self) -> SamplingParams:
        """How validation rollouts are drawn."""
        return SamplingParams(temperature=self.validation_temperature)

    def held_out(self, total: int) -> int:
        """How many of a dataset's rows are for validation."""
        if self.validation_rows is not None:
            return self.validation_rows
        return min(64, max(1, total // 10)) if self.eval_interval is not None and total > 1 else 0

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of a step counted from 0, of so many."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / (self.warmup_steps + 1)
        if self.lr_schedule == "constant":
            return self.lr
        done = min(1.0, (step - self.warmup_steps) / max(1, steps - 1 - self.warmup_steps))
        left = 1 - done if self.lr_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.lr * (self.lr_floor + (1 - self.lr_floor) * left)

    def to_json(self) -> dict[str, Any]:
        """Every option by its key."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def _recipe(self) -> _Recipe:
        return _RECIPES[self.algorithm]


@cache
def training_options() -> tuple[Option, ...]:
    """Every option of a training file, for checking one and for the reference."""
    return (*STANDARD_OPTIONS, *_OWN_OPTIONS)
