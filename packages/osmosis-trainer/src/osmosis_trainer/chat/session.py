"""The tokens of a rollout's conversation: each call begins with the very ids the earlier calls had.

Sampled text is never tokenised again: the same text may have other ids than those the model drew. A session keeps the
ids of each conversation up to each answer; a later call whose messages begin with such a conversation continues from
its ids and encodes only what is new. A conversation that was changed matches up to the change at most and so begins a
branch; nothing is ever guessed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from osmosis_trainer.chat.template import ChatTemplate, Message
from osmosis_trainer.chat.tokens import TextTokenizer


@dataclass(frozen=True, slots=True)
class _Node:
    """A conversation up to an answer: its ids, the text they stand for, and the text's end that has no ids yet."""

    ids: tuple[int, ...]
    text: str
    unsaid: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A call ready for the engine.

    Attributes:
        messages: The normalised messages.
        tools: The tools the model is shown.
        text: How the template renders them, up to where the answer begins.
        ids: The whole prompt, with what the answer is forced to begin with.
        reused: How many leading ids come from earlier calls of the session.
        fingerprints: One for each beginning of the conversation, from no message to all.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    text: str
    ids: tuple[int, ...]
    reused: int
    fingerprints: tuple[bytes, ...]


@dataclass(slots=True)
class ChatSession:
    """What is kept between the calls of a rollout.

    Args:
        template: Renders the messages; where it is not append-only, a branch begins.
        tokenizer: Encodes what is new.
    """

    template: ChatTemplate
    tokenizer: TextTokenizer
    _nodes: dict[bytes, _Node] = field(default_factory=dict)

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, forced: str = ""
    ) -> Prompt:
        """Give the ids of a call.

        Args:
            messages: From `template.normalise`.
            tools: The tools the model is shown.
            forced: How the answer must begin; part of the prompt.

        Raises:
            PolicyError: (bad_request) The template refuses the messages.
        """
        text = self.template.render(messages, tools, add_generation_prompt=True)
        fingerprints = _fingerprints(messages, tools)
        known, new = (), text
        for fingerprint in reversed(fingerprints):
            node = self._nodes.get(fingerprint)
            if node is not None and text.startswith(node.text):
                known, new = node.ids, node.unsaid + text[len(node.text) :]
                break
        ids = (*known, *self.tokenizer.encode(new + forced))
        return Prompt(messages, tools, text, ids, len(known), fingerprints)

    def answered(self, prompt: Prompt, ids: Sequence[int], answer: Message, end_id: int) -> None:
        """Keep a whole answer; one that does not end with `end_id` was cut, and no later call can continue it.

        Args:
            prompt: What the call began with.
            ids: The sampled tokens.
            answer: The normalised message that the agent was given for them.
            end_id: The token that ends a message in the template.
        """
        if not ids or ids[-1] != end_id:
            return
        text = self.template.render([*prompt.messages, answer], prompt.tools)
        # a template that does not write what was thought shows later turns another conversation than the ids hold
        shown = str(answer.get("reasoning_content", "")).strip() in text[len(prompt.text) :]
        if shown and text.startswith(prompt.text):
            unsaid = text.rpartition(self.tokenizer.decode([end_id]))[2]
            self._nodes[_extend(prompt.fingerprints[-1], answer)] = _Node((*prompt.ids, *ids), text, unsaid)


def _fingerprints(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> tuple[bytes, ...]:
    found = [_digest(json.dumps(list(tools or ()), sort_keys=True, default=str).encode())]
    for message in messages:
        found.append(_extend(found[-1], message))
    return tuple(found)


def _extend(fingerprint: bytes, message: Message) -> bytes:
    return _digest(fingerprint + json.dumps(message, sort_keys=True).encode())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
