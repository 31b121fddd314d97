"""Write a trained checkpoint as the Hugging Face folder that ships in the wheel."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from model import Shape
from safetensors.torch import save_file
from tokenizer import SPECIALS
from tokenizers import Tokenizer
from train import NANO

CONTEXT = 2048


def export(checkpoint: Path, tokenizer_file: Path, out: Path) -> None:
    """Write config, weights, tokenizer and generation defaults; the chat template lies in `out` already."""
    saved = torch.load(checkpoint, weights_only=False)
    shape: Shape = saved["shape"]
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    sizes = asdict(shape)
    theta = sizes.pop("rope_theta")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **sizes,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "dtype": "float32",
    }
    _write(out / "config.json", config)
    _write(
        out / "generation_config.json",
        {"do_sample": True, "temperature": 1.0, "eos_token_id": [end, pad], "pad_token_id": pad},
    )
    _write(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "additional_special_tokens": [token for token in SPECIALS if token not in ("<|im_end|>", "<|endoftext|>")],
            "clean_up_tokenization_spaces": False,
        },
    )
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    weights = {name: value.contiguous().float() for name, value in saved["parameters"].items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=NANO)
    arguments = parser.parse_args()
    export(arguments.checkpoint, arguments.tokenizer, arguments.out)
