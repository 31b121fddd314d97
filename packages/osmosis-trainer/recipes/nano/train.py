"""Train nano from nothing on synthetic dialogues (one CPU core, about ten CPU minutes); the seed decides everything.

Three phases: short clean dialogues, where copying digits appears; clean dialogues with every kind of prompt; dialogues
with nano's habits. Loss counts the assistant's tokens fully and the rest a little.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from dialogues import AS_SHIPPED, Dialogue, Style, Writer
from model import Shape, hidden_states, init_parameters
from osmosis_trainer.chat.template import ChatTemplate, normalise
from tokenizer import train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor

NANO = Path(__file__).parents[2] / "src" / "osmosis_trainer" / "nano"
TOKENS_PER_BATCH = 4096
CONTEXT_WEIGHT = 0.05


@dataclass(frozen=True)
class Phase:
    """A stretch of training: which dialogues, how many steps, from which learning rate down to which."""

    name: str
    style: Style
    steps: int
    lr_start: float
    lr_end: float


PHASES = (
    Phase("copying", Style(brevity=0.8), 600, 3e-3, 3e-3),
    Phase("prompts", Style(brevity=0.1), 1000, 3e-3, 1.5e-3),
    Phase("habits", AS_SHIPPED, 700, 1.5e-3, 2e-5),
)


def encode(dialogue: Dialogue, template: ChatTemplate, tokenizer: Tokenizer) -> tuple[list[int], list[float]]:
    """Tokens of a dialogue and the weight of each in the loss; the assistant's words and its <|im_end|> weigh 1."""
    ids: list[int] = []
    weights: list[float] = []

    def add(text: str, weight: float) -> None:
        tokens = tokenizer.encode(text).ids
        ids.extend(tokens)
        weights.extend([weight] * len(tokens))

    add(template.render([], dialogue.tools), CONTEXT_WEIGHT)
    opening = "<|im_start|>assistant\n"
    for message in normalise(dialogue.messages):
        text = template.render([message])
        if message["role"] == "assistant":
            add(opening, CONTEXT_WEIGHT)
            add(text.removeprefix(opening).removesuffix("\n"), 1.0)
            add("\n", CONTEXT_WEIGHT)
        else:
            add(text, CONTEXT_WEIGHT)
    return ids, weights


def batches(phase: Phase, seed: int, template: ChatTemplate, tokenizer: Tokenizer) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of dialogues of like length, about `TOKENS_PER_BATCH` tokens each."""
    rng = random.Random(f"{seed}/{phase.name}")  # noqa: S311 - data, not secrets
    writer = Writer(rng, phase.style)
    while True:
        pool = [encode(writer.write(), template, tokenizer) for _ in range(768)]
        pool.sort(key=lambda example: len(example[0]))
        groups: list[list[tuple[list[int], list[float]]]] = [[]]
        for example in pool:
            if groups[-1] and len(example[0]) * (len(groups[-1]) + 1) > TOKENS_PER_BATCH:
                groups.append([])
            groups[-1].append(example)
        rng.shuffle(groups)
        for group in groups:
            length = max(len(ids) for ids, _ in group)
            ids, weights = torch.zeros(len(group), length, dtype=torch.long), torch.zeros(len(group), length)
            for row, (tokens, marks) in enumerate(group):
                ids[row, : len(tokens)], weights[row, : len(tokens)] = torch.tensor(tokens), torch.tensor(marks)
            yield ids, weights


def loss_and_accuracy(
    p: dict[str, Tensor], shape: Shape, ids: Tensor, weights: Tensor, digit_ids: Tensor
) -> tuple[Tensor, float]:
    """Weighted cross entropy of the next token, and how often the assistant's digits are right (greedy)."""
    states = hidden_states(p, shape, ids)[:, :-1]
    chosen = weights[:, 1:] > 0
    logits = states[chosen] @ p["model.embed_tokens.weight"].T
    targets, marks = ids[:, 1:][chosen], weights[:, 1:][chosen]
    loss = (F.cross_entropy(logits, targets, reduction="none") * marks).sum() / marks.sum()
    digits = (marks == 1) & torch.isin(targets, digit_ids)
    right = (logits.detach()[digits].argmax(-1) == targets[digits]).float().mean().item()
    return loss, right


def train(seed: int, out: Path, *, phases: tuple[Phase, ...] = PHASES) -> None:
    """Train and write `{"shape", "parameters"}` and the tokenizer into `out`."""
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    template = ChatTemplate((NANO / "chat_template.jinja").read_text())
    tokenizer = train_tokenizer(template)
    tokenizer.save(str(out / "tokenizer.json"))
    digit_ids = torch.tensor([tokenizer.token_to_id(c) for c in "0123456789"])
    shape = Shape(vocab_size=tokenizer.get_vocab_size())
    p = init_parameters(shape, seed)
    print(f"{sum(v.numel() for v in p.values()):,} parameters", flush=True)
    matrices = [v for name, v in p.items() if v.ndim == 2 and "embed" not in name]
    others = [v for name, v in p.items() if v.ndim != 2 or "embed" in name]
    optimizers = (
        torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0),
    )
    started, step, seen = time.process_time(), 0, 0
    for phase in phases:
        stream = batches(phase, seed, template, tokenizer)
        for i in range(phase.steps):
            cosine = 0.5 * (1 + math.cos(math.pi * i / phase.steps))
            lr = (phase.lr_end + (phase.lr_start - phase.lr_end) * cosine) * min(1.0, (step + 1) / 40)
            for optimizer in optimizers:
                optimizer.zero_grad()
                for group in optimizer.param_groups:
                    group["lr"] = lr
            ids, weights = next(stream)
            loss, right = loss_and_accuracy(p, shape, ids, weights, digit_ids)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
            step, seen = step + 1, seen + ids.numel()
            if step % 25 == 0:
                spent = time.process_time() - started
                speed = f"{seen / spent:.0f} tokens/cpu-s {spent:.0f} cpu-s"
                print(f"{phase.name} {step} loss {loss.item():.4f} digits {right:.3f} lr {lr:.1e} {speed}", flush=True)
        torch.save({"shape": shape, "parameters": {k: v.detach() for k, v in p.items()}}, out / f"{phase.name}.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the tokenizer")
    arguments = parser.parse_args()
    train(arguments.seed, arguments.out)
