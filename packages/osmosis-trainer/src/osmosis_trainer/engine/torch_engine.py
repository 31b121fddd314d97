"""The torch engine: any Hugging Face causal LM on this machine's CPU or GPU, with PEFT adapters.

Puts together `engine.torch_model`, `engine.torch_sampler` (whose thread also carries out the operations) and the
states on disk. Imported only when used: torch, transformers and peft are the extra `torch`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from osmosis_ai.errors import ConflictError, NotFoundError, ValidationError

from osmosis_trainer.adapters import check_shapes, read_adapter
from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.checks import check_state, checked_tokens
from osmosis_trainer.engine.disk import read_state, write_folder, write_json, write_state
from osmosis_trainer.engine.lora import peft_config
from osmosis_trainer.engine.packing import TrainingSequence
from osmosis_trainer.engine.protocol import (
    AdamConfig,
    Capabilities,
    ForwardResult,
    LoraConfig,
    NonFiniteError,
    OptimResult,
)
from osmosis_trainer.engine.queued import QueuedEngine
from osmosis_trainer.engine.sampler import SampledPiece, SampleRequest
from osmosis_trainer.engine.torch_model import TorchModel, processed
from osmosis_trainer.engine.torch_sampler import TorchSampler
from osmosis_trainer.engine.weights import Array
from osmosis_trainer.losses import LOSSES, LossConfig, loss_metrics, per_token, surrogate, token_batch

# A micro-batch has at most this many tokens, and this many logits (in float32, several copies in autograd).
_TOKENS = {"cpu": 4096, "cuda": 16384}
_LOGITS = {"cpu": 32 << 20, "cuda": 256 << 20}


@dataclass(slots=True)
class _Adapter:
    """An adapter being trained; its parameters live in the model."""

    config: LoraConfig
    optimiser: torch.optim.AdamW
    step: int = 0
    gathered: bool = False
    published: int = 0


class TorchEngine(QueuedEngine):
    """A `PolicyEngine` over one model folder.

    Args:
        folder: Hugging Face files of a causal LM.
        base: What the base model is called; also its version's name. None takes the folder's.
        slots: How many answers are generated at once.
        context: Longest sequence; None takes the model's own limit.
        device: `cpu`, `cuda`, ...; None takes the GPU if there is one.
        dtype: Of the base's weights; None takes float32 on the CPU and bfloat16 elsewhere.
        adapters: Folders of PEFT adapters, by the names of the versions they are published as.

    Raises:
        ValidationError: The folder holds no causal language model that transformers can load, or an adapter cannot be
            read or is of another base.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base: str | None = None,
        slots: int = 64,
        context: int | None = None,
        device: str | None = None,
        dtype: torch.dtype | None = None,
        adapters: Mapping[str, Path] | None = None,
    ) -> None:
        self._folder = folder
        self._base = base or folder.name
        self._model = TorchModel(folder, device, dtype)
        self._configs: dict[str, LoraConfig] = {}  # of published versions
        for version, path in (adapters or {}).items():  # before the thread, which then owns the model
            self._configs[version] = self._read_peft(version, path)
        self._sampler = TorchSampler(self._model, slots, min(context or self._model.context, self._model.context))
        self._sampler.versions |= {self._base: None, **{version: version for version in self._configs}}
        self._adapters: dict[str, _Adapter] = {}
        self._retired: list[str] = []
        super().__init__(self._sampler.submit)

    def _read_peft(self, version: str, folder: Path) -> LoraConfig:
        config, tensors = read_adapter(folder, self._model.targets)
        self._model.add(version, config)
        parameters = self._model.tensors(version)
        check_shapes(folder, tensors, {name: tuple(value.shape) for name, value in parameters.items()})
        for name, parameter in parameters.items():
            parameter.data.copy_(torch.from_numpy(tensors[name]))
        return config

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return Capabilities(
            engine="torch",
            base=self._base,
            vocab_size=self._model.vocab_size,
            context=self._sampler.context,
            losses=LOSSES,
            targets=self._model.targets,
            device=str(self._model.device),
            parameters=self._model.parameters,
        )

    def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """See `PolicyEngine.sample`."""
        return self._sampler.sample(request)

    def forget(self, session: str) -> None:
        """See `PolicyEngine.forget`; nothing is kept between the calls of a session."""

    async def aclose(self) -> None:
        """See `PolicyEngine.aclose`."""
        await asyncio.to_thread(self._sampler.close)

    # -- below: the engine's thread only ----------------------------------------------------------------------------

    def _adapter(self, name: str) -> _Adapter:
        if name not in self._adapters:
            raise NotFoundError(f"There is no adapter {name!r}; there is {', '.join(self._adapters) or 'none'}.")
        return self._adapters[name]

    def _create(self, name: str, config: LoraConfig) -> None:
        if name in self._adapters:
            raise ConflictError(f"There is an adapter {name!r} already; choose another name.")
        self._model.add(name, config)
        self._adapters[name] = _Adapter(config, torch.optim.AdamW(list(self._model.tensors(name).values())))

    def _delete(self, name: str) -> None:
        self._adapter(name)
        del self._adapters[name]
        self._model.remove(name)

    def _publish(self, name: str) -> str:
        adapter = self._adapter(name)
        self._sweep()
        adapter.published += 1
        version = f"{name}-v{adapter.published}"
        self._model.copy_adapter(name, version, adapter.config)
        self._configs[version] = adapter.config
        self._sampler.versions[version] = version
        return version

    def _retire(self, version: str) -> None:
        if self._sampler.versions.pop(version, None) is not None:
            del self._configs[version]
            self._retired.append(version)
        self._sweep()

    def _sweep(self) -> None:
        """Remove the weights of retired versions that nobody samples from any more."""
        for version in [v for v in self._retired if not self._sampler.in_use(v)]:
            self._retired.remove(version)
            self._model.remove(version)

    def _pass(self, name: str, datums: tuple[Datum, ...], loss: LossConfig, *, backward: bool) -> ForwardResult:
        adapter = self._adapter(name)
        batch = token_batch(datums, loss)
        sequences = self._sequences(datums)
        logprobs, entropy = np.zeros((2, len(batch)), np.float32)
        parameters = list(self._model.tensors(name).values())
        before = [None if p.grad is None else p.grad.clone() for p in parameters]
        try:
            with torch.set_grad_enabled(backward), self._model.using(name) as model:
                for part in self._micro_batches(sequences):
                    outputs = np.concatenate([s.outputs for s in part])
                    found, spread_out = self._logprobs(model, part, loss)
                    logprobs[outputs] = found.detach().cpu().numpy()
                    entropy[outputs] = spread_out.cpu().numpy()
                    if backward:
                        _, coefficients = surrogate(logprobs[outputs], batch.part(outputs), loss)
                        found.backward(torch.from_numpy(coefficients).to(found))
            finite = np.isfinite(logprobs).all() and all(
                p.grad is None or bool(torch.isfinite(p.grad).all()) for p in parameters
            )
            if not finite:
                raise NonFiniteError(
                    f"A log-probability or gradient of adapter {name!r} is not finite; nothing was added to its "
                    "gradient."
                )
        except BaseException:
            for parameter, old in zip(parameters, before, strict=True):
                parameter.grad = old
            raise
        adapter.gathered |= backward
        return ForwardResult(per_token(datums, logprobs), loss_metrics(logprobs, entropy, batch, loss))

    def _sequences(self, datums: Sequence[Datum]) -> list[TrainingSequence]:
        """What can be trained, shortest first."""
        sequences, at = [], 0
        for index, datum in enumerate(datums):
            tokens = checked_tokens(datum, index, self._model.vocab_size, self._sampler.context)
            trained = np.flatnonzero(np.asarray(datum.trained, bool))
            if len(trained):
                sequences.append(TrainingSequence(tokens, trained, np.arange(at, at + len(trained))))
            at += len(trained)
        return sorted(sequences, key=lambda s: len(s.tokens))

    def _micro_batches(self, sequences: Sequence[TrainingSequence]) -> Iterator[list[TrainingSequence]]:
        kind = "cpu" if self._model.device.type == "cpu" else "cuda"
        part: list[TrainingSequence] = []
        for sequence in sequences:
            count, width = len(part) + 1, len(sequence.tokens)
            logits = (sum(len(s.trained) for s in part) + len(sequence.trained)) * self._model.vocab_size
            if part and (count * width > _TOKENS[kind] or logits > _LOGITS[kind]):
                yield part
                part = []
            part.append(sequence)
        if part:
            yield part

    def _logprobs(
        self, model: torch.nn.Module, part: Sequence[TrainingSequence], loss: LossConfig
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the trained tokens [K], and entropies [K] without a gradient."""
        lengths = [int(s.trained[-1]) for s in part]  # the last trained token itself is a target only
        ids, mask = np.zeros((2, len(part), max(lengths)), np.int64)
        for row, (sequence, length) in enumerate(zip(part, lengths, strict=True)):
            ids[row, :length] = sequence.tokens[:length]
            mask[row, :length] = 1
        rows = np.repeat(np.arange(len(part)), [len(s.trained) for s in part])
        columns = np.concatenate([s.trained - 1 for s in part])
        targets = self._tensor(np.concatenate([s.tokens[s.trained] for s in part]))
        logits = self._model.logits_at(
            model, self._tensor(ids), self._tensor(mask), self._tensor(rows), self._tensor(columns)
        )
        table = processed(logits, [loss.sampling] * len(targets), targets)
        with torch.no_grad():
            entropy = -(table.exp() * table.clamp(min=-1e30)).sum(-1)
        return table.gather(-1, targets[:, None])[:, 0], entropy

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self._model.device)

    def _step(self, name: str, adam: AdamConfig) -> OptimResult:
        adapter = self._adapter(name)
        parameters = list(self._model.tensors(name).values())
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, adam.clip or float("inf")))
        if np.isfinite(norm):
            for group in adapter.optimiser.param_groups:
                group.update(lr=adam.lr, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay)
            adapter.optimiser.step()
            adapter.step += 1
        adapter.optimiser.zero_grad()
        adapter.gathered = False
        if not np.isfinite(norm):
            raise NonFiniteError(
                f"The gradient of adapter {name!r} is not finite at step {adapter.step + 1}. Its weights are as "
                "before; lower the learning rate or look at the rewards."
            )
        return OptimResult(adapter.step, norm, clipped=0 < adam.clip < norm)

    def _save(self, name: str, path: Path) -> None:
        adapter = self._adapter(name)
        if adapter.gathered:
            raise ConflictError(f"Adapter {name!r} has gathered a gradient; take the step before saving its state.")
        tensors: dict[str, Array] = {}
        for key, parameter in self._model.tensors(name).items():
            tensors[f"parameters/{key}"] = _array(parameter)
            for word, moment in (("first", "exp_avg"), ("second", "exp_avg_sq")):
                state = adapter.optimiser.state.get(parameter, {})
                tensors[f"{word}/{key}"] = _array(state[moment] if state else torch.zeros_like(parameter))
        facts = {
            "engine": "torch",
            "base": self._model.fingerprint,
            "lora": asdict(adapter.config),
            "step": adapter.step,
            "published": adapter.published,
        }
        write_state(path, tensors, facts)

    def _load(self, name: str, path: Path) -> None:
        tensors, facts = read_state(path)
        config = check_state(path, facts, "torch", self._model.fingerprint)
        present = self._adapters.get(name)
        if present is not None and present.config != config:
            raise ValidationError(f"{path} holds an adapter of another kind ({config}) than {name!r} is.")
        if present is None:
            self._create(name, config)
        adapter = self._adapters[name]
        adapter.optimiser.zero_grad()
        adapter.optimiser.state.clear()
        for key, parameter in self._model.tensors(name).items():
            parameter.data.copy_(torch.from_numpy(tensors[f"parameters/{key}"]))
            if facts["step"]:
                adapter.optimiser.state[parameter] = {
                    "step": torch.tensor(float(facts["step"])),
                    "exp_avg": self._tensor(tensors[f"first/{key}"]),
                    "exp_avg_sq": self._tensor(tensors[f"second/{key}"]),
                }
        adapter.step, adapter.gathered = facts["step"], False
        adapter.published = max(adapter.published, facts["published"])

    def _export_peft(self, name: str, folder: Path) -> None:
        self._known(name)
        if name not in self._configs:
            raise NotFoundError(f"Version {name!r} is the base model; it has no adapter to export.")
        tensors = {key: _array(parameter) for key, parameter in self._model.tensors(name).items()}

        def fill(into: Path) -> None:
            from safetensors.numpy import save_file

            save_file(tensors, into / "adapter_model.safetensors", {"format": "pt"})
            write_json(into / "adapter_config.json", peft_config(self._configs[name], self._base))

        write_folder(folder, fill)

    def _export_merged(self, name: str, folder: Path) -> None:
        self._known(name)

        def fill(into: Path) -> None:
            for path in self._folder.iterdir():
                if path.is_file() and not path.name.endswith((".safetensors", ".bin", ".index.json")):
                    shutil.copyfile(path, into / path.name)
            self._model.save_merged(self._sampler.versions[name], into)

        write_folder(folder, fill)

    def _known(self, version: str) -> None:
        if version not in self._sampler.versions:
            raise NotFoundError(f"There is no published version {version!r}; it may be retired.")


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().float().cpu().numpy().copy()
