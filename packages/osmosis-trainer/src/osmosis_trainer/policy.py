"""The Policy over our own engine: chat calls in, deltas with exact tokens out.

Owns the sessions' tokens and the translation between chat and tokens; leaves sampling to `engine.sampler` and HTTP,
records and retries to the gateway.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, PolicyError, TokenSpan, Usage

from osmosis_trainer.adapters import adapted_weights
from osmosis_trainer.chat.files import ChatFiles, read_chat_files
from osmosis_trainer.chat.parse import AnswerParser, StopTexts
from osmosis_trainer.chat.reasoning import OPEN as OPEN_THINKING
from osmosis_trainer.chat.reasoning import Part, Thinking
from osmosis_trainer.chat.session import ChatSession, Prompt
from osmosis_trainer.chat.template import normalise
from osmosis_trainer.engine.sampler import SampledPiece, Sampler, SampleRequest
from osmosis_trainer.engine.sampling import SamplingParams, noise_key
from osmosis_trainer.engine.weights import ForeignModelError, fuse, read_parameters, read_shape
from osmosis_trainer.engines import open_engine
from osmosis_trainer.request import CallParams, read_params


class TokenSource(Protocol):
    """Draws answers: a `Sampler`, or a whole `PolicyEngine`."""

    def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """Draw an answer piece by piece; closing the iterator cancels it."""
        ...

    def forget(self, session: str) -> None:
        """Say that a session asks no more."""
        ...


@dataclass(slots=True)
class OpenRollout:
    """What is kept between the calls of one rollout.

    Attributes:
        chat: The tokens of its conversations.
        asked: How often each conversation was asked.
        unparsed_calls: Tool calls of the model's that could not be read, and so stayed text.
        unfinished_thoughts: Answers that ended while the model thought.
    """

    chat: ChatSession
    asked: Counter[bytes] = field(default_factory=Counter)
    unparsed_calls: int = 0
    unfinished_thoughts: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """How one answer is drawn.

    Attributes:
        version: Of the weights.
        sampling: How tokens are drawn.
        max_tokens: Longest answer; at least 1.
        noise_key: What the noise depends on.
    """

    version: str
    sampling: SamplingParams
    max_tokens: int
    noise_key: int


class ChatPolicy(ABC):
    """Chat over a token source. A subclass says how each answer is drawn.

    Args:
        model: The name the run's config gives it.
        folder: Hugging Face files: tokenizer and `chat_template.jinja`.
        source: Draws tokens.
        context: Longest prompt plus answer, in tokens.

    Raises:
        ValidationError: A file is missing or not what we can read.
    """

    def __init__(self, model: str, folder: Path, source: TokenSource, context: int) -> None:
        self._model = model
        self._source = source
        self._context = context
        self._files = read_chat_files(folder)
        self.tokenizer, self.template = self._files.tokenizer, self._files.template
        self._rollouts: dict[str, OpenRollout] = {}
        self.unparsed_calls = 0

    @property
    def model(self) -> str:
        """The configured model name."""
        return self._model

    async def preflight(self) -> None:  # noqa: B027 - nothing to do is what it means
        """Nothing to check: the model is loaded."""

    @abstractmethod
    def _draw(self, request: ChatRequest, params: CallParams, prompt: Prompt, rollout: OpenRollout) -> Draw:
        """Say how an answer is drawn.

        Raises:
            PolicyError: (bad_request) The prompt leaves no room for an answer.
        """

    async def chat(self, request: ChatRequest) -> AsyncGenerator[ChatDelta]:
        """Answer one call; closing the iterator frees its slot.

        Raises:
            PolicyError: bad_request for messages, parameters or lengths that cannot be served; unavailable when the
                engine has stopped.
        """
        params = read_params(request)
        messages = normalise(request.messages)
        rollout = self._rollouts.setdefault(request.rollout_id, OpenRollout(ChatSession(self.template, self.tokenizer)))
        prompt = rollout.chat.prompt(messages, params.tools, params.forced)
        if len(prompt.ids) >= self._context:
            raise too_long(
                f"The prompt has {len(prompt.ids)} tokens; {self._model} reads at most {self._context} with its "
                "answer. Shorten the messages."
            )
        draw = self._draw(request, params, prompt, rollout)
        answer = _Answer(self._files, prompt, params, draw.noise_key)
        ids: list[int] = []
        logprobs: list[float] = []
        finish, cached = "stop", 0
        sampled = self._source.sample(
            SampleRequest(
                session=request.rollout_id,
                version=draw.version,
                prompt=prompt.ids,
                max_tokens=min(draw.max_tokens, self._context - len(prompt.ids)),
                stop_ids=self._files.stops,
                params=draw.sampling,
                noise_key=draw.noise_key,
            )
        )
        yield ChatDelta({"role": "assistant", "content": ""})
        async with aclosing(_engine_errors(sampled)) as pieces:
            async for piece in pieces:
                ids += piece.ids
                logprobs += piece.logprobs
                for delta in answer.push(piece.ids):
                    yield ChatDelta(delta)
                cached = piece.cached_tokens
                if answer.stopped:
                    break
                finish = piece.finish_reason or finish
        for delta in answer.end():
            yield ChatDelta(delta)
        rollout.unparsed_calls += answer.parser.unparsed
        rollout.unfinished_thoughts += answer.unfinished_thought
        self.unparsed_calls += answer.parser.unparsed
        if not answer.stopped:
            rollout.chat.answered(prompt, ids, normalise([answer.message])[0], self._files.end)
        yield ChatDelta(
            finish_reason="tool_calls" if answer.parser.calls and finish == "stop" else finish,
            usage=Usage(len(prompt.ids), len(ids), cached_prompt_tokens=cached),
            cost_usd=0.0,
            tokens=TokenSpan(prompt.ids, tuple(ids), tuple(logprobs), draw.version),
        )

    async def close_session(self, rollout_id: str) -> None:
        """Forget a rollout's tokens; its slots go to the next who needs one."""
        if self._rollouts.pop(rollout_id, None) is not None:
            self._source.forget(rollout_id)


class EnginePolicy(ChatPolicy):
    """A model folder, sampled in this process as each call asks: by NumPy, or by torch where NumPy does not run it.

    Args:
        model: The name the run's config gives it.
        folder: Hugging Face files: config, weights, tokenizer, `chat_template.jinja`.
        adapter: Folder of a PEFT adapter to put on it.
        slots: How many answers are decoded at once; more calls wait their turn.
        seed: Changes every answer; the same seed, rollouts and messages give the same answers in any order of arrival.

    Attributes:
        sampler: NumPy's; there is none where torch runs the model.
        version: What answers are drawn from.

    Raises:
        ValidationError: A file is missing or not what the engine can run.
        ModuleNotFoundError: Only the torch engine runs the model, and its extra is not installed.
    """

    sampler: Sampler
    _close: Callable[[], Awaitable[None]]

    def __init__(
        self, model: str, folder: Path, *, adapter: Path | None = None, slots: int = 64, seed: int = 0
    ) -> None:
        self._seed = seed
        self.version = model
        try:
            shape = read_shape(folder)
        except ForeignModelError:
            self._take_torch(model, folder, adapter, slots)
            return
        sampler = self.sampler = Sampler(shape, slots=slots)
        self._close = partial(asyncio.to_thread, sampler.close)
        super().__init__(model, folder, sampler, sampler.context)
        parameters = read_parameters(folder, shape)
        weights = fuse(parameters, shape) if adapter is None else adapted_weights(adapter, shape, parameters)
        sampler.publish(self.version, weights)

    def _take_torch(self, model: str, folder: Path, adapter: Path | None, slots: int) -> None:
        base, adapters = (model, {}) if adapter is None else (f"{model} (base)", {model: adapter})
        engine = open_engine("torch", folder, base=base, slots=slots, adapters=adapters)
        self._close = engine.aclose
        super().__init__(model, folder, engine, engine.capabilities.context)

    async def aclose(self) -> None:
        """Stop the engine's thread."""
        await self._close()

    def _draw(self, request: ChatRequest, params: CallParams, prompt: Prompt, rollout: OpenRollout) -> Draw:
        key = self._noise_key(request, params, prompt, rollout)
        return Draw(self.version, params.sampling, params.max_tokens or self._context, key)

    def _noise_key(self, request: ChatRequest, params: CallParams, prompt: Prompt, rollout: OpenRollout) -> int:
        """Name a call by what it asks, so that its noise does not depend on when it came.

        A caller's seed makes equal requests equal. Without one, what the rollout is a try at (else its id) tells rollouts
        apart, and a count tells apart calls of a rollout that ask the same.
        """
        asked = prompt.fingerprints[-1]
        if params.seed is not None:
            return noise_key("seed", params.seed, asked.hex())
        rollout.asked[asked] += 1
        return noise_key(self._seed, request.item or request.rollout_id, asked.hex(), rollout.asked[asked])


def too_long(message: str) -> PolicyError:
    """The error of a prompt that leaves no room for an answer, as OpenAI words it for clients."""
    return PolicyError(message, kind="bad_request", status=400, provider_code="context_length_exceeded")


class _Answer:
    """Tokens to deltas for one call: bytes to text, stop texts, thinking, tool calls."""

    def __init__(self, files: ChatFiles, prompt: Prompt, params: CallParams, key: int) -> None:
        self._text = files.tokenizer.stream()
        self._stop_ids = files.stops
        self._stops = StopTexts(params.stops)
        begun = prompt.text.rstrip("\n").endswith(OPEN_THINKING) and not params.forced
        self._thinking = Thinking(expected=files.thinks and not params.forced, begun=begun)
        self._thoughts: list[str] = []
        self.parser = AnswerParser(lambda index: f"call_{key:016x}{index:02x}", calls_allowed=bool(params.tools))
        self.parser.push(params.forced)

    @property
    def stopped(self) -> bool:
        """Whether a stop text was met."""
        return self._stops.found

    @property
    def unfinished_thought(self) -> bool:
        """Whether the answer ended while the model thought."""
        return self._thinking.unfinished

    def push(self, ids: list[int]) -> list[dict[str, Any]]:
        """Read more tokens."""
        text = self._stops.push(self._text.push([i for i in ids if i not in self._stop_ids]))
        return self._read(self._thinking.push(text))

    def end(self) -> list[dict[str, Any]]:
        """Read what was held back."""
        rest = "" if self.stopped else self._stops.push(self._text.end()) + self._stops.end()
        return self._read([*self._thinking.push(rest), *self._thinking.end()]) + self.parser.end()

    def _read(self, parts: Iterable[Part]) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        for part in parts:
            if part.thinking:
                self._thoughts.append(part.text)
                deltas.append({"reasoning_content": part.text})
            else:
                deltas += self.parser.push(part.text)
        return deltas

    @cached_property
    def message(self) -> dict[str, Any]:
        """The whole answer as the agent was given it."""
        calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in self.parser.calls]
        thoughts = {"reasoning_content": "".join(self._thoughts)} if self._thoughts else {}
        return {"role": "assistant", "content": self.parser.content, "tool_calls": calls, **thoughts}


async def _engine_errors[T](pieces: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Turn a stopped engine into a policy error, and close the engine's iterator with this one."""
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
        except RuntimeError as error:
            raise PolicyError(f"{error}.", kind="unavailable") from error
