"""The NumPy engine: samples and trains small Qwen3 models in this process, one BLAS thread, no torch.

Puts together `engine.sampler` (its own thread), the training arithmetic (a thread of its own, so sampling goes on
meanwhile) and the states on disk; the order of work is the loop's.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from osmosis_ai.errors import ConflictError, NotFoundError, ValidationError

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.adam import AdamState, adam_step
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.backward import LayerGradient, TrainingDecoder, zero_gradients
from osmosis_trainer.engine.checks import check_state, checked_tokens
from osmosis_trainer.engine.disk import read_state, write_folder, write_json, write_state
from osmosis_trainer.engine.lora import TARGETS, LoraLayout, peft_config
from osmosis_trainer.engine.packing import TrainingSequence, packs
from osmosis_trainer.engine.protocol import (
    AdamConfig,
    Capabilities,
    ForwardResult,
    LoraConfig,
    NonFiniteError,
    OptimResult,
)
from osmosis_trainer.engine.queued import QueuedEngine
from osmosis_trainer.engine.sampler import SampledPiece, Sampler, SampleRequest
from osmosis_trainer.engine.weights import Array, SamplingWeights, fuse, read_parameters, read_shape
from osmosis_trainer.losses import LOSSES, LossConfig, TokenBatch, loss_metrics, per_token, surrogate, token_batch

# Activations of one pack take about this much; small packs stay in the caches and are faster, too.
_ACTIVATION_BYTES = 24 << 20
_SMALLEST_PACK = 256
# What a merged model folder takes over from the base's.
_NOT_COPIED = {"model.safetensors"}


@dataclass(slots=True)
class _Adapter:
    """An adapter being trained; only the training thread touches it."""

    layout: LoraLayout
    flat: Array
    adam: AdamState
    weights: SamplingWeights  # with the adapter as it is now folded in
    gradient: list[LayerGradient] | None = None
    published: int = 0


@dataclass(frozen=True, slots=True)
class _Version:
    """What an export of a published version needs; None for the base."""

    layout: LoraLayout | None
    flat: Array | None


class NumpyEngine(QueuedEngine):
    """A `PolicyEngine` over one model folder.

    Args:
        folder: Hugging Face files of a Qwen3 model: config and safetensors weights; others go along into exports.
        base: What the base model is called; also its version's name. None takes the folder's.
        slots: How many answers are decoded at once.
        context: Longest sequence; None takes the model's own limit.

    Raises:
        ValidationError: A file is missing or not what the engine can run.
    """

    def __init__(self, folder: Path, *, base: str | None = None, slots: int = 64, context: int | None = None) -> None:
        self._folder = folder
        self._shape = read_shape(folder)
        self._parameters = read_parameters(folder, self._shape)
        self._base_weights = fuse(self._parameters, self._shape)
        self._base = base or folder.name
        self.sampler = Sampler(self._shape, slots=slots, context=context)
        self.sampler.publish(self._base, self._base_weights)
        self._decoder = TrainingDecoder(self._shape, self.sampler.context)
        self._budget = max(_SMALLEST_PACK, _ACTIVATION_BYTES // self._decoder.activation_bytes())
        self._adapters: dict[str, _Adapter] = {}
        self._versions: dict[str, _Version] = {self._base: _Version(None, None)}
        self._fingerprint = _fingerprint(self._parameters)
        # arithmetic would hold up the event loop; one thread makes the order of operations that of the calls
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="osmosis-training")
        super().__init__(lambda work: self._thread.submit(work))

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return Capabilities(
            engine="numpy",
            base=self._base,
            vocab_size=self._shape.vocab_size,
            context=self.sampler.context,
            losses=LOSSES,
            targets=TARGETS,
            device="cpu",
            parameters=sum(value.size for value in self._parameters.values()),
        )

    def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """See `PolicyEngine.sample`."""
        return self.sampler.sample(request)

    def forget(self, session: str) -> None:
        """See `PolicyEngine.forget`."""
        self.sampler.forget(session)

    async def aclose(self) -> None:
        """See `PolicyEngine.aclose`."""
        await asyncio.to_thread(self.sampler.close)
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    # -- below: the training thread only ----------------------------------------------------------------------------

    def _adapter(self, name: str) -> _Adapter:
        if name not in self._adapters:
            raise NotFoundError(f"There is no adapter {name!r}; there is {', '.join(self._adapters) or 'none'}.")
        return self._adapters[name]

    def _create(self, name: str, config: LoraConfig) -> None:
        if name in self._adapters:
            raise ConflictError(f"There is an adapter {name!r} already; choose another name.")
        layout = LoraLayout(self._shape, config, self._parameters)
        self._adapters[name] = _Adapter(layout, layout.initial(), AdamState.zero(layout.size), self._base_weights)

    def _delete(self, name: str) -> None:
        self._adapter(name)
        del self._adapters[name]

    def _publish(self, name: str) -> str:
        adapter = self._adapter(name)
        adapter.published += 1
        version = f"{name}-v{adapter.published}"
        self._versions[version] = _Version(adapter.layout, adapter.flat.copy())
        self.sampler.publish(version, adapter.weights)
        return version

    def _retire(self, version: str) -> None:
        self.sampler.retire(version)
        self._versions.pop(version, None)

    def _pass(self, name: str, datums: tuple[Datum, ...], loss: LossConfig, *, backward: bool) -> ForwardResult:
        adapter = self._adapter(name)
        sequences, batch = self._sequences(datums, loss)
        logprobs = np.zeros(len(batch), np.float32)
        entropy = np.zeros(len(batch), np.float32)
        gradient = zero_gradients(self._base_weights) if backward else []
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found below, and said
            for pack in packs(sequences, self._budget):
                forward = self._decoder.forward(adapter.weights, pack, loss.sampling)
                logprobs[pack.outputs] = forward.logprobs
                entropy[pack.outputs] = forward.entropy
                if backward:
                    _, coefficients = surrogate(forward.logprobs, batch.part(pack.outputs), loss)
                    self._decoder.backward(adapter.weights, forward, coefficients, loss.sampling, gradient)
        finite = np.isfinite(logprobs).all() and all(
            np.isfinite(getattr(layer, field)).all() for layer in gradient for field in layer.__slots__
        )
        if not finite:
            raise NonFiniteError(
                f"A log-probability or gradient of adapter {name!r} is not finite; nothing was added to its gradient."
            )
        if adapter.gradient is None:
            adapter.gradient = gradient or None
        else:
            for layer, more in zip(adapter.gradient, gradient, strict=False):
                for field in layer.__slots__:
                    getattr(layer, field)[...] += getattr(more, field)
        return ForwardResult(per_token(datums, logprobs), loss_metrics(logprobs, entropy, batch, loss))

    def _step(self, name: str, adam: AdamConfig) -> OptimResult:
        adapter = self._adapter(name)
        fused, adapter.gradient = adapter.gradient, None
        gradient = np.zeros_like(adapter.flat) if fused is None else adapter.layout.gradient(fused, adapter.flat)
        norm = adam_step(adapter.flat, gradient, adapter.adam, adam)
        if not np.isfinite(norm):
            raise NonFiniteError(
                f"The gradient of adapter {name!r} is not finite at step {adapter.adam.step + 1}. Its weights are as "
                "before; lower the learning rate or look at the rewards."
            )
        adapter.weights = adapter.layout.folded(self._base_weights, adapter.flat)
        return OptimResult(adapter.adam.step, norm, clipped=0 < adam.clip < norm)

    def _sequences(self, datums: Sequence[Datum], loss: LossConfig) -> tuple[list[TrainingSequence], TokenBatch]:
        batch = token_batch(datums, loss)
        sequences, at = [], 0
        for index, datum in enumerate(datums):
            tokens = checked_tokens(datum, index, self._shape.vocab_size, self.sampler.context)
            trained = np.flatnonzero(np.asarray(datum.trained, bool))
            sequences.append(TrainingSequence(tokens, trained, np.arange(at, at + len(trained))))
            at += len(trained)
        return sequences, batch

    def _save(self, name: str, path: Path) -> None:
        adapter = self._adapter(name)
        if adapter.gradient is not None:
            raise ConflictError(f"Adapter {name!r} has gathered a gradient; take the step before saving its state.")
        tensors = {"parameters": adapter.flat, "first": adapter.adam.first, "second": adapter.adam.second}
        facts = {
            "engine": "numpy",
            "base": self._fingerprint,
            "lora": asdict(adapter.layout.config),
            "step": adapter.adam.step,
            "published": adapter.published,
        }
        write_state(path, tensors, facts)

    def _load(self, name: str, path: Path) -> None:
        tensors, facts = read_state(path)
        config = check_state(path, facts, "numpy", self._fingerprint)
        present = self._adapters.get(name)
        if present is not None and present.layout.config != config:
            raise ValidationError(f"{path} holds an adapter of another kind ({config}) than {name!r} is.")
        layout = present.layout if present else LoraLayout(self._shape, config, self._parameters)
        flat, adam = tensors["parameters"], AdamState(tensors["first"], tensors["second"], facts["step"])
        weights = layout.folded(self._base_weights, flat)
        published = max(facts["published"], present.published if present else 0)
        self._adapters[name] = _Adapter(layout, flat, adam, weights, published=published)

    def _version(self, name: str) -> _Version:
        if name not in self._versions:
            raise NotFoundError(f"There is no published version {name!r}; it may be retired.")
        return self._versions[name]

    def _export_peft(self, name: str, folder: Path) -> None:
        version = self._version(name)
        if version.layout is None or version.flat is None:
            raise NotFoundError(f"Version {name!r} is the base model; it has no adapter to export.")
        layout, flat = version.layout, version.flat

        def fill(into: Path) -> None:
            from safetensors.numpy import save_file

            save_file(layout.views(flat), into / "adapter_model.safetensors", {"format": "pt"})
            write_json(into / "adapter_config.json", peft_config(layout.config, self._base))

        write_folder(folder, fill)

    def _export_merged(self, name: str, folder: Path) -> None:
        version = self._version(name)
        merged = self._parameters
        if version.layout is not None and version.flat is not None:
            merged = version.layout.merged(self._parameters, version.flat)

        def fill(into: Path) -> None:
            from safetensors.numpy import save_file

            for path in self._folder.iterdir():
                if path.is_file() and path.name not in _NOT_COPIED:
                    shutil.copyfile(path, into / path.name)
            save_file(merged, into / "model.safetensors", {"format": "pt"})

        write_folder(folder, fill)


def _fingerprint(parameters: dict[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(parameters):
        digest.update(f"\0{name}\0{parameters[name].shape}\0".encode())
        digest.update(np.ascontiguousarray(parameters[name]).data)
    return digest.hexdigest()
