"""The engine's thread: takes sampling calls, batches them over the slots, hands tokens back to their event loops.

Each turn of the loop is one ragged prefill for calls that join, else one decoded token for every call that is going.
Calls wait in order when all slots are busy. Several versions of the weights may be live; a call keeps the version it
began with. One thread owns slots and arithmetic, so nothing in it needs a lock; calls come in through a queue and
tokens go out through `call_soon_threadsafe`, several at a time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.model import Decoder
from osmosis_trainer.engine.sampling import SamplingParams, draw
from osmosis_trainer.engine.slots import Slots
from osmosis_trainer.engine.weights import Array, ModelShape, SamplingWeights

type FinishReason = Literal["stop", "length"]

# One prefill computes at most this many tokens, so that a long prompt does not hold up the others for long.
_PREFILL_TOKENS = 1024
# While calls are being decoded, at most this many prefills run in a row.
_PREFILLS_IN_A_ROW = 4
# A call waits for another's prefill when the two share a beginning of at least this many tokens.
_WORTH_WAITING = 24
# Tokens of a call that is still going are handed over at most this often.
_FLUSH_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One sampling call, in tokens.

    Attributes:
        session: Calls of one session tend to continue each other.
        version: Which published weights to use.
        prompt: Token ids, at least one, shorter than the context.
        max_tokens: Most tokens to draw; prompt and answer together must fit the context.
        stop_ids: Drawing one of these ends the answer; it is part of the answer.
        params: How to draw.
        noise_key: What the noise depends on, from `sampling.noise_key`.
    """

    session: str
    version: str
    prompt: Sequence[int]
    max_tokens: int
    stop_ids: frozenset[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    noise_key: int = 0

    def check(self, context: int) -> None:
        """Make sure that prompt and answer fit a context.

        Raises:
            ValueError: They do not.
        """
        if not self.prompt or self.max_tokens < 1 or len(self.prompt) + self.max_tokens > context:
            raise ValueError(
                f"a prompt of {len(self.prompt)} tokens and an answer of up to {self.max_tokens} do not fit "
                f"the context of {context}"
            )


@dataclass(frozen=True, slots=True)
class SampledPiece:
    """Some tokens of an answer, in order.

    Attributes:
        ids: Token ids.
        logprobs: Log-probability of each under the distribution it was drawn from.
        finish_reason: On the last piece only.
        cached_tokens: How many prompt tokens needed no computing.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason | None = None
    cached_tokens: int = 0


@dataclass(eq=False, slots=True)
class _Call:
    """A request on its way; only the engine's thread touches it, apart from `cancelled`."""

    request: SampleRequest
    weights: SamplingWeights
    prompt: Array
    deliver: Callable[[SampledPiece | BaseException], None]
    loop: asyncio.AbstractEventLoop
    cancelled: bool = False
    slot: int = -1
    cached: int = 0
    drawn: int = 0
    last_token: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Sampler:
    """Continuous batching over fixed slots.

    Args:
        shape: The model's sizes.
        slots: How many answers are decoded at once.
        context: Longest prompt plus answer, in tokens; at most the model's own limit.
    """

    def __init__(self, shape: ModelShape, *, slots: int = 64, context: int | None = None) -> None:
        self.shape = shape
        self.context = min(context or shape.max_position_embeddings, shape.max_position_embeddings)
        self._decoder = Decoder(shape, self.context)
        self._slots = Slots(shape, slots, self.context)
        self._versions: dict[str, SamplingWeights] = {}
        self._names: set[str] = set()  # every version there ever was: slots may still hold keys and values of it
        # the queue between the event loops and the thread; the condition guards it and the three lines below
        self._wake = threading.Condition()
        self._arrived: deque[_Call] = deque()
        self._forgotten: list[str] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        # the thread's own
        self._waiting: deque[_Call] = deque()
        self._joining: list[_Call] = []
        self._going: list[_Call] = []
        self._prefills_in_a_row = 0
        self._flushed_at = 0.0

    def publish(self, version: str, weights: SamplingWeights) -> None:
        """Make weights available under a name that is never used again for others.

        Raises:
            ValueError: The name was used before.
        """
        if version in self._names:
            raise ValueError(f"version {version!r} was published already; versions never change")
        self._names.add(version)
        self._versions[version] = weights

    def retire(self, version: str) -> None:
        """Refuse new calls for a version; those under way finish with it."""
        self._versions.pop(version, None)

    async def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """Draw an answer, piece by piece; closing the iterator cancels the call and frees its slot.

        Raises:
            ValueError: The request does not fit the context, or its version is not published.
            RuntimeError: The engine is closed, or its thread failed.
        """
        call, pieces = self._enter(request)
        try:
            while True:
                piece = await pieces.get()
                if isinstance(piece, BaseException):
                    raise RuntimeError(f"the sampling engine stopped: {piece}") from piece
                yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            call.cancelled = True

    def forget(self, session: str) -> None:
        """Let other sessions have this one's slots first."""
        with self._wake:
            self._forgotten.append(session)

    def close(self) -> None:
        """Stop the thread; calls under way fail."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    @property
    def busy_slots(self) -> int:
        """How many slots have a call now; a number to watch, it may be stale at once."""
        return self._slots.busy_count

    def _enter(self, request: SampleRequest) -> tuple[_Call, asyncio.Queue[SampledPiece | BaseException]]:
        weights = self._versions.get(request.version)
        if weights is None:
            raise ValueError(f"version {request.version!r} is not published")
        request.check(self.context)
        pieces: asyncio.Queue[SampledPiece | BaseException] = asyncio.Queue()
        prompt = np.asarray(request.prompt, np.int32)
        call = _Call(request, weights, prompt, pieces.put_nowait, asyncio.get_running_loop())
        with self._wake:
            if self._closed:
                raise RuntimeError("the sampling engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="osmosis-sampler", daemon=True)
                self._thread.start()
            self._arrived.append(call)
            self._wake.notify()
        return call, pieces

    # -- below: the engine's thread only ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._receive():
                self._drop_cancelled()
                self._admit()
                if self._joining and (not self._going or self._prefills_in_a_row < _PREFILLS_IN_A_ROW):
                    self._prefill()
                elif self._going:
                    self._decode()
        except BaseException as error:
            self._fail(error)
            raise
        self._fail(RuntimeError("it was closed"))

    def _receive(self) -> bool:
        """Take what arrived, waiting when there is nothing to do; False when the engine is closed."""
        with self._wake:
            while not (self._closed or self._arrived or self._waiting or self._joining or self._going):
                self._wake.wait()
            self._waiting.extend(self._arrived)
            self._arrived.clear()
            for session in self._forgotten:
                self._slots.forget(session)
            self._forgotten.clear()
            return not self._closed

    def _drop_cancelled(self) -> None:
        for calls in (self._joining, self._going):
            for call in [call for call in calls if call.cancelled]:
                calls.remove(call)
                self._slots.release(call.slot)

    def _admit(self) -> None:
        """Give slots to waiting calls, in order; one that begins like a joining one waits to copy its beginning."""
        held_back: list[_Call] = []
        while self._waiting:
            call = self._waiting.popleft()
            if call.cancelled:
                continue
            if any(_begin_alike(call, other) for other in self._joining):
                held_back.append(call)
                continue
            taken = self._slots.take(call.request.session, call.request.version, call.prompt)
            if taken is None:
                self._waiting.appendleft(call)
                break
            call.slot, call.cached = taken
            self._joining.append(call)
        self._waiting.extendleft(reversed(held_back))

    def _prefill(self) -> None:
        """Compute the prompts of joining calls of one version, up to the token budget."""
        self._prefills_in_a_row += 1
        version, budget = self._joining[0].weights, _PREFILL_TOKENS
        calls: list[_Call] = []
        chunks: list[Array] = []
        for call in self._joining:
            if budget == 0:
                break
            if call.weights is version:
                done = int(self._slots.lengths[call.slot])
                calls.append(call)
                chunks.append(call.prompt[done : done + budget])
                budget -= len(chunks[-1])
        rows = [call.slot for call in calls]
        starts = [int(self._slots.lengths[row]) for row in rows]
        logits = self._decoder.prefill(version, self._slots.cache, rows, starts, chunks)
        for row, chunk in zip(rows, chunks, strict=True):
            self._slots.append(row, chunk)
        complete = [i for i, call in enumerate(calls) if self._slots.lengths[call.slot] == len(call.prompt)]
        if complete:
            joined = [calls[i] for i in complete]
            self._joining = [call for call in self._joining if call not in joined]
            self._going = sorted(self._going + joined, key=lambda call: call.slot)
            self._draw(joined, logits[complete])

    def _decode(self) -> None:
        """Draw the next token of every call that is going, version by version."""
        self._prefills_in_a_row = 0
        versions: dict[int, list[_Call]] = {}
        for call in self._going:
            versions.setdefault(id(call.weights), []).append(call)
        for calls in versions.values():
            rows = np.array([call.slot for call in calls])
            tokens = np.array([call.last_token for call in calls])
            logits = self._decoder.decode(calls[0].weights, self._slots.cache, rows, self._slots.lengths[rows], tokens)
            self._slots.append_one(rows, tokens)
            self._draw(calls, logits)

    def _draw(self, calls: list[_Call], logits: Array) -> None:
        keys = np.array([call.request.noise_key for call in calls], np.uint64)
        positions = np.array([call.drawn for call in calls])
        tokens, logprobs = draw(logits, [call.request.params for call in calls], keys, positions)
        finished: list[tuple[_Call, FinishReason]] = []
        for call, token, logprob in zip(calls, tokens.tolist(), logprobs.tolist(), strict=True):
            call.ids.append(token)
            call.logprobs.append(logprob)
            call.drawn += 1
            call.last_token = token
            if token in call.request.stop_ids:
                finished.append((call, "stop"))
            elif call.drawn == call.request.max_tokens:
                finished.append((call, "length"))
        for call, _ in finished:
            self._going.remove(call)
            self._slots.release(call.slot)
        self._hand_over(finished)

    def _hand_over(self, finished: list[tuple[_Call, FinishReason]]) -> None:
        """Send finished answers at once and the others at intervals; one wake-up for each event loop."""
        now = time.monotonic()
        outgoing: list[tuple[_Call, FinishReason | None]] = list(finished)
        if now - self._flushed_at >= _FLUSH_INTERVAL_S:
            self._flushed_at = now
            outgoing += [(call, None) for call in self._going if call.ids]
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Call, SampledPiece]]] = {}
        for call, reason in outgoing:
            piece = SampledPiece(call.ids, call.logprobs, reason, call.cached)
            call.ids, call.logprobs = [], []
            by_loop.setdefault(call.loop, []).append((call, piece))
        for loop, pieces in by_loop.items():
            _send(loop, pieces)

    def _fail(self, error: BaseException) -> None:
        """End every call that has not finished."""
        with self._wake:
            self._closed = True
            calls = [*self._arrived, *self._waiting, *self._joining, *self._going]
        for call in calls:
            _send(call.loop, [(call, error)])


def _begin_alike(call: _Call, joining: _Call) -> bool:
    """Whether most of a call's prompt is being computed for another call."""
    shared = min(len(call.prompt), len(joining.prompt)) * 3 // 4
    return (
        shared >= _WORTH_WAITING
        and call.weights is joining.weights
        and joining.cached < shared
        and bool((call.prompt[:shared] == joining.prompt[:shared]).all())
    )


def _send(loop: asyncio.AbstractEventLoop, pieces: Sequence[tuple[_Call, SampledPiece | BaseException]]) -> None:
    def deliver() -> None:
        for call, piece in pieces:
            call.deliver(piece)

    try:
        loop.call_soon_threadsafe(deliver)
    except RuntimeError:  # the event loop is closed: nobody waits any more
        for call, _ in pieces:
            call.cancelled = True
