"""The agent and its grader. Both run in the sandbox, where only this package and its dependencies are installed."""

import re
from typing import Any

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, Grader, GraderContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from strands import tool

SYSTEM_PROMPT = "Use the multiply tool. Then answer with #### <number>."
MAX_TURNS = 6


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class MultiplyWorkflow(AgentWorkflow):
    """Let the agent answer the prompt; the agent's own messages become the sample."""

    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisStrandsAgent(  # made here and not at import time: the rollout's model exists only now
            model=OsmosisRolloutModel(),
            messages=ctx.prompt,
            tools=[multiply],
            system_prompt=SYSTEM_PROMPT,
            callback_handler=None,
        )
        await agent.invoke_async(limits={"turns": MAX_TURNS})


class MultiplyGrader(Grader):
    """Reward 1.0 when the last answer says `#### <label>`, else 0.0."""

    async def grade(self, ctx: GraderContext) -> None:
        answers = re.findall(r"####\s*(-?\d+)", last_answer(ctx.sample.messages if ctx.sample else []))
        ctx.set_reward(1.0 if answers and answers[-1] == ctx.label else 0.0)


def last_answer(messages: Any) -> str:
    """The text of the last assistant message (Strands keeps a list of content blocks)."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return "".join(block.get("text", "") for block in message["content"])
    return ""
