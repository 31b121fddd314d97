"""The published osmosis-ai 0.3.8 as a black box, and rollout servers of either SDK as child processes.

Owns how conformance tests start things. `scripts/published-venv` makes the environment; nothing here reads its source.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".cache/published-0.3.8"
CONFORMANCE = ROOT / "tests/conformance"
OURS = Path(sys.executable)
PUBLISHED = VENV / "bin/python"

needs_published = [
    pytest.mark.published,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (VENV / ".complete-1").exists(), reason="no published osmosis-ai: run scripts/published-venv once"
    ),
]
"""For `pytestmark` of modules that run the published package."""


def child_environment(home: Path, **extra: str) -> dict[str, str]:
    """A clean environment for a child: a home of its own, loopback without proxies, nothing of the caller's secrets."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "LANG") or name.startswith(("UV_", "SSL_CERT_"))
    }
    return {
        **kept,
        "HOME": str(home),
        "NO_PROXY": "127.0.0.1,localhost",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(python: Path, entrypoint: Path, home: Path, **environ: str) -> Iterator[str]:
    """Serve a rollout's main.py with one SDK's interpreter; yields its base URL."""
    port = free_port()
    artifacts = home / f"artifacts-{port}"
    artifacts.mkdir(parents=True)
    log = home / f"server-{port}.log"
    environment = child_environment(
        home, _OSMOSIS_ROLLOUT_PORT=str(port), _OSMOSIS_ROLLOUT_ARTIFACT_ROOT=str(artifacts), **environ
    )
    with log.open("w") as output:
        server = subprocess.Popen(
            [python, entrypoint], env=environment, stdout=output, stderr=output, cwd=home, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                httpx.get(f"{url}/health", timeout=2, trust_env=False)  # 401 is an answer too
                break
            except httpx.TransportError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the rollout server did not start:\n{log.read_text()}") from None
                time.sleep(0.05)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(5)


def drive(python: Path, home: Path, url: str, steps: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Run `steps` against a rollout server with the client of one SDK (see `tests/conformance/drive.py`)."""
    document = json.dumps({"url": url, "steps": steps, **spec})
    done = run(python, [str(CONFORMANCE / "drive.py"), document], home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(
    python: Path, arguments: list[str], home: Path, *, timeout_s: float = 110, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter to its end."""
    return subprocess.run(
        [python, *arguments],
        env=child_environment(home, **environ),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def rollout_request(text: str, rollout_id: str, *, url: str = "http://127.0.0.1:9", **fields: Any) -> Mapping[str, Any]:
    """Keyword arguments of `RolloutClient.run_rollout` for one user message."""
    return {
        "initial_messages": [{"role": "user", "content": text}],
        "chat_completions_url": url,
        "rollout_id": rollout_id,
        "llm_api_key": "model-key",
        "label": "done",
        **fields,
    }
