"""What importing an agent integration costs and starts: the framework, and nothing else."""

import json
import os
import subprocess
import sys

import pytest

INTEGRATIONS = {"strands": "strands", "openai_agents": "agents"}
EXTRAS = {"strands": "strands", "openai_agents": "openai-agents"}


def run_python(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OPENAI_API_KEY": "sk-not-ours", **environ}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_no_litellm_no_threads_and_little_beyond_the_framework(name):
    program = (
        "import json, sys, threading, time\n"
        f"import {INTEGRATIONS[name]}, openai\n"
        "started = time.process_time()\n"
        f"import osmosis_ai.rollout.integrations.agents.{name}\n"
        "cpu = time.process_time() - started\n"
        "loaded = [m for m in ('litellm', 'osmosis_ai.cli', 'osmosis_ai.gateway', 'fastapi') if m in sys.modules]\n"
        "print(json.dumps({'cpu': cpu, 'loaded': loaded, 'threads': threading.active_count()}))\n"
    )
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["loaded"] == []
    assert seen["threads"] == 1
    assert seen["cpu"] < 1.5  # measured: 0.15 s (strands), 0.2 s (agents); LiteLLM alone takes several seconds


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_a_missing_framework_is_answered_with_the_command_that_installs_it(name):
    program = (
        "import sys\n"
        f"sys.modules[{INTEGRATIONS[name]!r}] = None\n"
        f"import osmosis_ai.rollout.integrations.agents.{name}\n"
    )
    done = run_python(program)
    assert done.returncode != 0
    assert f'pip install "osmosis-ai[{EXTRAS[name]}]"' in done.stderr


def test_the_packages_of_the_integrations_export_nothing():
    done = run_python(
        "import sys, osmosis_ai.rollout.integrations as a, osmosis_ai.rollout.integrations.agents as b\n"
        "assert a.__all__ == b.__all__ == []\n"
        "assert not {'strands', 'agents', 'openai', 'litellm'} & sys.modules.keys()\n"
    )
    assert done.returncode == 0, done.stderr


TRACE = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
import agents
from agents.tracing import processors

posted = []
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        posted.append(self.headers["Authorization"])
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()

class Own(agents.tracing.TracingProcessor):
    def on_span_end(self, span): posted.append("own")
    on_trace_start = on_trace_end = on_span_start = lambda self, _: None
    shutdown = force_flush = lambda self: None

def seen():
    posted.clear()
    if processors._global_exporter is not None:  # instead of OpenAI's address
        processors._global_exporter.endpoint = f"http://127.0.0.1:{server.server_port}/"
    with agents.trace("t"):
        with agents.custom_span("s"):
            pass
    agents.flush_traces()
    return sorted(posted)

"""
IMPORT = "import osmosis_ai.rollout.integrations.agents.openai_agents\n"


def run_trace(program: str, **environ: str) -> list[list[str]]:
    done = run_python(TRACE + program, NO_PROXY="127.0.0.1", **environ)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_agents_tracing_exports_nothing_until_it_is_told_to():
    threads = "print(json.dumps([t.name for t in threading.enumerate() if 'Trace' in t.name or 'Batch' in t.name]))\n"
    show = "print(json.dumps(seen()))\n"
    own, key = "agents.add_trace_processor(Own())\n", "agents.set_tracing_export_api_key('sk-traces')\n"
    seen = run_trace(IMPORT + show + threads + own + show + key + show)
    assert seen == [[], [], ["own"], ["Bearer sk-traces", "own"]]


def test_agents_tracing_that_is_configured_is_left_alone():
    assert run_trace("agents.set_trace_processors([Own()])\n" + IMPORT + "print(json.dumps(seen()))\n") == [["own"]]
    default = "processors.default_exporter()\n" + IMPORT + "print(json.dumps(seen()))\n"
    assert run_trace(default, OPENAI_AGENTS_DISABLE_TRACING="0") == [["Bearer sk-not-ours"]]
