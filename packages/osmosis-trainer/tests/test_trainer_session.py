"""A later turn begins with the very ids of the earlier ones, or is a branch; the text is right in both cases."""

import pytest
from osmosis_trainer.chat.session import ChatSession
from osmosis_trainer.chat.template import ChatTemplate, normalise
from osmosis_trainer.chat.tokens import TextTokenizer

USER = {"role": "user", "content": "What is 3 * 4?"}
SURE = {"role": "user", "content": "Sure?"}


@pytest.fixture
def tokenizer(nano_folder):
    return TextTokenizer(nano_folder / "tokenizer.json")


@pytest.fixture
def template(nano_folder):
    return ChatTemplate((nano_folder / "chat_template.jinja").read_text())


@pytest.fixture
def session(template, tokenizer):
    return ChatSession(template, tokenizer)


def spelled(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Ids that the tokenizer itself would not choose: one token a character."""
    return [i for character in text for i in tokenizer.encode(character)] + [tokenizer.token_id("<|im_end|>")]


def told(session: ChatSession, tokenizer: TextTokenizer, messages: list[dict], ids: list[int], answer: dict):
    prompt = session.prompt(normalise(messages), None)
    session.answered(prompt, ids, normalise([answer])[0], tokenizer.token_id("<|im_end|>"))
    return prompt


def test_sampled_ids_are_kept_although_the_tokenizer_would_choose_others(session, template, tokenizer):
    ids = spelled(tokenizer, "The answer is 12.")
    answer = {"role": "assistant", "content": "The answer is 12."}
    assert tokenizer.encode("The answer is 12.") != ids[:-1]
    first = told(session, tokenizer, [USER], ids, answer)
    later = session.prompt(normalise([USER, answer, SURE]), None)
    assert list(later.ids[: later.reused]) == [*first.ids, *ids]
    assert tokenizer.decode(later.ids) == template.render([USER, answer, SURE], add_generation_prompt=True)


def test_a_tool_call_is_recognised_whatever_its_json_is_spelled_like(session, tokenizer):
    text = '<tool_call>{"name":"multiply","arguments":{"a":3,"b":4}}</tool_call>'
    ids = [*tokenizer.encode(text), tokenizer.token_id("<|im_end|>")]
    call = {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 3, "b": 4}'}}
    first = told(session, tokenizer, [USER], ids, {"role": "assistant", "content": "", "tool_calls": [call]})
    replayed = {**call, "function": {"name": "multiply", "arguments": '{"a":3,\n"b":4}'}}
    history = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [replayed]},
        {"role": "tool", "content": "12"},
    ]
    later = session.prompt(normalise(history), None)
    assert list(later.ids[: later.reused]) == [*first.ids, *ids]
    # what the model really wrote, not what the template would have written
    assert text in tokenizer.decode(later.ids)


def test_the_deepest_conversation_that_matches_is_continued(session, tokenizer):
    one, two = {"role": "assistant", "content": "12"}, {"role": "assistant", "content": "Yes"}
    told(session, tokenizer, [USER], spelled(tokenizer, "12"), one)
    told(session, tokenizer, [USER, one, SURE], spelled(tokenizer, "Yes"), two)
    deep = session.prompt(normalise([USER, one, SURE, two, SURE]), None)
    branch = session.prompt(normalise([USER, one, SURE, {"role": "assistant", "content": "No"}, SURE]), None)
    fresh = session.prompt(normalise([SURE, one, SURE]), None)
    assert deep.reused > branch.reused > fresh.reused == 0
    assert deep.ids[: branch.reused] == branch.ids[: branch.reused]


@pytest.mark.parametrize(
    "change",
    [
        {"role": "assistant", "content": "12 "},
        {"role": "user", "content": "12"},
        {"role": "assistant", "content": "12", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
    ],
    ids=["a space more", "another role", "a call more"],
)
def test_a_changed_answer_is_not_taken_for_the_sampled_one(session, tokenizer, change):
    told(session, tokenizer, [USER], spelled(tokenizer, "12"), {"role": "assistant", "content": "12"})
    assert session.prompt(normalise([USER, change, SURE]), None).reused == 0


def test_other_tools_make_another_conversation(session, tokenizer):
    answer = {"role": "assistant", "content": "12"}
    told(session, tokenizer, [USER], spelled(tokenizer, "12"), answer)
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert session.prompt(normalise([USER, answer, SURE]), tools).reused == 0


def test_a_cut_answer_closes_its_branch(session, tokenizer):
    ids = spelled(tokenizer, "12")[:-1]
    answer = {"role": "assistant", "content": "12"}
    told(session, tokenizer, [USER], ids, answer)
    assert session.prompt(normalise([USER, answer, SURE]), None).reused == 0


def test_a_template_that_rewrites_history_makes_a_branch_and_never_a_wrong_prompt(tokenizer):
    # the last user turn is marked, so an earlier rendering is no beginning of the later one
    rewriting = ChatTemplate(
        "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ '!' if loop.last and m.role == 'user' else '' }}"
        "{{ m.content }}<|im_end|>\n{%- endfor -%}{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}"
    )
    session = ChatSession(rewriting, tokenizer)
    answer = {"role": "assistant", "content": "12"}
    told(session, tokenizer, [USER], spelled(tokenizer, "12"), answer)
    later = session.prompt(normalise([USER, answer, SURE]), None)
    assert tokenizer.decode(later.ids) == rewriting.render(normalise([USER, answer, SURE]), add_generation_prompt=True)
