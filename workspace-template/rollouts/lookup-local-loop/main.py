"""Look up a price with a tool: a plain loop over the chat completions URL, no framework."""

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

SYSTEM_PROMPT = "Use the lookup tool. Then answer with #### <number>."
MAX_TURNS = 6
PRICES = {
    "apple": 3, "basket": 24, "bell": 17, "blanket": 46, "book": 19, "bottle": 8, "bowl": 12, "brush": 6,
    "candle": 9, "chair": 75, "clock": 58, "cup": 7, "desk": 98, "drum": 83, "fan": 39, "guitar": 95,
    "hammer": 21, "hat": 28, "jacket": 88, "kettle": 42, "kite": 14, "ladder": 67, "lamp": 37, "map": 5,
    "mirror": 53, "pen": 2, "pillow": 26, "radio": 64, "rope": 11, "scarf": 31, "table": 91, "tent": 86,
}  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look up the price of an item.",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
        },
    }
]


def lookup(item: str) -> str:
    """Look up the price of an item."""
    price = PRICES.get(item.strip().lower())
    return f"error: no item {item}" if price is None else str(price)


def call_tool(function: dict[str, Any]) -> str:
    """Run the tool that the model asked for; what goes wrong is told to the model, not raised."""
    if function["name"] != "lookup":
        return f"error: there is no tool {function['name']}"
    try:
        return lookup(str(json.loads(function["arguments"])["item"]))
    except (ValueError, TypeError, KeyError) as error:
        return f"error: lookup needs the text item ({error})"


@cache
def http_client() -> httpx.AsyncClient:
    """One connection pool for all rollouts of this process."""
    return httpx.AsyncClient(timeout=600)


class LookupWorkflow(AgentWorkflow):
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


class LookupGrader(Grader):
    """Reward 1.0 when the last answer says `#### <label>`, else 0.0."""

    async def grade(self, ctx: GraderContext) -> None:
        answers = re.findall(r"####\s*(-?\d+)", last_answer(ctx.sample.messages if ctx.sample else []))
        ctx.set_reward(1.0 if answers and answers[-1] == ctx.label else 0.0)


def last_answer(messages: Any) -> str:
    """The text of the last assistant message."""
    return next((m.get("content") or "" for m in reversed(messages) if m["role"] == "assistant"), "")


backend = LocalBackend(
    workflow=LookupWorkflow,
    workflow_config=AgentWorkflowConfig(name="lookup", concurrency=ConcurrencyConfig(max_concurrent=16)),
    grader=LookupGrader,
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
