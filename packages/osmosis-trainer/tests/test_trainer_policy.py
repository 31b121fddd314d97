"""`osmosis/nano` as a policy: exact tokens over turns, OpenAI's parameters, errors that name what is wrong."""

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import aclosing

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, Policy, PolicyError
from osmosis_trainer import EMBEDDED_MODELS, embedded_policy
from osmosis_trainer.engines import open_engine
from osmosis_trainer.policy import EnginePolicy

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
SYSTEM = {"role": "system", "content": "Use the multiply tool. Then answer with #### <number>."}
GREEDY = {"temperature": 0}


@pytest.fixture
async def nano():
    policy = embedded_policy("osmosis/nano")
    yield policy
    await policy.aclose()


def ask(text: str, *, tools=TOOLS, rollout_id: str = "r", system=(SYSTEM,), **params) -> ChatRequest:
    return ChatRequest([*system, {"role": "user", "content": text}], tools, params, rollout_id)


async def answer(policy: EnginePolicy, request: ChatRequest) -> tuple[dict, ChatDelta]:
    """The message a client assembles, and the last delta."""
    message: dict = {"role": "assistant", "content": None}
    last = ChatDelta()
    async for last in policy.chat(request):
        if text := last.delta.get("content"):
            message["content"] = (message["content"] or "") + text
        for call in last.delta.get("tool_calls", []):
            message.setdefault("tool_calls", []).append({k: v for k, v in call.items() if k != "index"})
    return message, last


async def test_it_is_a_policy_and_names_its_model(nano):
    assert isinstance(nano, Policy)
    assert nano.model == "osmosis/nano"
    await nano.preflight()


def test_an_unknown_model_is_refused_with_those_that_exist():
    with pytest.raises(ValidationError, match=r"'osmosis/giant' is no embedded model; there is osmosis/nano"):
        embedded_policy("osmosis/giant")
    assert EMBEDDED_MODELS == ("osmosis/nano",)


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, osmosis_trainer; print([m for m in ('numpy', 'tokenizers', 'jinja2', 'safetensors') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_blas_gets_one_thread_and_child_processes_inherit_no_setting():
    code = (
        "import os; [os.environ.pop(n, None) for n in ('OPENBLAS_NUM_THREADS','OMP_NUM_THREADS','MKL_NUM_THREADS','VECLIB_MAXIMUM_THREADS')];"
        "import osmosis_trainer.engine.arrays, threading;"
        "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


async def test_the_likeliest_answer_calls_the_tool_with_the_numbers_asked(nano):
    message, last = await answer(nano, ask("What is 47 * 83?", **GREEDY))
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "multiply"
    assert json.loads(call["function"]["arguments"]) == {"a": 47, "b": 83}
    assert last.finish_reason == "tool_calls"


async def test_tokens_usage_and_text_belong_together(nano):
    message, last = await answer(nano, ask("What is 47 * 83?", tools=None))
    assert last.tokens is not None and last.usage is not None
    assert last.usage.prompt_tokens == len(last.tokens.prompt_ids)
    assert last.usage.completion_tokens == len(last.tokens.ids) == len(last.tokens.logprobs)
    assert nano.tokenizer.decode(last.tokens.ids) == (message["content"] or "") + "<|im_end|>"
    assert last.tokens.version == "osmosis/nano"
    assert all(logprob <= 1e-6 for logprob in last.tokens.logprobs)
    text = nano.tokenizer.decode(last.tokens.prompt_ids)
    assert text.endswith("<|im_start|>user\nWhat is 47 * 83?<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("replay", ["verbatim", "as frameworks send it"])
async def test_a_later_turn_begins_with_the_very_tokens_of_the_earlier_ones(nano, replay):
    continued = 0
    for i in range(25):
        rollout, messages = f"r{i}", [SYSTEM, {"role": "user", "content": f"What is {11 + i} * 83?"}]
        before: tuple[int, ...] = ()
        # hot enough that the model often spells its text in tokens that the tokenizer would not choose
        for turn in range(3):
            message, last = await answer(
                nano, ChatRequest(messages, TOOLS, {"temperature": 1.6, "max_tokens": 200}, rollout)
            )
            assert last.tokens is not None and last.usage is not None
            assert last.tokens.prompt_ids[: len(before)] == before, (i, turn)
            if last.finish_reason == "length":
                break
            continued += turn > 0
            before = last.tokens.prompt_ids + last.tokens.ids
            if replay != "verbatim":
                message["content"] = [{"type": "text", "text": message["content"] or ""}]
                for call in message.get("tool_calls", []):
                    call["function"]["arguments"] = json.dumps(
                        json.loads(call["function"]["arguments"]), separators=(",", ":")
                    )
            results = [
                {"role": "tool", "tool_call_id": c["id"], "content": "3901"} for c in message.get("tool_calls", [])
            ]
            messages = [*messages, message, *(results or [{"role": "user", "content": "Sure?"}])]
        await nano.close_session(rollout)
    assert continued > 20


async def test_a_changed_history_is_a_branch_that_shares_what_did_not_change(nano):
    first, done = await answer(nano, ask("What is 47 * 83?", **GREEDY))
    base = [SYSTEM, {"role": "user", "content": "What is 47 * 83?"}]
    edited = {
        **first,
        "tool_calls": [{**first["tool_calls"][0], "function": {"name": "multiply", "arguments": '{"a": 1, "b": 83}'}}],
    }
    _, branch = await answer(nano, ChatRequest([*base, edited, {"role": "tool", "content": "83"}], TOOLS, GREEDY, "r"))
    assert done.tokens is not None and branch.tokens is not None and branch.usage is not None
    assert branch.tokens.prompt_ids[: len(done.tokens.prompt_ids)] == done.tokens.prompt_ids
    assert '"a": 1,' in nano.tokenizer.decode(branch.tokens.prompt_ids)
    assert branch.usage.cached_prompt_tokens >= len(done.tokens.prompt_ids)
    _, back = await answer(nano, ChatRequest([*base, first, {"role": "tool", "content": "3901"}], TOOLS, GREEDY, "r"))
    assert back.tokens is not None
    whole = done.tokens.prompt_ids + done.tokens.ids
    assert back.tokens.prompt_ids[: len(whole)] == whole


async def test_an_answer_cut_by_length_is_not_continued_as_if_it_were_whole(nano):
    message, cut = await answer(nano, ask("What is 47 * 83?", max_tokens=5, **GREEDY))
    assert cut.finish_reason == "length" and cut.usage is not None and cut.usage.completion_tokens == 5
    history = [SYSTEM, {"role": "user", "content": "What is 47 * 83?"}, message, {"role": "user", "content": "Go on."}]
    _, last = await answer(nano, ChatRequest(history, TOOLS, GREEDY, "r"))
    assert last.tokens is not None
    text = nano.tokenizer.decode(last.tokens.prompt_ids)
    assert text == nano.template.render(
        [*(history[:2]), {**message, "content": message["content"] or ""}, history[3]],
        TOOLS,
        add_generation_prompt=True,
    )


async def test_answers_stream_in_pieces_that_add_up(nano):
    request = ask("Repeat: one two three four five six seven", tools=None, temperature=3.0, max_tokens=400)
    pieces = [delta async for delta in nano.chat(request)]
    texts = [piece.delta["content"] for piece in pieces if piece.delta.get("content")]
    ids = [i for i in pieces[-1].tokens.ids if i not in nano._files.stops]
    assert "".join(texts) == nano.tokenizer.decode(ids)
    assert [piece.finish_reason is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_the_same_rollouts_get_the_same_answers_in_any_order(nano):
    async def run(order) -> list[tuple[int, ...]]:
        policy = embedded_policy("osmosis/nano", slots=5)
        tasks = {i: asyncio.create_task(answer(policy, ask(f"What is {i} * 83?", rollout_id=f"r{i}"))) for i in order}
        answers = [(await tasks[i])[1].tokens.ids for i in range(20)]
        await policy.aclose()
        return answers

    assert await run(range(20)) == await run(reversed(range(20)))


async def test_calls_that_ask_the_same_twice_get_two_draws_and_a_seed_makes_them_one(nano):
    free = {(await answer(nano, ask("Write a poem about ice.", temperature=2.0)))[1].tokens.ids for _ in range(4)}
    seeded = {
        (await answer(nano, ask("Write a poem about ice.", temperature=2.0, seed=3)))[1].tokens.ids for _ in range(4)
    }
    other = (await answer(nano, ask("Write a poem about ice.", temperature=2.0, seed=4)))[1].tokens.ids
    assert len(free) > 1 and len(seeded) == 1 and other not in seeded


async def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(nano):
    whole, _ = await answer(nano, ask("Repeat: 12 34 56", tools=None, system=(), **GREEDY))
    assert whole["content"] == "12 34 56"
    message, last = await answer(nano, ask("Repeat: 12 34 56", tools=None, system=(), stop=["34"], **GREEDY))
    assert message["content"] == "12 " and last.finish_reason == "stop"


async def test_tool_choice_is_honoured(nano):
    free, _ = await answer(nano, ask("Hello!", system=(), **GREEDY))
    assert free["content"] and "tool_calls" not in free
    required, last = await answer(nano, ask("Hello!", system=(), tool_choice="required", max_tokens=60, **GREEDY))
    assert required["tool_calls"][0]["function"]["name"] and last.finish_reason == "tool_calls"
    named = {"type": "function", "function": {"name": "multiply"}}
    message, _ = await answer(nano, ask("What is 47 * 83?", tool_choice=named, **GREEDY))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 47, "b": 83}
    none, last = await answer(nano, ask("What is 47 * 83?", tool_choice="none", **GREEDY))
    assert "tool_calls" not in none and "multiply(" not in nano.tokenizer.decode(last.tokens.prompt_ids)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"temperature": -1}, "temperature is -1; it must be a number from 0 to 100"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 1.5}, r"top_p is 1\.5; it must be a number from 0 to 1"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be an integer from 1"),
        ({"max_completion_tokens": 2.5}, r"max_completion_tokens is 2\.5"),
        ({"stop": 5}, "stop is 5; it must be a text or a list of texts"),
        ({"tool_choice": {"type": "function", "function": {"name": "divide"}}}, r"one of the functions \['multiply'\]"),
        ({"tool_choice": "maybe"}, "tool_choice is 'maybe'"),
    ],
)
async def test_a_wrong_parameter_is_named_with_what_it_may_be(nano, params, says):
    with pytest.raises(PolicyError, match=says) as caught:
        await answer(nano, ask("What is 47 * 83?", **params))
    assert caught.value.kind == "bad_request" and caught.value.status == 400


async def test_parameters_that_mean_nothing_here_are_passed_over(nano):
    params = {
        "logprobs": True,
        "top_logprobs": 5,
        "frequency_penalty": 1,
        "response_format": {"type": "json_object"},
        "user": "x",
        "parallel_tool_calls": False,
    }
    message, _ = await answer(nano, ask("What is 47 * 83?", **GREEDY, **params))
    assert message["tool_calls"]


async def test_a_prompt_longer_than_the_context_is_refused_with_both_lengths(nano):
    with pytest.raises(PolicyError, match=r"The prompt has \d+ tokens; osmosis/nano reads at most 2048") as caught:
        await answer(nano, ask("word " * 3000))
    assert caught.value.kind == "bad_request" and caught.value.provider_code == "context_length_exceeded"


async def test_an_answer_stops_where_the_context_ends(nano):
    text = "x" * 5
    while len(nano.tokenizer.encode(text)) < 1900:
        text += " 7"
    _, last = await answer(nano, ask(text, tools=None, temperature=5.0))
    assert last.usage is not None and last.usage.total_tokens <= 2048


async def test_closing_a_call_frees_its_slot_and_closing_a_session_forgets_it(nano):
    async with aclosing(nano.chat(ask("Repeat: 1 2 3", temperature=5.0, max_tokens=1500))) as deltas:
        await anext(deltas)
        await anext(deltas)
    async with asyncio.timeout(15):
        while nano.sampler.busy_slots:
            await asyncio.sleep(0.005)
    assert "r" in nano._rollouts
    await nano.close_session("r")
    await nano.close_session("never opened")
    assert not nano._rollouts


async def test_a_closed_sessions_slot_is_given_away_before_a_living_ones():
    policy = embedded_policy("osmosis/nano", slots=2)

    def say(text: str, rollout: str) -> ChatRequest:
        return ChatRequest([{"role": "user", "content": text}], None, GREEDY, rollout)

    living, _ = await answer(policy, say("Repeat: 11111", "living"))
    await answer(policy, say("Hello!", "closed"))
    await policy.close_session("closed")
    await answer(policy, say("Who are you?", "new"))  # the living session's slot is the longest unused
    history = [{"role": "user", "content": "Repeat: 11111"}, living, {"role": "user", "content": "Again."}]
    _, last = await answer(policy, ChatRequest(history, None, GREEDY, "living"))
    await policy.aclose()
    assert last.usage is not None and last.usage.cached_prompt_tokens > len(policy.tokenizer.encode("11111")) + 10


async def test_a_closed_policy_says_so(nano):
    await nano.aclose()
    with pytest.raises(PolicyError, match="closed") as caught:
        await answer(nano, ask("What is 2 * 3?"))
    assert caught.value.kind == "unavailable"


async def test_many_rollouts_at_once_with_tools_all_finish(nano):
    async def rollout(i: int) -> str:
        messages = [SYSTEM, {"role": "user", "content": f"What is {10 + i} * 7?"}]
        for _ in range(5):
            message, last = await answer(nano, ChatRequest(messages, TOOLS, {"max_tokens": 64}, f"r{i}"))
            messages.append(message)
            if not message.get("tool_calls"):
                return last.finish_reason
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": "70"} for c in message["tool_calls"]]
        return "turns"

    assert set(await asyncio.gather(*(rollout(i) for i in range(150)))) <= {"stop", "length", "turns"}
    assert nano.sampler.busy_slots == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, r"architectures is \['LlamaForCausalLM'\]; the NumPy engine runs"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings has a value the NumPy engine lacks"),
        ({"hidden_act": "gelu", "attention_bias": True}, "attention_bias, hidden_act have values"),
        ({"head_dim": None}, "a size is missing or no number"),
        ({"hidden_size": 128}, "does not fit config.json"),
    ],
)
def test_a_model_the_engine_cannot_run_is_refused_by_name(broken_nano, changes, says):
    with pytest.raises(ValidationError, match=says):
        open_engine("numpy", broken_nano(changes))


@pytest.mark.parity
async def test_a_model_of_another_kind_is_answered_by_torch_with_its_adapter(nano_folder, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from osmosis_trainer.engine.torch_engine import TorchEngine

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "llama"
    config = transformers.LlamaConfig(
        vocab_size=json.loads((nano_folder / "config.json").read_text())["vocab_size"],
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(nano_folder / name, folder)
    engine = TorchEngine(folder, base="llama")
    await engine.create_adapter("a", rank=2)
    for parameter in engine._model.tensors("a").values():
        parameter.data.copy_(torch.randn_like(parameter))
    version = await engine.publish("a")
    await engine.export_peft(version, tmp_path / "adapter")
    await engine.aclose()

    request = ChatRequest([{"role": "user", "content": "Hello"}], None, {"max_tokens": 6, "temperature": 0}, "r")
    said = []
    for model, adapter in (("llama", None), ("llama@a", tmp_path / "adapter")):
        policy = EnginePolicy(model, folder, adapter=adapter, slots=2)
        _, last = await answer(policy, request)
        assert last.tokens is not None and last.tokens.version == model
        said.append(last.tokens.ids)
        await policy.aclose()
    assert said[0] != said[1]
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ValidationError, match="cannot be read"):
        EnginePolicy("llama@a", folder, adapter=tmp_path / "adapter")


def test_a_truncated_weight_file_is_refused_by_path(broken_nano):
    folder = broken_nano({})
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValidationError, match=r"model\.safetensors cannot be read"):
        EnginePolicy("mine", folder)
