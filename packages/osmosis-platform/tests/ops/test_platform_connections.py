"""Hostile connections against a real server: endless heads, silence half-way, requests by the thousand. It goes on serving."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from osmosis_platform.ops.connections import BoundedConnection

BEGIN = b"POST /x HTTP/1.1\r\nHost: x\r\n"


class Impatient(BoundedConnection):
    HEAD_S, IDLE_S, LOOK_S = 0.3, 0.3, 0.05


async def app(scope, receive, send):
    """Reads the body to its end, then answers a megabyte for `/large`, else two bytes."""
    if scope["type"] != "http":
        return
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            app.left.set()
            return
        if not message.get("more_body"):
            break
    body = b"x" * (8 << 20) if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Patient(BoundedConnection):
    IDLE_S, LOOK_S = 1.0, 0.1


@contextmanager
def serving(protocol):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(64)
        config = uvicorn.Config(app, http=protocol, lifespan="off", log_level="critical", access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def port():
    with serving(Impatient) as number:
        yield number


def sent(port, *pieces, wait_s=5.0):
    """What comes back until the server closes; sending goes on as long as it takes."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(wait_s)
        answer = b""
        try:
            for piece in pieces:
                client.sendall(piece)
        except OSError:
            pass
        try:
            while chunk := client.recv(1 << 16):
                answer += chunk
        except ConnectionError:
            pass
        return answer


def alive(port):
    return sent(port, BEGIN + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}").endswith(b"ok")


@pytest.mark.parametrize(
    "pieces",
    [
        (b"GET / HTTP/1.1\r\nX: ", *[b"a" * (1 << 20)] * 20),
        (b"GET /", *[b"a" * (1 << 20)] * 20),
        (b"GET / HTTP/1.1\r\n", *[b"X-A: b\r\n" * (1 << 15)] * 20),
    ],
    ids=["one header", "address", "many headers"],
)
def test_an_endless_head_is_cut(port, pieces):
    assert sent(port, *pieces).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ", b""))
    assert alive(port)


def test_a_long_head_says_why(port):
    answer = sent(port, b"GET / HTTP/1.1\r\nX: ", b"a" * 300_000, b"a" * 300_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


def test_endless_trailers_are_cut(port):
    chunked = BEGIN + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    began = time.monotonic()
    sent(port, chunked, *[b"X-A: b\r\n" * (1 << 15)] * 20)
    assert time.monotonic() - began < 4
    assert alive(port)


def test_small_chunks_are_a_body(port):
    chunks = b"".join(b"1\r\na\r\n" for _ in range(50_000))
    pieces = [chunks[at : at + 4096] for at in range(0, len(chunks), 4096)]
    head = BEGIN + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert sent(port, head, *pieces, b"0\r\n\r\n").endswith(b"ok")


@pytest.mark.parametrize("said", [b"", b"GET / HT", BEGIN], ids=["nothing", "half a line", "half a head"])
def test_a_head_that_does_not_come_is_not_waited_for(port, said):
    began = time.monotonic()
    assert sent(port, said) == b""
    assert 0.2 < time.monotonic() - began < 3


def test_a_body_that_stops_half_way_is_given_up_and_the_route_is_told(port):
    app.left = threading.Event()
    assert sent(port, BEGIN + b"Content-Length: 10\r\n\r\nhalf") == b""
    assert app.left.wait(3)


def test_a_slow_body_is_waited_for(port):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(BEGIN + b"Connection: close\r\nContent-Length: 6\r\n\r\n")
        for _ in range(6):
            time.sleep(0.15)
            client.sendall(b"x")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_reader_that_stops_reading_is_given_up(port):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(BEGIN.replace(b"/x", b"/large") + b"Content-Length: 2\r\n\r\n{}")
        time.sleep(1.5)
        client.settimeout(3)
        total = 0
        try:
            while chunk := client.recv(1 << 20):
                total += len(chunk)
        except ConnectionError:
            pass
        assert total < 8 << 20


def test_a_slow_reader_is_waited_for():
    with serving(Patient) as port, socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(BEGIN.replace(b"/x", b"/large") + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
        total, began = 0, time.monotonic()
        while chunk := client.recv(100_000):
            total += len(chunk)
            if time.monotonic() - began < 4:
                time.sleep(0.1)  # a megabyte a second: the kernel takes more of the server every second and a half
        assert total > 8 << 20


def test_requests_are_not_queued_without_end(port):
    answer = sent(port, (BEGIN + b"Content-Length: 0\r\n\r\n") * 5000)
    assert answer.count(b"HTTP/1.1 200") < 200
    assert alive(port)


def test_a_server_may_open_as_many_files_as_the_machine_permits():
    program = (
        "import resource; from osmosis_platform.ops.processes import allow_many_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 4096)); allow_many_files()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "(4096, 4096)"
