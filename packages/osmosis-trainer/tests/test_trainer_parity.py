"""nano under transformers: the same logits, the same ids, the same chat text as in our engine."""

import os

import pytest
from osmosis_trainer.chat.template import ChatTemplate, normalise
from osmosis_trainer.chat.tokens import TextTokenizer
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.model import Decoder, KeyValueCache
from osmosis_trainer.engine.weights import fuse, parameter_shapes, read_parameters, read_shape

pytestmark = pytest.mark.parity

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # without it transformers waits for a hub it cannot reach
torch = pytest.importorskip("torch", reason="needs the dependency group `parity`")
transformers = pytest.importorskip("transformers", reason="needs the dependency group `parity`")

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers. Exactly.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "mode": {"enum": ["fast", "exact"]}, "x": {}},
                "required": ["a"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]
CONVERSATION = [
    {"role": "system", "content": "Calculate. é漢字 🙂"},
    {"role": "user", "content": [{"type": "text", "text": "What is 3 * 4?\n"}]},
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 3, "mode": "exact"}'}},
            {"id": "2", "type": "function", "function": {"name": "now", "arguments": "{broken"}},
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "12"},
    {"role": "tool", "tool_call_id": "2", "content": "noon"},
    {"role": "assistant", "content": "#### 12"},
]


@pytest.fixture(scope="module")
def theirs(nano_folder):
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(nano_folder, dtype=torch.float32)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    return model.eval(), transformers.AutoTokenizer.from_pretrained(nano_folder)


def test_logits_are_equal(nano_folder, theirs):
    model, _ = theirs
    shape = read_shape(nano_folder)
    weights, decoder = fuse(read_parameters(nano_folder, shape), shape), Decoder(shape, shape.max_position_embeddings)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, shape.vocab_size, n) for n in (3, 200, 900)]
    cache = KeyValueCache(shape, 3, shape.max_position_embeddings)
    ours = [decoder.prefill(weights, cache, [2, 0, 1], [0, 0, 0], prompts)]
    then = rng.integers(0, shape.vocab_size, (4, 3))
    lengths = np.array([len(prompts[1]), len(prompts[2]), len(prompts[0])])
    for step, tokens in enumerate(then):
        ours.append(decoder.decode(weights, cache, np.arange(3), lengths + step, tokens))
    for i, slot in enumerate((2, 0, 1)):
        ids = torch.tensor(np.concatenate([prompts[i], then[:, slot]]))[None]
        with torch.no_grad():
            expected = model(ids).logits[0, len(prompts[i]) - 1 :].numpy()
        mine = np.stack([ours[0][i], *(later[slot] for later in ours[1:])])
        assert np.abs(mine - expected).max() < 2e-3 and np.abs(mine - expected).mean() < 1e-4


def test_every_parameter_is_loaded_and_none_is_made_up(nano_folder, theirs):
    model, _ = theirs
    shape = read_shape(nano_folder)
    names = {name for name, _ in model.named_parameters()}
    assert names == set(parameter_shapes(shape))
    assert sum(p.numel() for p in model.parameters()) == sum(
        int(np.prod(size)) for size in parameter_shapes(shape).values()
    )


@pytest.mark.parametrize("count", range(1, len(CONVERSATION) + 1))
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
def test_chat_text_and_ids_are_equal(nano_folder, theirs, count, tools):
    _, tokenizer = theirs
    messages = normalise(CONVERSATION[:count])
    template = ChatTemplate((nano_folder / "chat_template.jinja").read_text())
    ours = TextTokenizer(nano_folder / "tokenizer.json")
    text = template.render(messages, tools, add_generation_prompt=True)
    for given in (messages, CONVERSATION[:count]):
        assert tokenizer.apply_chat_template(given, tools=tools, tokenize=False, add_generation_prompt=True) == text
    ids = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False)
    assert ours.encode(text) == list(ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "text", ["", "a  b\n\n c", "0123 45.6", "é漢字🙂 \x00\x07", "<|im_end|> <tool_call>", "snake_case x*y"]
)
def test_plain_text_encodes_equally(nano_folder, theirs, text):
    _, tokenizer = theirs
    ours = TextTokenizer(nano_folder / "tokenizer.json")
    assert ours.encode(text) == tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ours.encode(text)) == ours.decode(ours.encode(text)) == text


def test_generation_ends_where_our_answers_end(theirs):
    model, tokenizer = theirs
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.eos_token_id == end and end in model.generation_config.eos_token_id
    assert model.config.max_position_embeddings == 2048
