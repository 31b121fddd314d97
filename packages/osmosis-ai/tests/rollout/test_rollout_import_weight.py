"""What importing loads: the authoring contract no framework, the server only its own."""

import json
import subprocess
import sys

import pytest

FRAMEWORKS = {
    "agents",
    "fastapi",
    "harbor",
    "httpx",
    "litellm",
    "openai",
    "opentelemetry",
    "rich",
    "starlette",
    "strands",
    "uvicorn",
    "numpy",
}
SERVER = {"fastapi", "starlette"}
LIGHT = [
    "osmosis_ai",
    "osmosis_ai.rollout",
    "osmosis_ai.rollout.types",
    "osmosis_ai.rollout.types.harbor",
    "osmosis_ai.rollout.types.output",
    "osmosis_ai.rollout.utils.errors",
    "osmosis_ai.rollout.utils.ttl_cache",
    "osmosis_ai.rollout.client",
    "osmosis_ai.rollout.preview",
    "osmosis_ai.rollout.server",
    "osmosis_ai.rollout.backend.harbor",
    "osmosis_ai.rollout.trajectory",
    "osmosis_ai.rollout.trajectory.atif",
    "osmosis_ai.rollout.trajectory.converter",
    "osmosis_ai.rollout.trajectory.save",
    "osmosis_ai.rollout.trajectory.schema",
]


def modules_after(*imported):
    code = f"import sys, json; [__import__(m) for m in {imported!r}]; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def loaded_by(*imported):
    return {name.partition(".")[0] for name in modules_after(*imported)}


def test_what_a_task_container_needs_loads_no_framework():
    assert loaded_by(*LIGHT) & FRAMEWORKS == set()


def test_a_bare_osmosis_ai_loads_not_even_pydantic():
    assert loaded_by("osmosis_ai") & (FRAMEWORKS | {"pydantic", "asyncio"}) == set()


def test_the_server_loads_fastapi_only():
    # FastAPI itself looks for the OpenTelemetry API; the SDK and the exporter are what costs.
    loaded = modules_after("osmosis_ai.rollout.server.app")
    assert {name.partition(".")[0] for name in loaded} & (FRAMEWORKS - {"opentelemetry"}) == SERVER
    assert not any(name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")) for name in loaded)


@pytest.mark.parametrize("module", LIGHT)
def test_each_light_module_imports_on_its_own(module):
    loaded_by(module)


def test_logging_is_configured_only_when_nobody_has():
    code = """
import logging, sys
from osmosis_ai.rollout import AgentWorkflow, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server
if sys.argv[1] == "mine":
    logging.basicConfig(level=logging.ERROR)
create_rollout_server(backend=LocalBackend(workflow=AgentWorkflow), configure_logging=sys.argv[1] != "off")
print(logging.getLogger().level, len(logging.getLogger().handlers))
"""
    for case, expected in (("none", "20 1"), ("mine", "40 1"), ("off", "30 0")):
        done = subprocess.run([sys.executable, "-c", code, case], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected, case
