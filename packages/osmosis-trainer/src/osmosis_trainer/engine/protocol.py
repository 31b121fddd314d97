"""The seam between the training loop and whoever owns weights: `PolicyEngine`, its inputs, results and errors.

Shaped like Tinker's protocol (sample, forward_backward, optim_step, publish, save_state, load_state), which several
servers speak. The loop owns data order, rollouts, advantages, schedules and evaluation; an engine owns weights.

Every operation on an adapter is asynchronous and takes effect in the order in which operations were started; once
started it is carried out, also when nobody waits for it any more. Each may carry an `op_id`: repeating one gives the
first result without doing the work again, also while the first is still under way. An operation that failed had no
effect and is not remembered: its id may be tried again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from osmosis_ai.errors import OsmosisError, ValidationError

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.sampler import SampledPiece, SampleRequest
from osmosis_trainer.losses import LossConfig


class NonFiniteError(OsmosisError):
    """A log-probability, loss or gradient is not a finite number; the weights are as they were before the call."""

    code: ClassVar[str] = "NON_FINITE"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do.

    Attributes:
        engine: `numpy` or `torch`.
        base: Name of the base model; also the name of its version that needs no adapter.
        vocab_size: Token ids are below it.
        context: Longest prompt plus answer, and longest datum, in tokens.
        losses: Names that `LossConfig` may have.
        targets: Linears an adapter may change.
        device: Where it computes.
        parameters: How many the base model has.
    """

    engine: str
    base: str
    vocab_size: int
    context: int
    losses: tuple[str, ...]
    targets: tuple[str, ...]
    device: str
    parameters: int


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """What an adapter looks like.

    Attributes:
        rank: Inner size.
        alpha: The update is scaled by alpha / rank.
        seed: Decides where it starts: A is drawn, B is zero, so a new adapter changes nothing.
        targets: Which linears it changes, under their Hugging Face names; by default all of a Qwen3 layer.
    """

    rank: int = 16
    alpha: float = 32.0
    seed: int = 0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        wrong = []
        if not 1 <= self.rank <= 1024:
            wrong.append(f"rank is {self.rank}; it lies between 1 and 1024")
        if not 0 < self.alpha < float("inf"):
            wrong.append(f"alpha is {self.alpha}; it is a number above 0")
        if not self.targets:
            wrong.append("targets is empty; name at least one linear")
        if wrong:
            raise ValidationError("The LoRA adapter cannot be made: " + "; ".join(wrong) + ".")

    @property
    def scale(self) -> float:
        """The factor on B A."""
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True)
class AdamConfig:
    """Rates of one optimiser step; the schedule is the loop's.

    Attributes:
        lr: Learning rate.
        beta1: Decay of the gradient's running mean.
        beta2: Decay of its square's.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled, times the learning rate.
        clip: Longest gradient; 0 does not clip.
    """

    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)}; it is {allowed}"
            for name, allowed, right in (
                ("lr", "a finite number, at least 0", 0 <= self.lr < float("inf")),
                ("beta1", "at least 0 and below 1", 0 <= self.beta1 < 1),
                ("beta2", "at least 0 and below 1", 0 <= self.beta2 < 1),
                ("eps", "above 0", self.eps > 0),
                ("weight_decay", "at least 0", self.weight_decay >= 0),
                ("clip", "at least 0", self.clip >= 0),
            )
            if not right
        ]
        if wrong:
            raise ValidationError("The optimiser step cannot be made: " + "; ".join(wrong) + ".")


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """What a pass over datums found.

    Attributes:
        logprobs: For each datum, the trainer's log-probability of each token; 0 where the token is not trained.
        metrics: From `losses.loss_metrics`.
    """

    logprobs: tuple[tuple[float, ...], ...]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class OptimResult:
    """What an optimiser step did.

    Attributes:
        step: How many the adapter has taken.
        grad_norm: Before clipping.
        clipped: Whether the gradient was shortened.
    """

    step: int
    grad_norm: float
    clipped: bool


class PolicyEngine(Protocol):
    """Owns the weights of one base model and its adapters, samples from published versions, learns from datums."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    async def create_adapter(
        self,
        adapter: str,
        *,
        rank: int = 16,
        alpha: float = 32.0,
        seed: int = 0,
        targets: Sequence[str] | None = None,
        op_id: str | None = None,
    ) -> None:
        """Make an adapter that changes nothing yet; `targets` None takes every linear.

        Raises:
            ValidationError: The name, rank, alpha or targets are not allowed.
            ConflictError: There is an adapter of that name.
        """
        ...

    async def delete_adapter(self, adapter: str, *, op_id: str | None = None) -> None:
        """Forget an adapter and its optimiser; its published versions stay.

        Raises:
            NotFoundError: There is no such adapter.
        """
        ...

    async def publish(self, adapter: str, *, op_id: str | None = None) -> str:
        """Freeze the adapter's weights as a version that can be sampled from when this returns.

        Returns:
            The version's name, never used for anything else: `<adapter>-v<count>`.
        """
        ...

    async def retire(self, version: str, *, op_id: str | None = None) -> None:
        """Refuse new samples and exports of a version; samples under way finish with it. Unknown ones are ignored."""
        ...

    def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """Draw an answer piece by piece: token ids with their log-probabilities; closing the iterator cancels it.

        Raises:
            ValueError: The request does not fit the context, or its version is not published.
            RuntimeError: The engine is closed, or failed.
        """
        ...

    def forget(self, session: str) -> None:
        """Say that a session asks no more: what was kept for its next turn may go."""
        ...

    async def forward_backward(
        self, adapter: str, datums: Sequence[Datum], loss: LossConfig, *, op_id: str | None = None
    ) -> ForwardResult:
        """Compute log-probabilities and add the loss's gradient to the adapter's.

        Raises:
            ValidationError: A datum does not fit the model.
            NonFiniteError: A log-probability or the gradient is not finite; nothing was added.
        """
        ...

    async def forward(
        self, adapter: str, datums: Sequence[Datum], loss: LossConfig, *, op_id: str | None = None
    ) -> ForwardResult:
        """As `forward_backward`, without a gradient."""
        ...

    async def optim_step(self, adapter: str, adam: AdamConfig, *, op_id: str | None = None) -> OptimResult:
        """Take a step along the gradient gathered since the last one, and clear it.

        Raises:
            NonFiniteError: The gradient is not finite; it is cleared, weights and optimiser are as before.
        """
        ...

    async def save_state(self, adapter: str, path: Path, *, op_id: str | None = None) -> None:
        """Write weights, optimiser and step to one file: whole or not at all, checksummed, forced to the disk.

        Raises:
            ConflictError: A gradient is gathered but not applied; states are saved between steps.
            OsmosisError: The disk is full or refuses.
        """
        ...

    async def load_state(self, adapter: str, path: Path, *, op_id: str | None = None) -> None:
        """Put an adapter where a saved state was, bit for bit; makes the adapter if there is none.

        Raises:
            ValidationError: The file is missing, corrupt, or of another base model or kind of adapter.
        """
        ...

    async def export_peft(self, version: str, folder: Path, *, op_id: str | None = None) -> None:
        """Write `adapter_model.safetensors` and `adapter_config.json` of a version, for `peft` to load.

        Raises:
            NotFoundError: There is no such version, or it has no adapter.
            ConflictError: The folder exists.
        """
        ...

    async def export_merged(self, version: str, folder: Path, *, op_id: str | None = None) -> None:
        """Write a whole model folder with the adapter merged in, for `transformers` or an engine to load.

        Raises:
            NotFoundError: There is no such version.
            ConflictError: The folder exists.
        """
        ...

    async def aclose(self) -> None:
        """Stop threads; operations and samples under way fail."""
        ...
