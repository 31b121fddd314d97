"""The policy for every provider we do not speak ourselves: LiteLLM, imported at the first call and kept quiet.

Owns the import (seconds of CPU), LiteLLM's switches, and the mapping of its errors. Nothing else imports LiteLLM.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import warnings
from collections.abc import AsyncIterator, Mapping
from typing import Any

from osmosis_ai.extras import optional_imports
from osmosis_ai.gateway.chat_wire import provider_error, read_usage, retry_after_s
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, PolicyError, PolicyErrorKind, Usage
from osmosis_ai.gateway.providers import LITELLM_KEYS, first_of
from osmosis_ai.gateway.scrub import Scrubber

_NOISE = re.compile(
    r"\A(?:(?:litellm\.)?\w+(?:Error|Exception): |litellm\.Timeout: )+|\s*Handle with `litellm\.\w+`\.?|\s*ssl:<[^>]*>"
)
_METADATA_FORWARDED = frozenset({"azure"})
_KINDS: tuple[tuple[str, PolicyErrorKind], ...] = (
    # the first name found among the exception's classes counts
    ("AuthenticationError", "authentication"),
    ("PermissionDeniedError", "authentication"),
    ("BudgetExceededError", "quota"),
    ("NotFoundError", "not_found"),
    ("RateLimitError", "rate_limit"),
    ("Timeout", "timeout"),
    ("BadRequestError", "bad_request"),
    ("UnprocessableEntityError", "bad_request"),
    ("UnsupportedParamsError", "bad_request"),
    ("APIResponseValidationError", "protocol"),
    ("JSONDecodeError", "protocol"),
)


def import_litellm() -> Any:
    """LiteLLM, configured to download nothing, log nothing and phone nobody.

    Raises:
        ModuleNotFoundError: The extra is not installed; the message says how to install it.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ.setdefault("LITELLM_LOG", "CRITICAL")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "litellm"):
        _silence(name)
    for module in (r"pydantic\.", r"litellm\b"):  # its models warn while they load and while they answer
        warnings.filterwarnings("ignore", module=module)
    with optional_imports("rubric", "This model provider"):
        litellm: Any = importlib.import_module("litellm")
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "litellm"):
        _silence(name)
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.set_verbose = False
    litellm.drop_params = False
    litellm.turn_off_message_logging = True
    return litellm


class LiteLLMPolicy:
    """Chat completions through LiteLLM.

    Args:
        model_path: LiteLLM's name of the model, with its provider prefix.
        environ: Keys; LiteLLM itself also reads the process environment.
        api_key: Used instead of any of them.
        timeout_s: Passed on as the request's time limit.
    """

    def __init__(
        self, model_path: str, environ: Mapping[str, str], *, api_key: str | None = None, timeout_s: float = 600.0
    ) -> None:
        self._model_path = model_path
        self._prefix = model_path.partition("/")[0]
        self._environ = environ
        self._api_key = api_key
        self._scrub = Scrubber({**os.environ, **environ, "api_key": api_key or ""})
        self._timeout_s = timeout_s
        self._litellm: Any = None

    @property
    def model(self) -> str:
        """The model as the run's config names it."""
        return self._model_path

    async def chat(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer one call.

        Raises:
            PolicyError: No (whole) answer can be had.
        """
        arguments = self._arguments(request)
        try:
            litellm = await self.load()
        except ModuleNotFoundError as error:
            raise PolicyError(str(error), kind="not_found", status=501) from error
        try:
            reply = await litellm.acompletion(**arguments)
            if not request.stream:
                yield self._whole(litellm, reply)
                return
            finished = spoke = False
            try:
                async for chunk in reply:
                    piece = self._piece(chunk)
                    finished = finished or piece.finish_reason is not None
                    spoke = spoke or piece.usage is not None or any(piece.delta.values())
                    yield piece
            finally:
                close = getattr(reply, "aclose", None)
                if close is not None:
                    await close()
            if not finished:
                raise PolicyError("the provider's stream was cut before the answer was whole", kind="unavailable")
            if not spoke:  # LiteLLM ends a stream that was none with an empty answer
                raise PolicyError("the provider's stream holds no answer", kind="protocol")
        except PolicyError:
            raise
        except Exception as error:
            raise self._policy_error(error) from error

    async def preflight(self) -> None:
        """Ask for one token. A rate limit passes.

        Raises:
            PolicyError: The provider cannot be reached, refuses the key or does not have the model.
        """
        request = ChatRequest([{"role": "user", "content": "hi"}], None, {"max_tokens": 1}, stream=False)
        try:
            async for _ in self.chat(request):
                return
        except PolicyError as error:
            if error.kind != "rate_limit" and not (error.kind == "bad_request" and "max_tokens" in str(error)):
                raise

    async def close_session(self, rollout_id: str) -> None:
        """Nothing is kept between calls."""

    async def aclose(self) -> None:
        """Close LiteLLM's cached connections."""
        close = getattr(self._litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    async def load(self) -> Any:
        """Import LiteLLM now instead of at the first call.

        Raises:
            ModuleNotFoundError: It is not installed; the message says how to install it.
        """
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(import_litellm)  # seconds of CPU: not on the event loop
        return self._litellm

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        names = LITELLM_KEYS.get(self._prefix)
        key = self._api_key or (first_of(self._environ, names) if names else None)
        if names and key is None:
            raise PolicyError(
                f"the API key for model {self._model_path} is missing: set {names[0]} in the environment "
                "or in the run's secrets",
                kind="authentication",
                status=401,
            )
        params = dict(request.params)
        metadata = params.pop("metadata", None)
        if metadata is not None:
            if self._prefix in _METADATA_FORWARDED:
                params["extra_body"] = {"metadata": metadata}
            elif self._prefix == "anthropic" and isinstance(metadata, dict) and set(metadata) <= {"user_id"}:
                params["metadata"] = metadata
            else:
                allowed = "only metadata.user_id is" if self._prefix == "anthropic" else "metadata is not"
                raise PolicyError(
                    f"{allowed} supported by provider {self._prefix}: leave the rest out",
                    kind="bad_request",
                    status=400,
                    type="invalid_request_error",
                )
        arguments: dict[str, Any] = {
            **params,
            "model": self._model_path,
            "messages": [dict(message) for message in request.messages],
            "stream": request.stream,
            "timeout": self._timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": False,
        }
        if request.tools is not None:
            arguments["tools"] = [dict(tool) for tool in request.tools]
        if request.stream:
            arguments["stream_options"] = {"include_usage": True}
        if key is not None:
            arguments["api_key"] = key
        return arguments

    def _whole(self, litellm: Any, reply: Any) -> ChatDelta:
        choices = getattr(reply, "choices", None)
        if not choices:
            raise PolicyError("the provider's answer has no choices", kind="protocol")
        delta = _plain(choices[0].message)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            call["index"] = number
        usage = _usage(reply)
        return ChatDelta(delta, choices[0].finish_reason or "stop", usage, self._cost(litellm, usage))

    def _piece(self, chunk: Any) -> ChatDelta:
        usage = _usage(chunk)
        cost = self._cost(self._litellm, usage)
        choices = getattr(chunk, "choices", None)
        if not choices:
            return ChatDelta(usage=usage, cost_usd=cost)
        return ChatDelta(_plain(choices[0].delta), getattr(choices[0], "finish_reason", None), usage, cost)

    def _cost(self, litellm: Any, usage: Any) -> float | None:
        """The price by LiteLLM's own bundled table, where it lists the model; None otherwise."""
        if usage is None:
            return None
        _, _, name = self._model_path.partition("/")
        row = litellm.model_cost.get(self._model_path) or litellm.model_cost.get(name)
        if not row or not row.get("input_cost_per_token") or any("above" in field for field in row):
            return None  # unlisted, or dearer for long prompts by rules of its own
        cached = usage.cached_prompt_tokens or 0
        fresh_price = row["input_cost_per_token"]
        cached_price = row.get("cache_read_input_token_cost") or fresh_price
        prompt = (usage.prompt_tokens - cached) * fresh_price + cached * cached_price
        return prompt + usage.completion_tokens * (row.get("output_cost_per_token") or 0.0)

    def _policy_error(self, error: Exception) -> PolicyError:
        names = [base.__name__ for base in type(error).__mro__]
        text = str(getattr(error, "message", None) or error).partition(" Traceback (most recent call last)")[0]
        # "litellm.RateLimitError: RateLimitError: AnthropicException - ..." says the same thing three times
        text = self._scrub.line(_NOISE.sub("", text.partition("\nTraceback ")[0]) or type(error).__name__)
        status = getattr(error, "status_code", None)
        response = getattr(error, "response", None)
        wait = retry_after_s(getattr(response, "headers", None) or {})
        code = getattr(error, "code", None)
        code = code if isinstance(code, str) and not code.isdigit() else None
        for name, kind in _KINDS:
            if name in names:
                if code == "insufficient_quota" or "insufficient_quota" in text:
                    kind = "quota"
                told = status if kind != "timeout" and isinstance(status, int) and 400 <= status < 500 else 502
                return PolicyError(text, kind=kind, status=told, provider_code=code, retry_after_s=wait)
        if isinstance(status, int) and 400 <= status < 600:
            return provider_error(text, status, code=code, retry_after_s=wait)
        return PolicyError(text, kind="unavailable")


def _usage(reply: Any) -> Usage | None:
    """LiteLLM's counts; it writes zeroes where the provider reported none."""
    usage = read_usage(_plain(getattr(reply, "usage", None)))
    return None if usage is None or usage.total_tokens == 0 else usage


def _plain(value: Any) -> dict[str, Any]:
    """A pydantic object of LiteLLM's as a dict without nulls."""
    if value is None:
        return {}
    dump = getattr(value, "model_dump", None)
    plain = dump(exclude_none=True) if dump is not None else dict(value)
    plain.pop("provider_specific_fields", None)
    return plain


def _silence(name: str) -> None:
    logger = logging.getLogger(name)
    logger.handlers[:] = [logging.NullHandler()]
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
