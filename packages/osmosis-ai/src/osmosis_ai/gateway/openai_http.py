"""The policy for OpenAI-compatible endpoints: plain HTTP, no provider SDK.

Owns the request body, streams and preflight. `http_pool` holds the connections, `chat_wire` and `openai_responses` read
the answers, the gateway retries and paces.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote, urlsplit

from osmosis_ai.gateway import openai_responses
from osmosis_ai.gateway.chat_wire import read_chunk, read_completion, read_error
from osmosis_ai.gateway.http_pool import HttpPool
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, PolicyError
from osmosis_ai.gateway.providers import Provider
from osmosis_ai.gateway.scrub import Scrubber
from osmosis_ai.gateway.sse import EventReader

if TYPE_CHECKING:
    import httpx

type WireFormat = Literal["chat", "responses"]

CONNECT_TIMEOUT_S = 20.0
PREFLIGHT_TIMEOUT_S = 30.0
_USAGE = "stream_options"
_REASONING = "encrypted"
_MAX_ERROR_BYTES = 64 * 1024
_TLS_WORDS = ("certificate", "SSL", "TLS")


class OpenAICompatiblePolicy:
    """Chat completions (or, on OpenAI's own endpoint, responses) over HTTP.

    Args:
        model_path: The model as the run's config names it.
        model: The model as the provider names it.
        provider: Its row in the table.
        base_url: Where to call, without a trailing slash; None when no variable says it.
        api_key: Sent as bearer when there is one.
        environ: The variables whose secret values must not show in errors.
        wire: Which of the two APIs the endpoint is spoken to with.
        read_timeout_s: The longest silence within an answer.
        headers: Sent with every call.
    """

    def __init__(
        self,
        model_path: str,
        model: str,
        provider: Provider,
        *,
        base_url: str | None,
        api_key: str | None,
        environ: Mapping[str, str],
        wire: WireFormat = "chat",
        read_timeout_s: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model_path = model_path
        self._name = model
        self._provider = provider
        self._base = base_url
        self._key = api_key
        self._scrub = Scrubber({**environ, "api_key": api_key or ""})
        self.wire: WireFormat = wire
        self._read_timeout_s = read_timeout_s
        self._headers = dict(headers or {})
        # what we add for our own sake, under the words by which a refusal names it
        self._extras = {_REASONING} if wire == "responses" else ({_USAGE} if provider.stream_usage else set[str]())
        self._pool: HttpPool | None = None

    @property
    def model(self) -> str:
        """The model as the run's config names it."""
        return self._model_path

    @property
    def base_url(self) -> str | None:
        """Where calls go."""
        return self._base

    # -- calls

    async def chat(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer one call.

        Raises:
            PolicyError: No (whole) answer can be had.
        """
        path = "/responses" if self.wire == "responses" else "/chat/completions"
        while True:
            extras = frozenset(self._extras)
            async with self._call("POST", path, self._body(request, extras)) as response:
                if response.status_code != 400:
                    async for piece in self._answer(response, request):
                        yield piece
                    return
                error = await self._error(response)
            refused = {extra for extra in extras if extra in str(error).lower()}
            if not refused:
                raise error
            self._extras -= refused  # ours, not the caller's: asked without from now on

    def _body(self, request: ChatRequest, extras: frozenset[str]) -> bytes:
        if request.params.get("metadata") is not None and not self._provider.metadata:
            self._refuse(f"metadata is not supported by provider {self._provider.prefix}: leave it out")
        if self.wire == "responses":
            body = openai_responses.request_body(self._name, request, keep_reasoning=_REASONING in extras)
        else:
            body = {"model": self._name, "messages": request.messages, **request.params}
            if request.tools is not None:
                body["tools"] = request.tools
            for name, value in self._provider.extra_body:
                body.setdefault(name, value)
            if request.stream:
                body["stream"] = True
                if _USAGE in extras:
                    body["stream_options"] = {"include_usage": True}
        try:
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            self._refuse(f"the request cannot be written as JSON: {error}")

    async def _answer(self, response: httpx.Response, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        if response.status_code != 200:
            raise await self._error(response)
        if "text/event-stream" in response.headers.get("content-type", ""):
            async for piece in self._stream(response):
                yield piece
            return
        reply = self._json(await response.aread(), response)
        with self._reading():
            if self.wire == "responses":
                piece = openai_responses.read_response(reply)
            else:
                piece = read_completion(reply, reports_cost=self._provider.reports_cost)
        yield piece

    async def _stream(self, response: httpx.Response) -> AsyncIterator[ChatDelta]:
        reader = EventReader()
        responses = openai_responses.StreamReader() if self.wire == "responses" else None
        finished = False
        slices = response.aiter_bytes()
        async for data in slices:
            try:
                events = reader.feed(data)
            except ValueError as error:
                raise PolicyError(str(error), kind="protocol") from None
            for event in events:
                if event.data == "[DONE]":
                    await _drain(slices)
                    return
                for piece in self._pieces(event.data, responses):
                    finished = finished or piece.finish_reason is not None
                    yield piece
        if not finished:
            raise PolicyError("the provider's stream was cut before the answer was whole", kind="unavailable")

    def _pieces(self, data: str, responses: openai_responses.StreamReader | None) -> Iterable[ChatDelta]:
        try:
            chunk = json.loads(data)
        except ValueError:
            text = self._scrub.line(f"the provider's stream has a chunk that is not JSON: {data[:200]}")
            raise PolicyError(text, kind="protocol") from None
        with self._reading():
            if responses is not None:
                return responses.read(chunk)
            piece = read_chunk(chunk, reports_cost=self._provider.reports_cost)
            return () if piece is None else (piece,)
        return ()

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Whatever is wrong with a provider's answer is a policy error without secrets."""
        try:
            yield
        except PolicyError as error:
            raise self._scrubbed(error) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"the provider's answer has a shape that no chat answer has ({error})"
            raise PolicyError(self._scrub.line(text), kind="protocol") from error

    # -- preflight

    async def preflight(self) -> None:
        """Ask for the model's entry, which is free; where there is none, for one token.

        A rate limit passes: the run will wait for it. At most one call is paid for.

        Raises:
            PolicyError: The endpoint cannot be reached, refuses the key or does not have the model.
        """
        timeout = PREFLIGHT_TIMEOUT_S
        official = self.wire == "responses"
        async with self._call("GET", f"/models/{quote(self._name, safe='')}", None, timeout_s=timeout) as response:
            status = response.status_code
            page = "json" not in response.headers.get("content-type", "json")
            if status == 429 or (status == 200 and not page):
                return
            error = await self._error(response)
            if status in (401, 403, 402) or (official and status == 404):
                raise error
        await self._probe()

    async def _probe(self) -> None:
        request = ChatRequest([{"role": "user", "content": "hi"}], None, {"max_tokens": 1}, stream=False)
        if self.wire == "responses":
            request = ChatRequest(request.messages, None, {"max_tokens": 16}, stream=False)
        try:
            async for _ in self.chat(request):
                return
        except PolicyError as error:
            # a model that only wants another name or a larger limit is there and answers
            if error.kind == "rate_limit" or (error.kind == "bad_request" and "max_" in str(error)):
                return
            raise

    async def close_session(self, rollout_id: str) -> None:
        """Nothing is kept between calls."""

    async def aclose(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    # -- HTTP

    @asynccontextmanager
    async def _call(
        self, method: str, path: str, body: bytes | None, *, timeout_s: float | None = None
    ) -> AsyncGenerator[httpx.Response]:
        """One exchange; transport failures become policy errors wherever in the body they strike."""
        import httpx

        base = self._required_base()
        url = f"{base}{path}"
        headers = dict(self._headers)
        if body is not None:
            headers["content-type"] = "application/json"
        if self._key is not None:
            if not (self._key.isascii() and self._key.isprintable()):
                raise self._key_error("holds characters that no key has (line ends, letters with accents)")
            headers["authorization"] = f"Bearer {self._key}"
        elif self._provider.key_needed and self._base == self._provider.base:
            raise self._key_error("is missing")
        timeout = httpx.Timeout(timeout_s or self._read_timeout_s, connect=CONNECT_TIMEOUT_S, pool=None)
        if self._pool is None:
            self._pool = HttpPool(base)
        try:
            with self._pool.client() as client:
                request = client.build_request(method, url, content=body, headers=headers, timeout=timeout)
                response = await client.send(request, stream=True)
                try:
                    yield response
                finally:
                    await response.aclose()
        except httpx.ConnectError as error:
            hint = " (the certificate is not trusted)" if any(w in str(error) for w in _TLS_WORDS) else ""
            raise self._transport_error(f"cannot connect to {self._base}{hint}: {error}") from error
        except httpx.ConnectTimeout as error:
            raise self._transport_error(f"cannot connect to {self._base} within {CONNECT_TIMEOUT_S:g} s") from error
        except httpx.TimeoutException as error:
            silent = timeout_s or self._read_timeout_s
            text = f"{self._base} sent nothing for {silent:g} s"
            raise PolicyError(self._scrub.line(text), kind="timeout") from error
        except httpx.TransportError as error:
            raise self._transport_error(
                f"the connection to {self._base} broke: {error or type(error).__name__}"
            ) from error
        except (httpx.InvalidURL, httpx.DecodingError, UnicodeEncodeError) as error:
            raise PolicyError(self._scrub.line(f"{url}: {error}"), kind="protocol") from error

    def _required_base(self) -> str:
        if self._base is None:
            names = " or ".join(self._provider.base_variables)
            raise PolicyError(
                f"model {self._model_path} needs the endpoint's base URL: set {names}, for example http://127.0.0.1:8000/v1",
                kind="authentication",
                status=400,
            )
        if urlsplit(self._base).scheme not in ("http", "https"):
            names = " or ".join(self._provider.base_variables)
            text = f"the base URL of model {self._model_path} is {self._base!r}: write http:// or https:// in {names}"
            raise PolicyError(self._scrub.line(text), kind="not_found", status=400)
        return self._base

    def _key_error(self, what: str) -> PolicyError:
        names = " or ".join(self._provider.key_variables)
        return PolicyError(
            f"the API key for model {self._model_path} {what}: set {names} in the environment or in the run's secrets",
            kind="authentication",
            status=401,
        )

    async def _error(self, response: httpx.Response) -> PolicyError:
        raw = b""
        async for part in response.aiter_bytes():
            raw += part
            if len(raw) > _MAX_ERROR_BYTES:
                break
        if 300 <= response.status_code < 400:
            text = f"{self._base} redirects to {response.headers.get('location')}: give that address as the base URL"
            return PolicyError(self._scrub.line(text), kind="not_found", status=404)
        text = raw.decode("utf-8", "replace")
        error = read_error(response.status_code, text, response.headers)
        return self._scrubbed(error, self._place(error, response))

    def _place(self, error: PolicyError, response: httpx.Response) -> str:
        """Where to mend what no later call can mend by itself."""
        if error.kind == "authentication":
            return f" (from {self._base}; the key is read from {' or '.join(self._provider.key_variables)})"
        if error.kind == "not_found":
            return f" (model {self._name!r} at {response.url})"
        return f" (from {self._base})" if error.kind == "quota" else ""

    def _json(self, raw: bytes, response: httpx.Response) -> Any:
        try:
            return json.loads(raw)
        except ValueError:
            kind = response.headers.get("content-type", "no content type")
            shown = "an HTML page" if b"<html" in raw[:2000].lower() else raw[:200].decode("utf-8", "replace")
            text = f"{self._base} answered 200 with {kind} that is not JSON: {shown}; is it the base of an OpenAI API?"
            raise PolicyError(self._scrub.line(text), kind="protocol") from None

    def _scrubbed(self, error: PolicyError, place: str = "") -> PolicyError:
        return PolicyError(
            self._scrub.line(f"{error}{place}"),
            kind=error.kind,
            status=error.status,
            type=error.type,
            provider_code=error.provider_code,
            retry_after_s=error.retry_after_s,
        )

    def _transport_error(self, text: str) -> PolicyError:
        return PolicyError(self._scrub.line(text), kind="unavailable")

    def _refuse(self, message: str) -> NoReturn:
        raise PolicyError(message, kind="bad_request", status=400, type="invalid_request_error") from None


async def _drain(slices: AsyncIterator[bytes]) -> None:
    """Read the end of a body that is over in substance, so that its connection can serve again."""
    try:
        async with asyncio.timeout(0.25):
            async for _ in slices:
                pass
    except TimeoutError:
        pass  # it is closed instead
