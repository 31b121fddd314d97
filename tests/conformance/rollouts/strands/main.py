"""A Strands rollout written for the published SDK 0.3.8; it must run unmodified on ours."""

import os

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowContext, Grader, GraderContext, LocalBackend
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.server import create_rollout_server
from strands import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class StrandsWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        agent = OsmosisStrandsAgent(
            model=OsmosisRolloutModel(params={"temperature": 0.5, "max_tokens": 64}),
            messages=ctx.prompt,
            tools=[multiply],
            system_prompt="Use the multiply tool.",
            callback_handler=None,
        )
        await agent.invoke_async()


class StrandsGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        text = "".join(block.get("text", "") for block in ctx.sample.messages[-1]["content"])
        ctx.set_reward(1.0 if text.endswith(f"#### {ctx.label}") else 0.0)


def main() -> None:
    import uvicorn

    app = create_rollout_server(backend=LocalBackend(workflow=StrandsWorkflow, grader=StrandsGrader))
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")), log_level="warning")


if __name__ == "__main__":
    main()
