"""The multi-turn token suite: whatever agents do with a conversation, the tokens trained are the tokens sampled.

Each case scripts what the model draws, token by token, and plays an agent against the real gateway over HTTP. The
count of mismatches between what was drawn (and what it was drawn after) and what would be trained must be zero.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from osmosis_ai.gateway.server import Gateway
from osmosis_trainer.chat.tokens import TextTokenizer
from osmosis_trainer.engine.protocol import Capabilities
from osmosis_trainer.engine.sampler import SampledPiece, SampleRequest
from osmosis_trainer.engine.sampling import SamplingParams
from osmosis_trainer.loop.rollout_policy import RolloutPlan, RolloutPolicy
from osmosis_trainer.tokens.tree import TokenTree, token_tree

USER = {"role": "user", "content": "What is 3 * 4?"}
AGAIN = {"role": "user", "content": "Sure?"}
SYSTEM = {"role": "system", "content": "Be brief. 日本 🙂"}
TOOLS = [{"type": "function", "function": {"name": "multiply", "parameters": {"type": "object", "properties": {}}}}]

# Writes an assistant's thinking until the user speaks again, as Qwen3's template does.
FORGETS_THINKING = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content and (loop.last or messages[loop.index].role == 'tool') -%}
<think>
{{ m.reasoning_content.strip() }}
</think>

{% endif -%}{{ m.content.lstrip() }}
{%- for call in m.tool_calls or [] -%}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
</tool_call>{%- endfor -%}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
NEVER_WRITES_THINKING = FORGETS_THINKING.replace("m.reasoning_content and", "false and")


class Scripted:
    """An engine that draws what it was told to, a token a piece, and remembers after what."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._end = tokenizer.token_id("<|im_end|>")
        self.tokenizer = tokenizer
        self.script: list[list[int]] = []
        self.drawn: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("scripted", "base", 512, 2048, (), (), "cpu", 0)

    def says(self, *texts: str, spelled: bool = False, ends: bool = True) -> None:
        """Draw texts next: as the tokenizer would write them, or one token a byte, with their end or cut off."""
        for text in texts:
            ids = self.bytes_of(text) if spelled else self.tokenizer.encode(text)
            self.script.append([*ids, *([self._end] if ends else [])])

    def bytes_of(self, text: str) -> list[int]:
        """Ids of single bytes: never what the tokenizer would choose for a word or an emoji."""
        single = {
            self.tokenizer._bytes[i]: i for i in range(len(self.tokenizer._bytes)) if len(self.tokenizer._bytes[i]) == 1
        }
        return [single[bytes([value])] for value in text.encode()]

    async def sample(self, request: SampleRequest) -> AsyncGenerator[SampledPiece]:
        ids = self.script.pop(0)
        finish = "stop" if ids[-1] == self._end else "length"
        self.drawn.append((tuple(request.prompt), tuple(ids)))
        for at, token in enumerate(ids):
            yield SampledPiece([token], [-0.01 * token - 0.1], finish if at == len(ids) - 1 else None)

    def forget(self, session: str) -> None:
        """Nothing is kept."""


class Agent:
    """Talks to the gateway as an agent's HTTP client would."""

    def __init__(self, client: httpx.AsyncClient, url: str, key: str) -> None:
        self._client, self._url, self._key = client, url, key

    async def ask(self, messages: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        reply = await self._client.post(
            f"{self._url}/chat/completions",
            headers={"Authorization": f"Bearer {self._key}"},
            json={"model": "m", "messages": messages, **more},
        )
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["message"]


class Stage:
    """One rollout: an agent, the scripted engine behind the gateway, and what is trained in the end."""

    def __init__(self, engine: Scripted, agent: Agent, finish: Callable[[], Any]) -> None:
        self.engine, self.agent, self._finish = engine, agent, finish

    async def tree(self) -> TokenTree:
        """End the rollout; every drawn token must be trained once, in the context it was drawn in."""
        tree = token_tree(await self._finish())
        trained = sorted(
            (*branch.tokens[: at + 1], branch.logprobs[at])
            for branch in tree.branches
            for at in range(len(branch.tokens))
            if branch.trained[at]
        )
        drawn = sorted(
            (*prompt, *ids[: at + 1], -0.01 * ids[at] - 0.1)
            for prompt, ids in self.engine.drawn
            for at in range(len(ids))
        )
        mismatches = sum(a != b for a, b in zip(trained, drawn, strict=False)) + abs(len(trained) - len(drawn))
        assert mismatches == 0
        return tree


@pytest.fixture
def stage(nano_folder: Path, tmp_path: Path):
    @asynccontextmanager
    async def make(template: str | None = None) -> AsyncGenerator[Stage]:
        folder = nano_folder
        if template is not None:
            folder = tmp_path / "model"
            shutil.copytree(nano_folder, folder)
            (folder / "chat_template.jinja").write_text(template)
        engine = Scripted(TextTokenizer(folder / "tokenizer.json"))
        policy = RolloutPolicy(
            "base",
            folder,
            engine,  # ty: ignore[invalid-argument-type]
            seed=0,
            max_prompt_length=1000,
            max_response_length=1000,
        )
        gateway = Gateway(policy)
        await gateway.start()
        session = gateway.open("r")
        policy.plan("r", RolloutPlan("v1", SamplingParams(), "noise"))
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                yield Stage(engine, Agent(client, session.url, session.key), lambda: gateway.close("r"))
        finally:
            await gateway.aclose()

    return make


async def chat(stage: Stage, *, turns: int = 2) -> TokenTree:
    """The plain loop: every answer goes back as it came."""
    messages: list[dict[str, Any]] = [SYSTEM, USER]
    for _ in range(turns):
        messages += [await stage.agent.ask(messages), AGAIN]
    return await stage.tree()


@pytest.mark.parametrize(
    "answer",
    [
        "It is 12.",
        "  leading and trailing spaces  ",
        "trailing newline\n\n",
        "tabs\tand\r\nreturns",
        "",
        " ",
        "日本語 🙂 naïve e\u0301",
        "<think>\nthree times four\n</think>\n\nIt is 12.",
        "<think>\n\n</think>\n\nIt is 12.",
        "<think>never closed",
        "text that looks like <|im_start|>user\nmarkup",
        '{"not": "a call"}',
    ],
)
@pytest.mark.parametrize("spelled", [False, True], ids=["as the tokenizer writes", "byte by byte"])
async def test_a_replayed_answer_is_one_conversation(stage, answer, spelled):
    async with stage() as s:
        s.engine.says(answer, "Yes.", answer, spelled=spelled)
        tree = await chat(s, turns=3)
        assert len(tree.branches) == 1
        assert s.engine.tokenizer.decode(tree.branches[0].tokens).count("Sure?") == 2


async def test_the_end_that_the_model_drew_is_trained_and_the_templates_newline_after_it_is_not(stage):
    async with stage() as s:
        s.engine.says("It is 12.", "Yes.")
        (branch,) = (await chat(s)).branches
        end = s.engine.tokenizer.token_id("<|im_end|>")
        drawn = [at for at, token in enumerate(branch.tokens) if token == end and branch.trained[at]]
        assert len(drawn) == 2  # one an answer; those of system and user are the template's
        after = drawn[0] + 1
        assert s.engine.tokenizer.decode(branch.tokens[after : after + 1]) == "\n" and not branch.trained[after]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": 3, "b": 4}',
        '{"a":3,"b":4}',
        '{ "a" :3,\n"b":4 }',
        '{"a": "\\u00e9", "b": "é"}',
        '{"a": 1.0, "b": 1e3}',
        "{}",
    ],
)
async def test_tool_arguments_may_be_serialised_again_by_the_agent(stage, arguments):
    async with stage() as s:
        s.engine.says(
            f'<tool_call>{{"name":"multiply","arguments":{arguments}}}</tool_call>', "It is 12.", spelled=True
        )
        message = await s.agent.ask([USER], tools=TOOLS)
        (call,) = message["tool_calls"]
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1)
        reply = {"role": "tool", "tool_call_id": call["id"], "content": "12"}
        await s.agent.ask([USER, message, reply], tools=TOOLS)
        assert len((await s.tree()).branches) == 1


async def test_parallel_calls_with_text_around_them(stage):
    call = '<tool_call>\n{"name": "multiply", "arguments": {"a": 3}}\n</tool_call>'
    async with stage() as s:
        s.engine.says(f"Both:\n{call}\n{call}", "Done.")
        message = await s.agent.ask([USER], tools=TOOLS)
        assert len(message["tool_calls"]) == 2
        replies = [{"role": "tool", "tool_call_id": c["id"], "content": "9"} for c in message["tool_calls"]]
        await s.agent.ask([USER, message, *replies], tools=TOOLS)
        await s.tree()  # whether or not the template can write it so again, no token is made anew


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "multiply", "arguments": {"a": 3\n</tool_call>',
        '<tool_call>\n{"name": "multiply", "arguments": "3"}\n</tool_call>',
        "<tool_call>\nmultiply(3, 4)\n</tool_call>",
        '<tool_call>\n{"name": "multiply", "arguments": {}}',
    ],
)
async def test_a_broken_call_stays_text_and_is_counted(stage, text):
    async with stage() as s:
        s.engine.says(text, "Sorry.", "Yes.")
        messages = [USER]
        for _ in range(2):
            message = await s.agent.ask(messages, tools=TOOLS)
            messages += [message, AGAIN]
        assert messages[1]["content"] == text and not messages[1].get("tool_calls")
        assert len((await s.tree()).branches) == 1


async def test_a_character_cut_in_its_bytes_closes_the_branch(stage):
    async with stage() as s:
        emoji = s.engine.bytes_of("ok 🙂")
        s.engine.script.append(emoji[:-2])
        s.engine.says("Yes.")
        message = await s.agent.ask([USER])
        assert message["content"] == "ok \ufffd"
        await s.agent.ask([USER, message, AGAIN])
        first, second = (await s.tree()).branches
        assert first.cut and not second.cut


async def test_thinking_that_the_agent_drops_begins_a_branch(stage):
    async with stage() as s:
        s.engine.says("<think>\nhm\n</think>\n\nIt is 12.", "Yes.")
        message = await s.agent.ask([USER])
        await s.agent.ask([USER, {"role": "assistant", "content": "It is 12."}, AGAIN])
        assert len((await s.tree()).branches) == 2
        assert message["content"]


async def test_thinking_is_told_apart_from_the_answer_and_dropped_by_the_template_at_the_next_question(stage):
    async with stage(FORGETS_THINKING) as s:
        s.engine.says("<think>\nhm\n</think>\n\nIt is 12.", "Yes.", "Really.")
        message = await s.agent.ask([USER])
        assert (message["reasoning_content"].strip(), message["content"].strip()) == ("hm", "It is 12.")
        second = await s.agent.ask([USER, message, AGAIN])
        await s.agent.ask([USER, message, AGAIN, second, AGAIN])
        tree = await s.tree()
        # the second turn cannot see the thinking, the third continues the second
        assert [node.parent for node in tree.nodes] == [None, None, 1]
        assert "hm" not in s.engine.tokenizer.decode(tree.branches[1].tokens)


@pytest.mark.parametrize("replayed", [True, False], ids=["by the agent", "by the gateway"])
async def test_thinking_that_led_to_a_call_is_kept(stage, replayed):
    async with stage(FORGETS_THINKING) as s:
        call = '<tool_call>\n{"name": "multiply", "arguments": {"a": 3}}\n</tool_call>'
        s.engine.says(f"<think>\nhm\n</think>\n\n{call}", "<think>\n\n</think>\n\nIt is 12.")
        message = await s.agent.ask([USER], tools=TOOLS)
        if not replayed:
            del message["reasoning_content"]
        reply = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "12"}
        await s.agent.ask([USER, message, reply], tools=TOOLS)
        assert len((await s.tree()).branches) == 1


async def test_a_template_that_never_writes_thinking_begins_a_branch(stage):
    async with stage(NEVER_WRITES_THINKING + "{# </think> #}") as s:
        s.engine.says("<think>\nhm\n</think>\n\nIt is 12.", "Yes.")
        message = await s.agent.ask([USER])
        await s.agent.ask([USER, message, AGAIN])
        assert [node.parent for node in (await s.tree()).nodes] == [None, None]


async def test_an_answer_cut_in_its_thinking_has_no_content(stage):
    async with stage(FORGETS_THINKING) as s:
        s.engine.says("<think>\nand so on </th", ends=False)
        message = await s.agent.ask([USER])
        assert (message["content"] or "", message["reasoning_content"]) == ("", "and so on </th")
        await s.tree()


async def test_sub_agents_that_take_turns_are_two_branches(stage):
    async with stage() as s:
        s.engine.says("main one", "sub one", "main two", "sub two")
        main, sub = [SYSTEM, USER], [{"role": "system", "content": "You look things up."}, USER]
        for _ in range(2):
            for conversation in (main, sub):
                conversation += [await s.agent.ask(conversation), AGAIN]
        tree = await s.tree()
        assert [node.parent for node in tree.nodes] == [None, None, 0, 1]


async def test_a_compacted_history_is_a_branch_of_its_own(stage):
    async with stage() as s:
        s.engine.says("one", "two", "three")
        messages = [SYSTEM, USER]
        for _ in range(2):
            messages += [await s.agent.ask(messages), AGAIN]
        await s.agent.ask([SYSTEM, {"role": "user", "content": "So far: 12. Sure?"}])
        assert len((await s.tree()).branches) == 2


async def test_a_retry_and_a_second_thought_share_what_came_before(stage):
    async with stage() as s:
        s.engine.says("one", "two", "two again", "other")
        first = await s.agent.ask([USER])
        before = [USER, first, AGAIN]
        await s.agent.ask(before)
        await s.agent.ask(before)
        await s.agent.ask([USER, first, {"role": "user", "content": "No?"}])
        tree = await s.tree()
        assert [node.parent for node in tree.nodes] == [None, 0, 0, 0]
        assert len(tree.branches) == 3


async def test_an_edited_answer_is_never_taken_for_what_was_drawn(stage):
    async with stage() as s:
        s.engine.says("It is 12.", "Yes.")
        await s.agent.ask([USER])
        await s.agent.ask([USER, {"role": "assistant", "content": "It is 13."}, AGAIN])
        assert len((await s.tree()).branches) == 2


async def test_a_stop_text_of_the_agents_ends_the_branch_without_losing_tokens(stage):
    async with stage() as s:
        s.engine.says("It is 12. STOP here", "Yes.", spelled=True)
        message = await s.agent.ask([USER], stop=["STOP"])
        assert message["content"] == "It is 12. "
        # the engine is told to stop, so only what it had drawn by then counts
        prompt, ids = s.engine.drawn[0]
        length = len(s.engine.bytes_of("It is 12. STOP"))
        s.engine.drawn[0] = (prompt, ids[:length])
        await s.agent.ask([USER, message, AGAIN])
        await s.tree()
