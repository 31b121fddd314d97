"""Multiply two numbers with a tool: a plain loop over the chat completions URL, no framework."""

import json
import os
import re
from functools import cache
from typing import Any

import httpx
from osmosis_ai.rollout import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    ConcurrencyConfig,
    Grader,
    GraderContext,
    LocalBackend,
    get_rollout_context,
)
from osmosis_ai.rollout.server import create_rollout_server

SYSTEM_PROMPT = "Use the multiply tool. Then answer with #### <number>."
MAX_TURNS = 6
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def call_tool(function: dict[str, Any]) -> str:
    """Run the tool that the model asked for; what goes wrong is told to the model, not raised."""
    if function["name"] != "multiply":
        return f"error: there is no tool {function['name']}"
    try:
        arguments = json.loads(function["arguments"])
        return str(multiply(int(arguments["a"]), int(arguments["b"])))
    except (ValueError, TypeError, KeyError) as error:
        return f"error: multiply needs the integers a and b ({error})"


@cache
def http_client() -> httpx.AsyncClient:
    """One connection pool for all rollouts of this process."""
    return httpx.AsyncClient(timeout=600)


class MultiplyWorkflow(AgentWorkflow):
    """Ask the model, run the tool it calls, and go on until it answers without a call."""

    async def run(self, ctx: AgentWorkflowContext) -> list[dict[str, Any]]:
        rollout = get_rollout_context()
        assert rollout is not None  # always there while a rollout runs
        messages = [{"role": "system", "content": SYSTEM_PROMPT}, *ctx.prompt]
        for _ in range(MAX_TURNS):
            response = await http_client().post(
                f"{rollout.chat_completions_url}/chat/completions",
                headers={"Authorization": f"Bearer {rollout.api_key}"},
                json={"model": "osmosis-rollout", "messages": messages, "tools": TOOLS},
            )
            response.raise_for_status()
            message = response.json()["choices"][0]["message"]
            messages.append(message)
            calls = message.get("tool_calls") or []
            if not calls:
                break
            for call in calls:
                result = call_tool(call["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return messages


class MultiplyGrader(Grader):
    """Reward 1.0 when the last answer says `#### <label>`, else 0.0."""

    async def grade(self, ctx: GraderContext) -> None:
        answers = re.findall(r"####\s*(-?\d+)", last_answer(ctx.sample.messages if ctx.sample else []))
        ctx.set_reward(1.0 if answers and answers[-1] == ctx.label else 0.0)


def last_answer(messages: Any) -> str:
    """The text of the last assistant message."""
    return next((m.get("content") or "" for m in reversed(messages) if m["role"] == "assistant"), "")


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
