"""Answers become content and tool calls, however they are cut; what is no call stays content."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_trainer.chat.parse import AnswerParser, StopTexts

CALL = '<tool_call>\n{"name": "multiply", "arguments": {"a": 3, "b": 4}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def read(pieces: list[str], **options) -> tuple[str, list[tuple[str, str]], AnswerParser]:
    """The content and the calls that a client assembles from the deltas."""
    parser = AnswerParser(lambda index: f"id{index}", **options)
    deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.end()
    content = "".join(delta.get("content", "") for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    assert [call["id"] for call in calls] == [f"id{i}" for i in range(len(calls))]
    assert content == parser.content
    return content, [(c["function"]["name"], c["function"]["arguments"]) for c in calls], parser


MULTIPLY, NOW = ("multiply", '{"a": 3, "b": 4}'), ("now", "{}")


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Hello", "Hello", []),
        (CALL, "", [MULTIPLY]),
        (f"Let me see. {CALL}", "Let me see. ", [MULTIPLY]),
        (CALL + OTHER, "", [MULTIPLY, NOW]),
        (f"{CALL}\n{OTHER} done", "\n done", [MULTIPLY, NOW]),
        ('<tool_call>{"arguments":{"q":"é <b>"},"name":"f"}</tool_call>', "", [("f", '{"q": "é <b>"}')]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        ("a < b <tool", "a < b <tool", []),
    ],
)
def test_answers_are_read(text, content, calls):
    assert read([text])[:2] == (content, calls)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{broken</tool_call>",
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>"f"</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1',
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
    ids=["no JSON", "list arguments", "number as name", "no name", "a string", "cut off", "nested too deep"],
)
def test_what_is_no_call_stays_content_word_for_word_and_is_counted(text):
    content, calls, parser = read([text])
    assert (content, calls, parser.unparsed) == (text, [], 1)


def test_a_broken_call_does_not_hide_a_good_one():
    content, calls, parser = read(["<tool_call>{</tool_call>" + CALL])
    assert (content, calls, parser.unparsed) == ("<tool_call>{</tool_call>", [MULTIPLY], 1)


def test_without_tools_everything_is_content():
    assert read([CALL], calls_allowed=False)[:2] == (CALL, [])


@given(
    st.lists(
        st.sampled_from([CALL, OTHER, "text ", "<", "<tool_", "call>", "é", "<tool_call>{</tool_call>"]), max_size=6
    ).map("".join),
    st.data(),
)
def test_cuts_change_nothing(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, cut = read([text]), read(pieces)
    assert cut[:2] == whole[:2] and cut[2].unparsed == whole[2].unparsed


def test_content_is_given_as_soon_as_it_is_certain():
    parser = AnswerParser(str)
    assert parser.push("The answer") == [{"content": "The answer"}]
    assert parser.push(" is <tool") == [{"content": " is "}]
    assert parser.push("box>") == [{"content": "<toolbox>"}]


@given(st.text("abc", max_size=12), st.lists(st.text("abc", min_size=1, max_size=3), max_size=2), st.data())
def test_stop_texts_end_the_text_before_the_first_of_them_however_it_is_cut(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    watch, given_text = StopTexts(stops), ""
    for piece in pieces:
        given_text += watch.push(piece)
        if watch.found:
            break
    given_text += watch.end()
    # the stop that is complete first ends the text
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    if not ends:
        assert given_text == text and not watch.found
    else:
        assert watch.found and text.startswith(given_text)
        assert not any(stop in given_text for stop in stops)
        assert any(text.startswith(given_text + stop) for stop in stops)


def test_arguments_parse_back():
    _, calls, _ = read([CALL])
    assert json.loads(calls[0][1]) == {"a": 3, "b": 4}
