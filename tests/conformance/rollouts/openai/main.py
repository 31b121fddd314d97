"""An OpenAI Agents rollout written for the published SDK 0.3.8; it must run unmodified on ours."""

import os

from agents import ModelSettings, Runner, function_tool
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, Grader, GraderContext, LocalBackend
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class AgentsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisAgent(
            name="multiply",
            instructions="Use the multiply tool.",
            model=OsmosisRolloutModel(),
            model_settings=ModelSettings(temperature=0.5, max_tokens=64),
            tools=[multiply],
        )
        await Runner.run(agent, ctx.prompt, session=OsmosisMemorySession())


class AgentsGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        text = "".join(part.get("text", "") for part in ctx.sample.messages[-1]["content"])
        ctx.set_reward(1.0 if text.endswith(f"#### {ctx.label}") else 0.0)


def main() -> None:
    import uvicorn

    app = create_rollout_server(backend=LocalBackend(workflow=AgentsWorkflow, grader=AgentsGrader))
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")), log_level="warning")


if __name__ == "__main__":
    main()
