"""The code of `docs/rollouts.md` works as printed: its blocks make a module, and its agents are graded through the gateway."""

import asyncio
import re
from pathlib import Path

import pytest
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.server import Gateway
from osmosis_ai.rollout import ExecutionRequest, LocalBackend
from osmosis_ai.rollout.context import RolloutContext
from stub_provider import StubProvider

GUIDE = Path(__file__).parents[1] / "docs/rollouts.md"


@pytest.fixture(scope="module")
def guide():
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    plain, frameworks = {"__name__": "guide"}, {}
    for block in blocks[:3]:
        exec(compile(block, str(GUIDE), "exec"), plain)
    for block in blocks[3:]:  # each framework in a module of its own: their placeholders have one name
        names = dict(plain)
        exec(compile(block, str(GUIDE), "exec"), names)
        frameworks |= {name: value for name, value in names.items() if name.endswith("Workflow")}
    return plain | frameworks


@pytest.mark.parametrize("workflow", ["Workflow", "StrandsWorkflow", "AgentsWorkflow"])
async def test_an_agent_of_the_guide_runs(guide, workflow):
    with StubProvider() as stub:
        gateway = Gateway(provider_policy("openai/text:four", stub.environ()))
        await gateway.start()
        session = gateway.open("r1")
        try:
            with RolloutContext(chat_completions_url=session.url, api_key=session.key, rollout_id="r1") as context:
                returned = await guide[workflow]().run(
                    guide["AgentWorkflowContext"](prompt=[{"role": "user", "content": "What is two and two?"}])
                )
                sample = await context.get_sample()
        finally:
            record = await gateway.close("r1")
            await gateway.aclose()
    assert len(record.calls) == 1
    messages = returned or sample.messages
    assert "four" in str(messages[-1])


def test_the_guides_server_is_an_application(guide):
    assert type(guide["app"]).__name__ == "FastAPI"


def test_its_grader_grades_and_skips(guide, tmp_path, monkeypatch):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))

    class Echo(guide["AgentWorkflow"]):
        async def run(self, ctx):
            return ctx.prompt

    async def grade(label, metadata=None):
        backend = LocalBackend(workflow=Echo, grader=guide["Exact"])
        prompt = [{"role": "user", "content": "4"}]
        outcome = await backend.execute(ExecutionRequest(id="r", prompt=prompt, label=label, metadata=metadata))
        return outcome.result.sample.reward

    assert [asyncio.run(grade(*case)) for case in (("4",), ("5",), (None, {"no": "label"}))] == [1.0, 0.0, None]
