"""The torch engine's thread: operations in order, and between them batched generation.

Calls of one version that wait together become a wave: prompts padded on the left, one cache, a token a row at a time.
Several waves live at once and take turns; an operation on weights goes first. Leaves the arithmetic to
`engine.torch_model`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampler import FinishReason, SampledPiece, SampleRequest
from osmosis_trainer.engine.torch_model import TorchModel, draw

# Before a wave starts on an idle engine it waits this long for calls that come together.
_GATHER_S = 0.005
# Tokens of an answer that is still going are handed over at most this often.
_FLUSH_INTERVAL_S = 0.02


@dataclass(eq=False, slots=True)
class _Call:
    request: SampleRequest
    adapter: str | None
    loop: asyncio.AbstractEventLoop
    pieces: asyncio.Queue[SampledPiece | BaseException]
    cancelled: bool = False
    drawn: int = 0
    over: bool = False
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def send(self, piece: SampledPiece | BaseException) -> None:
        """Hand something to the caller's loop."""
        try:
            self.loop.call_soon_threadsafe(self.pieces.put_nowait, piece)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            self.cancelled = True


@dataclass(eq=False, slots=True)
class _Wave:
    version: str
    calls: list[_Call]
    cache: DynamicCache
    mask: Tensor  # [B, T]
    ids: Tensor  # [B, n]: what the next step reads

    def live(self) -> list[_Call]:
        return [call for call in self.calls if not (call.over or call.cancelled)]


class TorchSampler:
    """One thread over one model.

    Args:
        model: Used by this thread only.
        slots: How many answers are generated at once.
        context: Longest prompt plus answer.
    """

    def __init__(self, model: TorchModel, slots: int, context: int) -> None:
        self._model = model
        self._slots = slots
        self.context = context
        self.versions: dict[str, str | None] = {}  # to the adapter's name; None is the base
        # operations and calls come from event loops; the condition guards these three
        self._wake = threading.Condition()
        self._operations: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._waiting: deque[_Call] = deque()
        self._closed = False
        self._waves: list[_Wave] = []  # the thread's own
        self._flushed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="osmosis-torch", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Queue work for the thread, first come first served."""
        future: Future[Any] = Future()
        with self._wake:
            if self._closed:
                raise RuntimeError("the torch engine is closed")
            self._operations.append((work, future))
            self._wake.notify()
        return future

    async def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        """See `PolicyEngine.sample`."""
        if request.version not in self.versions:
            raise ValueError(f"version {request.version!r} is not published")
        request.check(self.context)
        call = _Call(request, self.versions[request.version], asyncio.get_running_loop(), asyncio.Queue())
        with self._wake:
            if self._closed:
                raise RuntimeError("the torch engine is closed")
            self._waiting.append(call)
            self._wake.notify()
        try:
            while True:
                piece = await call.pieces.get()
                if isinstance(piece, BaseException):
                    raise RuntimeError(f"the sampling engine stopped: {piece}") from piece
                yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            call.cancelled = True

    def in_use(self, version: str) -> bool:
        """Whether calls of a version are under way or waiting; asked on the thread."""
        with self._wake:
            waiting = any(call.request.version == version for call in self._waiting)
        return waiting or any(wave.version == version for wave in self._waves)

    def close(self) -> None:
        """Stop the thread; what is under way fails."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    # -- below: the thread only -------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: BaseException = RuntimeError("it was closed")
        try:
            while self._await_work():
                self._carry_out()
                self._start_wave()
                for wave in list(self._waves):
                    self._step(wave)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._fail(error)

    def _await_work(self) -> bool:
        """Wait until there is something to do; False at the end."""
        with self._wake:
            idle = not self._waves
            while not (self._closed or self._operations or self._waiting or self._waves):
                self._wake.wait()
            gather = idle and not self._operations and not self._closed
        if gather:  # calls that come together are to share a wave
            time.sleep(_GATHER_S)
        return not self._closed

    def _carry_out(self) -> None:
        """Do every operation that is queued."""
        while True:
            with self._wake:
                if not self._operations or self._closed:
                    return
                work, future = self._operations.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _start_wave(self) -> None:
        free = self._slots - sum(len(wave.live()) for wave in self._waves)
        calls: list[_Call] = []
        with self._wake:
            while self._waiting and len(calls) < free:
                call = self._waiting[0]
                if calls and call.request.version != calls[0].request.version:
                    break
                self._waiting.popleft()
                if not call.cancelled:
                    calls.append(call)
        if not calls:
            return
        longest = max(len(call.request.prompt) for call in calls)
        ids, mask = np.zeros((2, len(calls), longest), np.int64)
        for row, call in enumerate(calls):
            ids[row, longest - len(call.request.prompt) :] = call.request.prompt
            mask[row, longest - len(call.request.prompt) :] = 1
        device = self._model.device
        self._waves.append(
            _Wave(
                calls[0].request.version,
                calls,
                self._model.new_cache(),
                torch.from_numpy(mask).to(device),
                torch.from_numpy(ids).to(device),
            )
        )

    def _step(self, wave: _Wave) -> None:
        """One token for each answer of a wave."""
        live = wave.live()
        if not live:
            self._waves.remove(wave)
            return
        if len(live) <= len(wave.calls) // 2:
            self._shrink(wave, live)
        # rows whose answer ended go on until the wave shrinks; their positions must stay inside the model's
        positions = (wave.mask.cumsum(-1) - 1).clamp(0, self.context - 1)[:, -wave.ids.shape[1] :]
        with torch.no_grad(), self._model.using(wave.calls[0].adapter) as model:
            logits = self._model.next_logits(model, wave.ids, wave.mask, positions, wave.cache)
            keys = np.array([call.request.noise_key for call in wave.calls], np.uint64)
            at = np.array([call.drawn for call in wave.calls])
            drawn, logprobs = draw(logits, [call.request.params for call in wave.calls], keys, at)
        wave.ids = drawn[:, None]
        wave.mask = torch.cat([wave.mask, wave.mask.new_ones(len(wave.calls), 1)], -1)
        for call, token, logprob in zip(wave.calls, drawn.tolist(), logprobs.tolist(), strict=True):
            if not call.over:
                self._receive(call, token, logprob)
        now = time.monotonic()
        if now - self._flushed_at >= _FLUSH_INTERVAL_S:
            self._flushed_at = now
            for call in [call for w in self._waves for call in w.live() if call.ids]:
                call.send(SampledPiece(call.ids, call.logprobs))
                call.ids, call.logprobs = [], []

    @staticmethod
    def _receive(call: _Call, token: int, logprob: float) -> None:
        call.ids.append(token)
        call.logprobs.append(logprob)
        call.drawn += 1
        reason: FinishReason | None = None
        if token in call.request.stop_ids:
            reason = "stop"
        elif call.drawn == call.request.max_tokens:
            reason = "length"
        if reason is not None:
            call.over = True
            call.send(SampledPiece(call.ids, call.logprobs, reason))

    @staticmethod
    def _shrink(wave: _Wave, live: list[_Call]) -> None:
        """Drop the rows of answers that ended."""
        rows = torch.tensor([row for row, call in enumerate(wave.calls) if call in live], device=wave.ids.device)
        wave.calls, wave.ids, wave.mask = live, wave.ids[rows], wave.mask[rows]
        wave.cache.batch_select_indices(rows)

    def _fail(self, error: BaseException) -> None:
        with self._wake:
            self._closed = True
            calls = [*self._waiting, *(call for wave in self._waves for call in wave.live())]
            operations = list(self._operations)
            self._operations.clear()
        for call in calls:
            call.send(error)
        for _, future in operations:
            future.cancel()
