"""An OpenAI-compatible model server for tests and benchmarks: real sockets, scripted answers, little CPU.

Owns: `/v1/chat/completions`, `/v1/responses`, `/v1/models`, what they answer and what was asked. Knows nothing of ours.

In a test:

    with StubProvider() as stub:                       # a thread with its own loop
        environ = {"OPENAI_BASE_URL": stub.base_url, "OPENAI_API_KEY": "sk-stub"}
        stub.script(Behaviour("status", status=429, retry_after="1"), Behaviour("text", text="hi"))
        ...                                            # scripted behaviours first, then what the model name says
        assert stub.requests[0].body["model"] == "text"

On a command line: `python tests/support/stub_provider.py --port 9999` (prints its base URL, runs until killed).

The model name selects the behaviour when nothing is scripted; `name:argument` hands it an argument:

    text, text:hello          that text (default "Hello from the stub.")
    echo                      the last user message
    multiply                  calls the first offered tool with the two numbers of the question, then "#### <result>";
                              without tools answers "#### <product>" at once
    multiply:wrong-3          the same, but its final answer is wrong when the first number divides by 3
    tool, tool:NAME           one call of that tool (or the first offered) with {}, then "done"
    length                    finish_reason "length"
    status:503                that HTTP status with an OpenAI error body
    flaky:429, flaky:500      each distinct conversation fails once so, then is answered as `multiply`
    html                      a page of HTML, status 200
    error-200                 an error object with status 200
    null-usage, null-content, no-choices, no-index, trailing-usage, cut, garbage
    reasoning                 a tool call with reasoning_content, then "done" if the reasoning came back, else "lost"
    hang                      never answers;  slow, slow:0.1  seconds between pieces
    anything else             as `multiply` when tools are offered, else as `text`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

DEFAULT_TEXT = "Hello from the stub."


@dataclass(frozen=True)
class Behaviour:
    """One scripted answer. `kind` is a word of the module's list; `text` is its argument."""

    kind: str
    text: str = ""
    status: int = 500
    retry_after: str | None = None
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class RecordedRequest:
    """What a client sent; `body` is the parsed JSON, or the raw bytes when it is none."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float


@dataclass
class Answer:
    """What the model says: the pieces of one chat message, and how the wire is to be spoiled."""

    text: str | None = None
    tool_calls: list[tuple[str, str]] = field(default_factory=list)
    reasoning: str | None = None
    finish_reason: str | None = None
    usage: bool = True
    trailing_usage: bool = False
    index: bool = True
    choices: bool = True
    cut: bool = False
    garbage: bool = False
    pause_s: float = 0.0


class StubProvider:
    """The server, in a thread of its own. Use as a context manager, or `start()` and `close()`.

    Attributes:
        base_url: `http://127.0.0.1:PORT/v1`.
        requests: Every request in order (not kept with `record=False`).
        aborted: How many answers the client hung up on.
        open_connections: Sockets open now.
    """

    def __init__(
        self, port: int = 0, *, host: str = "127.0.0.1", api_key: str | None = None, record: bool = True
    ) -> None:
        self.host, self.port, self.api_key, self.record = host, port, api_key, record
        self.requests: list[RecordedRequest] = []
        self.aborted = 0
        self.served = 0
        self.open_connections = 0
        self.models = ["text", "echo", "multiply"]
        self.strict_models = False
        self.models_page = False
        self.failed_once: set[int] = set()
        self._scripted: deque[Behaviour] = deque()
        self._answering: Callable[[Mapping[str, Any]], Behaviour | None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    def environ(self) -> dict[str, str]:
        """The variables that send `openai/*` models here."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": self.api_key or "sk-stub-key"}

    def script(self, *behaviours: Behaviour) -> None:
        """The next completions answer so, one each, before model names count again."""
        self._scripted.extend(behaviours)

    def answer_with(self, choose: Callable[[Mapping[str, Any]], Behaviour | None] | None) -> None:
        """Choose by request body; None falls back to the model name."""
        self._answering = choose

    @property
    def completions(self) -> list[RecordedRequest]:
        """The recorded chat and responses calls."""
        return [r for r in self.requests if r.method == "POST"]

    # -- life cycle

    def start(self) -> Self:
        ready = threading.Event()

        def run() -> None:
            loop = asyncio.new_event_loop()
            self._loop = loop
            loop.run_until_complete(self._listen())
            ready.set()
            loop.run_forever()
            loop.run_until_complete(self._shut())
            loop.close()

        self._thread = threading.Thread(target=run, name="stub-provider", daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the stub provider did not start")
        return self

    def close(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connection, self.host, self.port, limit=1 << 26, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self) -> None:
        """Serve in the running loop until cancelled."""
        await self._listen()
        await asyncio.Event().wait()

    # -- HTTP

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.open_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request_line, *lines = head.decode("latin-1").split("\r\n")
                method, path, _ = request_line.split(" ", 2)
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self._handle(method, path.partition("?")[0], headers, raw, writer, reader):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # cancelled only when the stub closes
        finally:
            self._writers.discard(writer)
            self.open_connections -= 1
            writer.close()

    async def _handle(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        raw: bytes,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> bool:
        try:
            body: Any = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        if self.record:
            self.requests.append(RecordedRequest(method, path, headers, body, time.monotonic()))
        self.served += 1
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            return await send_json(writer, 401, error_body("Incorrect API key provided", "invalid_api_key"))
        if method == "GET" and self.models_page:
            return await send(writer, 200, b"<html>Welcome</html>", "text/html")
        if method == "GET" and path.endswith("/models"):
            return await send_json(
                writer, 200, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.models]}
            )
        if method == "GET" and "/models/" in path:
            name = path.split("/models/", 1)[1]
            if self.strict_models and name not in self.models:
                return await send_json(writer, 404, error_body(f"The model '{name}' does not exist", "model_not_found"))
            return await send_json(writer, 200, {"id": name, "object": "model"})
        if method != "POST" or not path.endswith(("/chat/completions", "/responses")):
            return await send_json(writer, 404, error_body(f"Invalid URL ({method} {path})", None))
        if not isinstance(body, dict):
            return await send_json(writer, 400, error_body("We could not parse the JSON body of your request.", None))
        behaviour = self._choose(body)
        return await self._perform(behaviour, body, path, writer, reader)

    def _choose(self, body: dict[str, Any]) -> Behaviour:
        if self._scripted:
            return self._scripted.popleft()
        if self._answering is not None and (chosen := self._answering(body)) is not None:
            return chosen
        name, _, argument = str(body.get("model", "")).rpartition("/")[2].partition(":")
        if name == "status":
            return Behaviour("status", status=int(argument))
        if name == "flaky":
            key = hash(json.dumps(body.get("messages") or body.get("input"), sort_keys=True))
            if key in self.failed_once:
                return Behaviour("multiply")
            self.failed_once.add(key)
            return Behaviour("status", status=int(argument or 429), retry_after="0.05")
        if name == "slow":
            return Behaviour("slow", delay_s=float(argument or 0.05))
        return Behaviour(name, text=argument)

    async def _perform(
        self,
        behaviour: Behaviour,
        body: dict[str, Any],
        path: str,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> bool:
        kind = behaviour.kind
        if kind == "hang":
            while not reader.at_eof():
                await asyncio.sleep(0.02)
            self.aborted += 1
            return False
        if behaviour.delay_s and kind != "slow":
            await asyncio.sleep(behaviour.delay_s)
        if kind == "raw":
            return await send_json(writer, behaviour.status, behaviour.body, behaviour.headers)
        if kind == "status":
            headers = dict(behaviour.headers)
            if behaviour.retry_after is not None:
                headers["Retry-After"] = behaviour.retry_after
            reply = behaviour.body or error_body(
                behaviour.text or f"stub error {behaviour.status}", f"stub_{behaviour.status}"
            )
            return await send_json(writer, behaviour.status, reply, headers)
        if kind == "html":
            return await send(
                writer,
                behaviour.status if behaviour.status != 500 else 200,
                b"<!doctype html><html><body>Bad gateway</body></html>",
                "text/html",
            )
        if kind == "error-200":
            return await send_json(writer, 200, error_body(behaviour.text or "upstream failed", "upstream_error"))
        is_responses = path.endswith("/responses")
        messages = chat_messages(body["input"]) if is_responses else body.get("messages") or []
        answer = make_answer(behaviour, messages, offered_tools(body))
        if behaviour.kind == "slow":
            answer.pause_s = behaviour.delay_s
        if is_responses:
            return await send_responses(writer, body, answer)
        if body.get("stream"):
            sent = await send_stream(writer, body, messages, answer, reader)
            self.aborted += not sent and not answer.cut
            return sent
        if answer.pause_s:
            await asyncio.sleep(answer.pause_s * 5)
        return await send_completion(writer, body, messages, answer)


# -- what the model says


def make_answer(behaviour: Behaviour, messages: list[Any], tools: list[dict[str, Any]]) -> Answer:
    """The message a behaviour gives to a conversation."""
    kind, text = behaviour.kind, behaviour.text
    last = messages[-1] if messages else {}
    if kind == "text":
        return Answer(text or DEFAULT_TEXT)
    if kind == "echo":
        return Answer(last_user_text(messages))
    if kind == "tool":
        if last.get("role") == "tool":
            return Answer("done")
        name = text or (tools[0]["name"] if tools else "tool")
        return Answer(None, [(name, "{}")])
    if kind == "tool-call":
        name, _, arguments = text.partition(" ")
        return Answer(None, [(name, arguments)])
    if kind == "reasoning":
        if last.get("role") == "tool":
            assistant = next(m for m in reversed(messages) if m.get("role") == "assistant")
            return Answer("done" if assistant.get("reasoning_content") == "Let me think." else "lost")
        return Answer(None, [(tools[0]["name"] if tools else "tool", "{}")], reasoning="Let me think.")
    spoiled = {
        "length": {"finish_reason": "length"},
        "null-usage": {"usage": False},
        "trailing-usage": {"trailing_usage": True},
        "no-choices": {"choices": False},
        "cut": {"cut": True},
        "garbage": {"garbage": True},
    }
    if kind in spoiled:
        return Answer(text or DEFAULT_TEXT, **spoiled[kind])
    if kind == "null-content":
        return Answer(None)
    if kind == "no-index":
        if last.get("role") == "tool":
            return Answer("done")
        return Answer(None, [("first", '{"a": 1}'), ("second", '{"b": 2}')], index=False)
    if kind == "slow":
        return Answer(text or DEFAULT_TEXT)
    if kind == "multiply" or tools or text.startswith("wrong"):
        return multiply(messages, tools, text)
    return Answer(text or DEFAULT_TEXT)


def multiply(messages: list[Any], tools: list[dict[str, Any]], argument: str) -> Answer:
    """The multiply agent: a tool call from the two numbers of the question, then the final answer."""
    numbers = [int(n) for n in re.findall(r"-?\d+", last_user_text(messages))]
    a, b = (numbers[-2], numbers[-1]) if len(numbers) >= 2 else (0, 0)
    last = messages[-1] if messages else {}
    if tools and last.get("role") != "tool":
        names = list((tools[0].get("parameters") or {}).get("properties") or {"a": 0, "b": 0})[:2]
        return Answer(None, [(tools[0]["name"], json.dumps(dict(zip(names, (a, b), strict=False))))])
    result = str(a * b)
    if last.get("role") == "tool" and (found := re.findall(r"-?\d+(?:\.\d+)?", text_of(last.get("content")))):
        result = found[-1].removesuffix(".0")
    wrong = re.fullmatch(r"wrong-(\d+)", argument)
    if wrong and a % int(wrong[1]) == 0:
        result += "1"
    return Answer(f"The result is {result}.\n#### {result}")


def last_user_text(messages: list[Any]) -> str:
    return next((text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(p.get("text", "")) for p in content or [] if isinstance(p, dict))


def offered_tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [t.get("function", t) for t in body.get("tools") or []]


def chat_messages(items: Any) -> list[dict[str, Any]]:
    """Responses input items as chat messages, as far as the behaviours need."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[dict[str, Any]] = []
    for item in items:
        match item.get("type", "message"):
            case "message":
                messages.append({"role": item["role"], "content": item["content"]})
            case "function_call":
                messages.append({"role": "assistant", "content": None, "tool_calls": [item]})
            case "function_call_output":
                messages.append({"role": "tool", "content": item["output"]})
    return messages


def usage_of(messages: list[Any], answer: Answer) -> dict[str, int]:
    prompt = sum(len(text_of(m.get("content")).split()) + 4 for m in messages)
    completion = len((answer.text or "").split()) + sum(len(a) // 4 + 2 for _, a in answer.tool_calls)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def finish_of(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")


def call_id(messages: list[Any], index: int) -> str:
    return f"call_{len(messages)}_{index}"


# -- how it is sent


async def send(
    writer: asyncio.StreamWriter, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
) -> bool:
    extra = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
    head = f"HTTP/1.1 {status} Stub\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return True


async def send_json(
    writer: asyncio.StreamWriter, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> bool:
    return await send(writer, status, json.dumps(body).encode(), "application/json", headers)


def error_body(message: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "stub_error", "param": None, "code": code}}


async def send_completion(
    writer: asyncio.StreamWriter, body: dict[str, Any], messages: list[Any], answer: Answer
) -> bool:
    if answer.garbage:
        return await send(writer, 200, b'{"id": "chatcmpl-stub", "choices": [{"mess', "application/json")
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call_id(messages, i), "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(answer.tool_calls)
        ]
    reply = {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_of(answer)}] if answer.choices else [],
        "usage": usage_of(messages, answer) if answer.usage else None,
    }
    if answer.cut:
        raw = json.dumps(reply).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw[:20]
        )
        await writer.drain()
        return False
    return await send_json(writer, 200, reply)


async def send_stream(
    writer: asyncio.StreamWriter,
    body: dict[str, Any],
    messages: list[Any],
    answer: Answer,
    reader: asyncio.StreamReader,
) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    base = {"id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}

    def event(payload: Any) -> None:
        data = b"data: " + json.dumps(payload).encode() + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def chunk(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> None:
        event(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **extra})

    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if answer.reasoning:
        pieces += [{"reasoning_content": answer.reasoning[:4]}, {"reasoning_content": answer.reasoning[4:]}]
    pieces += [{"content": piece} for piece in re.findall(r"\s*\S+", answer.text or "")]
    for i, (name, arguments) in enumerate(answer.tool_calls):
        index = {"index": i} if answer.index else {}
        half = len(arguments) // 2
        opening = {
            "id": call_id(messages, i),
            "type": "function",
            "function": {"name": name, "arguments": arguments[:half]},
        }
        pieces += [
            {"tool_calls": [index | opening]},
            {"tool_calls": [index | {"function": {"arguments": arguments[half:]}}]},
        ]
    if not answer.choices:
        pieces = []
    for number, piece in enumerate(pieces):
        if reader.at_eof():
            return False
        chunk(piece)
        if answer.pause_s:
            await writer.drain()
            await asyncio.sleep(answer.pause_s)
        if number == 1 and (answer.cut or answer.garbage):
            if answer.cut:
                await writer.drain()
                return False
            writer.write(b"d\r\ndata: {oops\n\n\r\n")
    if answer.choices:
        usage = usage_of(messages, answer) if answer.usage else None
        asked = (body.get("stream_options") or {}).get("include_usage")
        chunk({}, finish_of(answer))
        if usage is not None and (asked or answer.trailing_usage):
            event(base | {"choices": [], "usage": usage})
    else:
        event(base | {"choices": []})
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()
    return True


async def send_responses(writer: asyncio.StreamWriter, body: dict[str, Any], answer: Answer) -> bool:
    """The Responses API: one reply, or its events."""
    messages = chat_messages(body["input"])
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        output.append(
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": answer.reasoning}]}
        )
    if answer.text is not None:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]})
    for i, (name, arguments) in enumerate(answer.tool_calls):
        call = call_id(messages, i)
        output.append(
            {
                "type": "function_call",
                "id": f"fc_{i}",
                "call_id": call,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
        )
    usage = usage_of(messages, answer)
    cut_short = answer.finish_reason == "length"
    response = {
        "id": "resp_stub",
        "object": "response",
        "created_at": 1,
        "model": body.get("model"),
        "status": "incomplete" if cut_short else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut_short else None,
        "error": None,
        "output": output,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }
        if answer.usage
        else None,
    }
    if not body.get("stream"):
        return await send_json(writer, 200, response)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def event(kind: str, **fields: Any) -> None:
        data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    event("response.created", response=response | {"status": "in_progress", "output": [], "usage": None})
    for i, item in enumerate(output):
        event(
            "response.output_item.added",
            output_index=i,
            item=item | {"content": []} if item["type"] == "message" else item | {"arguments": ""},
        )
        if item["type"] == "message":
            empty = {"type": "output_text", "text": "", "annotations": []}
            event("response.content_part.added", item_id=item["id"], output_index=i, content_index=0, part=empty)
            for piece in re.findall(r"\s*\S+", item["content"][0]["text"]):
                event("response.output_text.delta", item_id=item["id"], output_index=i, content_index=0, delta=piece)
        elif item["type"] == "function_call":
            event("response.function_call_arguments.delta", item_id=item["id"], output_index=i, delta=item["arguments"])
        event("response.output_item.done", output_index=i, item=item)
        if answer.cut:
            await writer.drain()
            return False
    event("response.incomplete" if cut_short else "response.completed", response=response)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="An OpenAI-compatible stub model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key", default=None, help="refuse every other key")
    options = parser.parse_args()

    async def run() -> None:
        stub = StubProvider(options.port, host=options.host, api_key=options.api_key, record=False)
        await stub._listen()
        print(stub.base_url, flush=True)
        await asyncio.Event().wait()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
