"""The agent and the grader of `__ROLLOUT__`."""

import os

from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
)
from osmosis_ai.rollout.server import create_rollout_server


class Workflow(AgentWorkflow):
    """What the agent does with one row of the dataset."""

    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput | None:
        """Answer `ctx.prompt` (the row's messages); `ctx.metadata` holds the row's metadata.

        All model calls go through the rollout, in one of three ways:

        * Strands (extra `strands`): make the agent here, return None; its messages become the sample.
              from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
              agent = OsmosisStrandsAgent(model=OsmosisRolloutModel(), messages=ctx.prompt, tools=[...])
              await agent.invoke_async()
        * OpenAI Agents (extra `openai-agents`): the same; the session's items become the sample.
              from osmosis_ai.rollout.integrations.agents.openai_agents import (
                  OsmosisAgent, OsmosisMemorySession, OsmosisRolloutModel)
              agent = OsmosisAgent(name="agent", model=OsmosisRolloutModel(), tools=[...])
              await Runner.run(agent, ctx.prompt, session=OsmosisMemorySession())
        * No framework: POST to `f"{get_rollout_context().chat_completions_url}/chat/completions"` with the context's
          `api_key` as bearer token, and return AgentWorkflowOutput(messages=[...]) with the whole conversation.

        The sample comes from the returned messages, else from the sample source that an integration registered
        (your own: a SampleSource given to `get_rollout_context().set_sample_source`).

        Files worth keeping go to the artifacts folder, which may be missing:
              if ctx.artifacts_dir:
                  (ctx.artifacts_dir / "notes.txt").write_text("...")
        """
        raise NotImplementedError("write the agent of __ROLLOUT__ in rollouts/__ROLLOUT__/main.py")


class RolloutGrader(Grader):
    """How good one conversation is."""

    async def grade(self, ctx: GraderContext) -> None:
        """Compare `ctx.sample.messages` with `ctx.label` and set a finite reward, by habit 0.0 to 1.0.

        A row that cannot be graded gets no reward: return without calling `set_reward`.
        """
        ctx.set_reward(0.0)


backend = LocalBackend(
    workflow=Workflow,
    workflow_config=AgentWorkflowConfig(name="__ROLLOUT__", concurrency=ConcurrencyConfig(max_concurrent=4)),
    grader=RolloutGrader,
)
app = create_rollout_server(backend=backend)


def main() -> None:
    """Serve the rollout to a runner."""
    import uvicorn

    uvicorn.run(
        app,
        # Only this machine by default: whoever reaches the port can run the agent. Managed runs set 0.0.0.0.
        host=os.environ.get("_OSMOSIS_ROLLOUT_HOST", "127.0.0.1"),
        port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")),
        timeout_keep_alive=2160,  # longer than the 2100 s of the platform's load balancer
        access_log=False,
    )


if __name__ == "__main__":
    main()
