"""nano's tokenizer: byte-level BPE over the synthetic dialogues, every digit a token of its own.

Byte-complete: the 256 bytes are in the alphabet, so any text encodes and decodes without loss.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from dialogues import Style, Writer
from osmosis_trainer.chat.template import ChatTemplate, normalise
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")
VOCABULARY = 768


def train_tokenizer(template: ChatTemplate, *, seed: int = 0, dialogues: int = 6000) -> Tokenizer:
    """Train the BPE on rendered dialogues; deterministic for a seed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()

    def texts() -> Iterator[str]:
        writer = Writer(random.Random(seed), Style())  # noqa: S311 - data, not secrets
        for _ in range(dialogues):
            dialogue = writer.write()
            yield template.render(normalise(dialogue.messages), dialogue.tools)

    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer
