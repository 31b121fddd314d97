"""Multiply two numbers with a tool: an agent of the OpenAI Agents SDK."""

import os
import re
from typing import Any

from agents import Runner, function_tool
from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server

SYSTEM_PROMPT = "Use the multiply tool. Then answer with #### <number>."
MAX_TURNS = 6


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class MultiplyWorkflow(AgentWorkflow):
    """Let the agent answer the prompt; the session's items become the sample."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisAgent(  # made here and not at import time: the rollout's model exists only now
            name="multiply",
            instructions=SYSTEM_PROMPT,
            model=OsmosisRolloutModel(),
            tools=[multiply],
        )
        await Runner.run(agent, ctx.prompt, session=OsmosisMemorySession(), max_turns=MAX_TURNS)


class MultiplyGrader(Grader):
    """Reward 1.0 when the last answer says `#### <label>`, else 0.0."""

    async def grade(self, ctx: GraderContext) -> None:
        answers = re.findall(r"####\s*(-?\d+)", last_answer(ctx.sample.messages if ctx.sample else []))
        ctx.set_reward(1.0 if answers and answers[-1] == ctx.label else 0.0)


def last_answer(items: Any) -> str:
    """The text of the last assistant message (a session also holds tool calls and their outputs)."""
    for item in reversed(items):
        if item.get("role") == "assistant":
            return "".join(part.get("text", "") for part in item["content"])
    return ""


backend = LocalBackend(
    workflow=MultiplyWorkflow,
    workflow_config=AgentWorkflowConfig(name="multiply", concurrency=ConcurrencyConfig(max_concurrent=16)),
    grader=MultiplyGrader,
)
app = create_rollout_server(backend=backend)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        app,
        host=os.environ.get("_OSMOSIS_ROLLOUT_HOST", "127.0.0.1"),
        port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")),
        timeout_keep_alive=2160,  # longer than the platform's load balancer keeps a connection
        access_log=False,
    )
