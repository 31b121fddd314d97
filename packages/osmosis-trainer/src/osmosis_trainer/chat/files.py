"""The chat side of a Hugging Face model folder: tokenizer, template, and the tokens that end an answer.

Leaves weights to the engines. Nothing is assumed of a model family: how the template ends an assistant's message says
which token that is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.gateway.policy import PolicyError

from osmosis_trainer.chat.reasoning import CLOSE
from osmosis_trainer.chat.template import ChatTemplate
from osmosis_trainer.chat.tokens import TextTokenizer

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
# Stands for an answer's text: no template changes it, no text holds it.
_MARK = "\u241eanswer\u241e"


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """What a model's chats are made with.

    Attributes:
        tokenizer: Text to ids and back.
        template: Messages to text.
        end: The token that ends an assistant's message in the template.
        stops: Tokens that end an answer; `end` is one of them.
        thinks: Whether the template writes thinking between tags, so that answers are read for them.
    """

    tokenizer: TextTokenizer
    template: ChatTemplate
    end: int
    stops: frozenset[int]
    thinks: bool


def read_chat_files(folder: Path) -> ChatFiles:
    """Read a model folder.

    Raises:
        ValidationError: A file is missing or broken, the tokenizer is no byte-level BPE, or the template ends an
            assistant's message with no special token, so that a model cannot say that it is done.
    """
    tokenizer = TextTokenizer(folder / "tokenizer.json")
    config = _json(folder / "tokenizer_config.json")
    source = _template(folder, config)
    special = {name: text for name in _SPECIAL if (text := _token(config.get(name)))}
    template = ChatTemplate(source, special)
    end = _end(folder, template, tokenizer)
    stops = {end}
    if (text := special.get("eos_token")) is not None:
        stops.add(tokenizer.token_id(text))
    if (text := special.get("pad_token")) is not None:
        stops.add(tokenizer.token_id(text))  # some models end with it; nobody means it as text
    ids = _json(folder / "generation_config.json").get("eos_token_id")
    stops |= {i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)}
    return ChatFiles(tokenizer, template, end, frozenset(stops), CLOSE in source)


def _template(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "chat_template.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ValidationError(f"{path} cannot be read: {error}.") from error
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    if isinstance(found, str):
        return found
    raise ValidationError(
        f"{folder} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): it is no chat "
        "model. Take the model's instruct version."
    )


def _end(folder: Path, template: ChatTemplate, tokenizer: TextTokenizer) -> int:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
    try:
        text = template.render(messages)
    except PolicyError as error:
        raise ValidationError(f"The chat template of {folder} cannot be used. {error}") from error
    ids = tokenizer.encode(text.rpartition(_MARK)[2]) if _MARK in text else []
    if not ids or ids[0] not in tokenizer.special_ids:
        raise ValidationError(
            f"The chat template of {folder} does not end an assistant's message with a special token right after its "
            "text, so answers have no end."
        )
    return ids[0]


def _token(value: Any) -> str | None:
    """A special token's text; some files write an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValidationError(f"{path} cannot be read: {error}.") from error
    return found if isinstance(found, dict) else {}
