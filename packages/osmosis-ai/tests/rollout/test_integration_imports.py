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


TRACE = (
    "import asyncio, json, threading\n"
    "import osmosis_ai.rollout.integrations.agents.openai_agents\n"
    "from agents import trace, custom_span\n"
    "from agents.tracing import get_trace_provider\n"
    "with trace('t'):\n"
    "    with custom_span('s'): pass\n"
    "processors = get_trace_provider()._multi_processor._processors\n"
    "print(json.dumps([len(processors), threading.active_count()]))\n"
)


def test_agents_tracing_exports_nothing_by_itself():
    done = run_python(TRACE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 1]


def test_agents_tracing_is_left_alone_when_it_is_configured():
    done = run_python(TRACE, OPENAI_AGENTS_DISABLE_TRACING="0", OPENAI_API_KEY="")
    assert json.loads(done.stdout)[0] == 1
    own = "from agents import set_trace_processors\nset_trace_processors([])\n" + TRACE.replace(
        "with trace('t')",
        "from agents.tracing import add_trace_processor\nimport agents.tracing.processors as p\n"
        "add_trace_processor(p.BatchTraceProcessor(p.ConsoleSpanExporter()))\nwith trace('t')",
    )
    done = run_python(own)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])[0] == 1
