"""A Hugging Face causal LM with PEFT adapters: loading, switching adapters, the processed distribution.

Leaves batching to `engine.torch_sampler` and what is learnt to `engine.torch_engine`; all on one thread, because which
adapter is on is a state of the model. Imported only when the torch engine is used.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import torch
from osmosis_ai.errors import ValidationError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.lora import initial_matrix, peft_config
from osmosis_trainer.engine.protocol import LoraConfig
from osmosis_trainer.engine.sampling import SamplingParams, uniforms
from osmosis_trainer.engine.weights import Array


class TorchModel:
    """One base model and its adapters.

    Args:
        folder: Hugging Face files.
        device: `cpu`, `cuda`, ...; None takes the GPU if there is one.
        dtype: Of the base; None takes float32 on the CPU and bfloat16 elsewhere. Adapters are float32.

    Raises:
        ValidationError: The folder holds no causal language model that transformers can load.
    """

    def __init__(self, folder: Path, device: str | None, dtype: torch.dtype | None) -> None:
        if not (folder / "config.json").is_file():
            raise ValidationError(f"{folder} is no model folder: it has no config.json.")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        dtype = dtype or (torch.float32 if self.device.type == "cpu" else torch.bfloat16)
        logging.disable_progress_bar()
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ValidationError(f"{folder} cannot be loaded as a causal language model: {error}") from error
        self._base = model.to(self.device).eval().requires_grad_(False)  # eval: no dropout, also in training
        self._peft: peft.PeftModel | None = None
        self._adapters: dict[str, str] = {}  # our name to PEFT's, which may not have dots
        self._made = 0
        self._active: str | None = None
        config = model.config.get_text_config()
        self.context: int = getattr(config, "max_position_embeddings", None) or 4096
        embedding: Any = model.get_input_embeddings()
        self.vocab_size = int(embedding.weight.shape[0])
        self.parameters = sum(p.numel() for p in model.parameters())
        self.targets = _linears(model)
        self.fingerprint = _fingerprint(model)
        accepted = inspect.signature(model.forward).parameters
        self._cache_word = "cache" if "cache" in accepted else "past_key_values"  # renamed in transformers 5
        self._keeps_logits = "logits_to_keep" in accepted

    # -- adapters ---------------------------------------------------------------------------------------------------

    def add(self, name: str, config: LoraConfig) -> None:
        """Make an adapter at its seeded start."""
        options = peft_config(config, "")
        for name_of_export in ("peft_type", "base_model_name_or_path", "inference_mode"):
            del options[name_of_export]
        made = peft.LoraConfig(**options)
        self._made += 1
        inner = f"adapter{self._made}"
        if self._peft is None:
            wrapped = peft.get_peft_model(self._base, made, adapter_name=inner)
            assert isinstance(wrapped, peft.PeftModel)
            self._peft = wrapped
        else:
            self._peft.add_adapter(inner, made)
        self._peft.eval()
        self._adapters[name] = inner
        self._active = None
        for key, parameter in self.tensors(name).items():
            start = torch.zeros_like(parameter)
            if "lora_A" in key:
                start = torch.from_numpy(initial_matrix(config.seed, key, *parameter.shape))
            parameter.data.copy_(start)

    def copy_adapter(self, source: str, target: str, config: LoraConfig) -> None:
        """Make an adapter with another's weights as they are now."""
        self.add(target, config)
        for mine, theirs in zip(self.tensors(target).values(), self.tensors(source).values(), strict=True):
            mine.data.copy_(theirs.data)

    def remove(self, name: str) -> None:
        """Forget an adapter; the last one is kept inside PEFT, which cannot be without."""
        inner = self._adapters.pop(name)
        self._active = None
        if self._peft is not None and len(self._peft.peft_config) > 1:
            self._peft.set_adapter(next(other for other in self._peft.peft_config if other != inner))
            self._peft.delete_adapter(inner)

    def tensors(self, name: str) -> dict[str, nn.Parameter]:
        """An adapter's parameters under the names of its export, sorted."""
        assert self._peft is not None
        infix = f".{self._adapters[name]}."
        found = {key.replace(infix, "."): value for key, value in self._peft.named_parameters() if infix in key}
        return dict(sorted(found.items()))

    @contextmanager
    def using(self, name: str | None) -> Generator[nn.Module]:
        """The model with one adapter on; None is the base."""
        if self._peft is None:
            yield self._base
        elif name is None:
            with self._peft.disable_adapter():
                yield self._base
            self._active = None
        else:
            if self._active != name:
                self._peft.set_adapter(self._adapters[name])
                self._active = name
            yield self._base

    def save_merged(self, name: str | None, folder: Path) -> None:
        """Write the whole model with an adapter merged in; needs room for a second copy of it."""
        with torch.no_grad():
            whole = copy.deepcopy(self._peft) if self._peft is not None else None
            if whole is None:
                model = self._base
            elif name is None:
                model = whole.unload()
            else:
                model = whole.merge_and_unload(adapter_names=[self._adapters[name]])
            model.save_pretrained(folder)

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def new_cache(self) -> DynamicCache:
        """An empty key-value cache."""
        return DynamicCache(config=self._base.config)

    def next_logits(
        self, model: nn.Module, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache
    ) -> Tensor:
        """Logits [B, V] after left-padded ids [B, n] that continue a cache; `mask` covers cache and ids."""
        extra: dict[str, Any] = {"logits_to_keep": 1} if self._keeps_logits else {}
        extra[self._cache_word] = cache
        out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **extra)
        return out.logits[:, -1].float()

    def logits_at(self, model: nn.Module, ids: Tensor, mask: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Logits [K, V] at some places of right-padded ids [B, T]; only columns that are asked for are computed."""
        kept, index = torch.unique(columns, return_inverse=True)
        extra: dict[str, Any] = {"logits_to_keep": kept} if self._keeps_logits else {}
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **extra).logits
        return logits[rows, index if self._keeps_logits else columns].float()


def processed(logits: Tensor, params: Sequence[SamplingParams], drawn: Tensor | None = None) -> Tensor:
    """Log-probabilities [N, V] of the distribution that tokens are drawn from; dropped tokens have -inf.

    Args:
        logits: [N, V], float32.
        params: One for each row; greedy rows are left as they are.
        drawn: A token of each row that is never dropped [N].
    """
    row: dict[str, Any] = {"device": logits.device, "dtype": logits.dtype}
    logits = logits / torch.tensor([p.temperature or 1.0 for p in params], **row)[:, None]
    if not any(p.filters for p in params):
        return logits.log_softmax(-1)
    relative = (logits.detach() - logits.detach().amax(-1, keepdim=True)).exp()
    kept = relative >= torch.tensor([p.min_p for p in params], **row)[:, None]
    if any(p.top_k for p in params):
        ordered = relative.sort(-1, descending=True).values
        count = torch.tensor([p.top_k or logits.shape[-1] for p in params], device=logits.device)
        kept &= relative >= ordered.gather(-1, count.clamp(max=logits.shape[-1])[:, None] - 1)
    if any(p.top_p < 1 for p in params):
        share = torch.tensor([p.top_p for p in params], device=logits.device, dtype=torch.float64)[:, None]
        ordered = relative.where(kept, 0).sort(-1, descending=True).values
        cumulative = ordered.cumsum(-1, dtype=torch.float64)
        last = (cumulative < share * cumulative[:, -1:]).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
        kept &= (relative >= ordered.gather(-1, last)) | (share >= 1)
    if drawn is not None:
        kept[torch.arange(len(drawn), device=kept.device), drawn] = True
    return logits.masked_fill(~kept, -torch.inf).log_softmax(-1)


def draw(logits: Tensor, params: Sequence[SamplingParams], keys: Array, positions: Array) -> tuple[Tensor, Tensor]:
    """Draw one token a row, as `engine.sampling.draw` does on arrays: same noise, same filters.

    Returns:
        Token ids [N], and their log-probabilities [N].
    """
    logprobs = processed(logits, params)
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    noise = torch.from_numpy(uniforms(keys, positions)).to(logits.device)
    drawn = (cumulative <= (noise * cumulative[:, -1])[:, None]).sum(-1)
    greedy = torch.tensor([p.temperature == 0 for p in params], device=logits.device)
    drawn = torch.where(greedy, logits.argmax(-1), drawn)
    return drawn, torch.where(greedy, 0.0, logprobs.gather(-1, drawn[:, None])[:, 0])


def _linears(model: nn.Module) -> tuple[str, ...]:
    """Last names of the linears that an adapter may change: all but the head, in the order of the model."""
    find_head: Any = getattr(model, "get_output_embeddings", lambda: None)
    head = find_head()
    names: Iterable[str] = (
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    )
    return tuple(dict.fromkeys(names))


def _fingerprint(model: nn.Module) -> str:
    """Tells base models apart by names, shapes and about a thousand numbers of each parameter."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 1024)].float().cpu().numpy()
        digest.update(f"\0{name}\0{tuple(parameter.shape)}\0".encode())
        digest.update(np.ascontiguousarray(some).data)
    return digest.hexdigest()
