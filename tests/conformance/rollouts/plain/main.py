"""A rollout written for the published SDK 0.3.8: the row's text says what happens to it. It must run unmodified on ours."""

import asyncio
import os

import httpx
from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server


class PlainWorkflow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput:
        word, _, argument = ctx.prompt[-1]["content"].partition(" ")
        if word == "fail":
            raise RuntimeError(argument)
        if word == "sleep":
            await asyncio.sleep(float(argument))
        answer = "done"
        if word == "ask":
            context = get_rollout_context()
            async with httpx.AsyncClient(timeout=60) as client:
                response = await client.post(
                    f"{context.chat_completions_url}/chat/completions",
                    headers={"Authorization": f"Bearer {context.api_key}"},
                    json={"model": "any", "messages": [{"role": "user", "content": argument}]},
                )
                response.raise_for_status()
                answer = response.json()["choices"][0]["message"]["content"]
        if ctx.artifacts_dir:
            (ctx.artifacts_dir / "note.txt").write_text(word)
        metrics = {"letters": float(len(answer))}
        return AgentWorkflowOutput(messages=[*ctx.prompt, {"role": "assistant", "content": answer}], metrics=metrics)


class PlainGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        word, _, _ = ctx.sample.messages[0]["content"].partition(" ")
        if word == "skip":
            ctx.sample.remove_sample = True
        elif word == "nan":
            ctx.set_reward(float("nan"))
        elif word == "broken-grader":
            raise ValueError("the grader is broken")
        elif word != "unset":
            ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"] == ctx.label else 0.25)


def main() -> None:
    import uvicorn

    leases = {}
    if "TEST_LEASE" in os.environ:
        lease = float(os.environ["TEST_LEASE"])
        leases = {"result_wait_timeout_sec": lease / 4, "polling_lease_timeout_sec": lease}
    app = create_rollout_server(
        backend=LocalBackend(
            workflow=PlainWorkflow,
            workflow_config=AgentWorkflowConfig(name="plain", concurrency=ConcurrencyConfig(max_concurrent=8)),
            grader=PlainGrader,
        ),
        api_key=os.environ.get("TEST_API_KEY"),
        **leases,
    )
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("_OSMOSIS_ROLLOUT_PORT", "8000")), log_level="warning")


if __name__ == "__main__":
    main()
