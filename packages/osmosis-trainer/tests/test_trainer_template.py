"""nano's chat template: append-only over turns, compact tools, every shape of OpenAI message."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.gateway.policy import PolicyError
from osmosis_trainer.chat.template import ChatTemplate, canonical_arguments, normalise

MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply two numbers. They may be large.\n\nArgs:\n    a: First.\n    b: Second.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "First."},
                "b": {"type": "integer", "title": "B"},
                "unit": {"enum": ["cm", "m"]},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def template(nano_folder):
    return ChatTemplate((nano_folder / "chat_template.jinja").read_text())


def call(name: str, arguments) -> dict:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


texts = st.text(max_size=30) | st.sampled_from(
    ["", "<|im_end|>", "<tool_call>", "{{ x }}", "{% if %}", "\n\n", " trailing "]
)
contents = st.none() | texts | st.lists(texts.map(lambda text: {"type": "text", "text": text}), max_size=3)
arguments = st.dictionaries(texts, st.integers() | texts, max_size=3)
calls = st.builds(call, texts, arguments.map(json.dumps) | texts | arguments)
messages = st.lists(
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "developer", "user"]), contents)
    | st.builds(lambda content, made: {"role": "assistant", "content": content, "tool_calls": made}, contents, st.lists(calls, max_size=3))
    | st.builds(lambda content: {"role": "tool", "tool_call_id": "call_1", "content": content}, contents),
    max_size=6,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(messages, st.sampled_from([None, [MULTIPLY], [MULTIPLY, {"type": "function", "function": {"name": "now"}}]]))
def test_rendering_is_append_only_over_turns(nano_folder, conversation, tools):
    template = ChatTemplate((nano_folder / "chat_template.jinja").read_text())
    normal = normalise(conversation)
    whole = template.render(normal, tools)
    opening = "<|im_start|>assistant\n"
    for count in range(len(normal) + 1):
        part = template.render(normal[:count], tools)
        assert whole.startswith(part)
        assert template.render(normal[:count], tools, add_generation_prompt=True) == part + opening
        # what follows does not depend on what came before: a later turn may be rendered on its own
        assert whole == part + template.render(normal[count:])


def test_tools_take_one_line_each(template):
    assert template.render([], [MULTIPLY, {"type": "function", "function": {"name": "now"}}]) == (
        "<|im_start|>tools\n"
        'multiply(a: integer, b: integer, unit?: "cm"|"m", note?: any): Multiply two numbers.\n'
        "now()\n"
        "<|im_end|>\n"
    )


def test_a_conversation_with_a_tool_reads_like_this(template):
    conversation = [
        {"role": "developer", "content": "Calculate."},
        {"role": "user", "content": [{"type": "text", "text": "3 * "}, {"type": "text", "text": "4?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("multiply", '{"a":3,"b":4}'), call("now", "")]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12"}]},
        {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
    ]
    assert template.render(normalise(conversation), add_generation_prompt=True) == (
        "<|im_start|>system\nCalculate.<|im_end|>\n"
        "<|im_start|>user\n3 * 4?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "multiply", "arguments": {"a": 3, "b": 4}}\n</tool_call>'
        '<tool_call>\n{"name": "now", "arguments": }\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n12<|im_end|>\n"
        "<|im_start|>tool\nnoon<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ('{"a":1,  "b":\n2}', '{"a": 1, "b": 2}'),
        ({"a": "é"}, '{"a": "é"}'),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ('{"a": 1', '{"a": 1'),
        ("a=1", "a=1"),
        (None, "{}"),
    ],
)
def test_arguments_have_one_spelling_and_broken_ones_stay_as_they_came(given, canonical):
    assert canonical_arguments(given) == canonical


def test_messages_that_mean_the_same_become_equal():
    plain = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call("f", '{"a": 1}')]},
    ]
    framework = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "ann"},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call("f", '{"a":1}')]},
    ]
    assert normalise(plain) == normalise(framework)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"role": "critic", "content": "x"}, "Message 0 has the role 'critic'"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "part of type 'image_url'"),
        ({"role": "user", "content": 5}, "content of type int"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool call without a function name"),
        ({"role": "assistant", "tool_calls": ["x"]}, "tool call without a function name"),
    ],
)
def test_what_cannot_be_rendered_is_the_callers_bad_request(message, says):
    with pytest.raises(PolicyError, match=says) as caught:
        normalise([message])
    assert caught.value.kind == "bad_request" and caught.value.status == 400


def test_a_malformed_tool_schema_is_a_bad_request(template):
    with pytest.raises(PolicyError, match="cannot render") as caught:
        template.render(
            [], [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": 5}, "required": 7}}}]
        )
    assert caught.value.kind == "bad_request"


def test_lone_surrogates_do_not_reach_the_tokenizer(template):
    text = template.render(normalise([{"role": "user", "content": "a\ud800b"}]))
    assert text == "<|im_start|>user\na?b<|im_end|>\n"
