"""The tunnel, with a script in the place of cloudflared."""

import asyncio
import os
import stat
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation import tunnel as tunnel_module
from osmosis_ai.evaluation.process import read_owned
from osmosis_ai.evaluation.tunnel import Tunnel, TunnelError

ANNOUNCES = 'echo "INF |  https://quiet-otter.trycloudflare.com  |" >&2'
CONNECTS = 'echo "INF Registered tunnel connection connIndex=0" >&2'


@pytest.fixture
def make(tmp_path, monkeypatch):
    made: list[Tunnel] = []

    def make(*lines: str, status: int | None = None) -> Tunnel:
        program = tmp_path / "bin/cloudflared"
        program.parent.mkdir(exist_ok=True)
        program.write_text("\n".join(["#!/bin/sh", f'echo "$@" > {tmp_path}/arguments', *lines]))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        log = []
        tunnel = Tunnel(
            record_path=tmp_path / "tunnel.json",
            log_path=tmp_path / "logs.txt",
            log=lambda *line: log.append(line),
            environ=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        )
        tunnel.limit_s, tunnel.registered_wait_s, tunnel.probe_pause_s, tunnel.probes_after_signal = 3.0, 0.3, 0.1, 2
        tunnel.lines = log

        async def probe(url: str) -> tuple[int | None, str]:
            return status, "" if status else "ConnectError: no such name"

        monkeypatch.setattr(tunnel, "_probe", probe)
        made.append(tunnel)
        return tunnel

    yield make


async def test_the_public_url_comes_once_it_answers(make, tmp_path):
    tunnel = make(ANNOUNCES, "exec sleep 60", status=404)
    assert await tunnel.open("http://127.0.0.1:4321") == "https://quiet-otter.trycloudflare.com"
    words = (tmp_path / "arguments").read_text().split()
    assert words == ["tunnel", "--config", os.devnull, "--url", "http://127.0.0.1:4321", "--no-autoupdate"]
    record = read_owned(tmp_path / "tunnel.json")
    assert record is not None and record.instance_id == "cloudflared" and record.port == 4321
    assert await tunnel.stop()
    assert not (tmp_path / "tunnel.json").exists()
    assert not Path(f"/proc/{record.pid}").exists()


async def test_cloudflareds_own_signal_counts_where_the_url_cannot_be_tried(make):
    tunnel = make(ANNOUNCES, CONNECTS, "exec sleep 60")
    assert await tunnel.open("http://127.0.0.1:4321") == "https://quiet-otter.trycloudflare.com"
    assert any(level == "WARNING" and "cannot be tried" in message for level, _, message, _ in tunnel.lines)
    await tunnel.stop()


async def test_a_tunnel_that_never_answers_is_an_error(make):
    tunnel = make(ANNOUNCES, "exec sleep 60", status=530)
    with pytest.raises(TunnelError, match="not ready"):
        await tunnel.open("http://127.0.0.1:4321")
    await tunnel.stop()


async def test_a_tunnel_without_a_url_is_an_error(make):
    tunnel = make("exec sleep 60")
    with pytest.raises(TunnelError, match="named no public URL"):
        await tunnel.open("http://127.0.0.1:4321")
    await tunnel.stop()


@pytest.mark.parametrize(
    "line",
    [
        'error="429 Too Many Requests"',
        "error code: 1015",
        "ERR failed to unmarshal quick Tunnel: invalid character",
    ],
)
async def test_a_rate_limit_is_named_with_what_helps(make, line):
    tunnel = make(f"echo '{line}' >&2", "exit 1")
    with pytest.raises(TunnelError, match="--advertise-url"):
        await tunnel.open("http://127.0.0.1:4321")
    await tunnel.stop()


async def test_an_early_end_shows_the_last_line(make):
    tunnel = make("echo 'flag provided but not defined' >&2", "exit 3")
    with pytest.raises(TunnelError, match=r"exited with code 3.*flag provided"):
        await tunnel.open("http://127.0.0.1:4321")
    await tunnel.stop()


async def test_a_later_end_is_told(make):
    tunnel = make(ANNOUNCES, CONNECTS, "sleep 1", "exit 2", status=404)
    await tunnel.open("http://127.0.0.1:4321")
    async with asyncio.timeout(30):
        assert await tunnel.death() == "cloudflared exited with code 2"
    await tunnel.stop()


async def test_without_cloudflared_the_remedy_is_named(make, tmp_path, monkeypatch):
    tunnel = make("exit 0")
    tunnel._environ["PATH"] = str(tmp_path)
    with pytest.raises(ValidationError, match="--advertise-url"):
        await tunnel.open("http://127.0.0.1:4321")


async def test_a_bare_visit_needs_no_answer_but_a_404():
    class Empty(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plain = tunnel_module.Tunnel(record_path=Path("x"), log_path=Path("x"), log=lambda *_: None)
    assert (await plain._probe(f"http://127.0.0.1:{server.server_port}"))[0] == 404
    server.shutdown()
    server.server_close()
    assert (await plain._probe(f"http://127.0.0.1:{server.server_port}"))[0] is None
