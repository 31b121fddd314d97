"""Thinking is told apart from the answer, however the text is split; without tags everything is answer."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.errors import ValidationError
from osmosis_trainer.chat.files import read_chat_files
from osmosis_trainer.chat.reasoning import Thinking


def read(pieces: list[str], **options: bool) -> tuple[str, str]:
    thinking = Thinking(**{"expected": True, **options})
    parts = [part for piece in pieces for part in thinking.push(piece)] + thinking.end()
    return "".join(p.text for p in parts if p.thinking), "".join(p.text for p in parts if not p.thinking)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nhm\n</think>\n\nYes", "hm\n", "\n\nYes"),
        ("<think>\n\n</think>\n\nYes", "", "\n\nYes"),
        ("\n<think>hm</think>Yes", "hm", "Yes"),
        ("Yes <think>no tag</think>", "", "Yes <think>no tag</think>"),
        ("<think>never closed", "never closed", ""),
        ("<thin", "", "<thin"),
        ("<think>a < b </thin </think>Yes", "a < b </thin ", "Yes"),
        ("", "", ""),
    ],
)
@given(cuts=st.sets(st.integers(0, 40)))
def test_however_the_text_is_split(text, thought, answer, cuts):
    places = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    assert read([text[a:b] for a, b in pairwise(places)]) == (thought, answer)


def test_a_prompt_that_opened_the_tag_is_answered_with_thinking():
    assert read(["hm</think>", "Yes"], begun=True) == ("hm", "Yes")


def test_models_that_do_not_think_are_read_word_for_word():
    assert read(["<think>x</think>y"], expected=False) == ("", "<think>x</think>y")


def test_the_template_says_what_ends_an_answer(nano_folder, tmp_path):
    files = read_chat_files(nano_folder)
    assert files.end == files.tokenizer.token_id("<|im_end|>")
    assert files.stops == {files.end, files.tokenizer.token_id("<|endoftext|>")}
    assert not files.thinks

    folder = tmp_path / "model"
    shutil.copytree(nano_folder, folder)
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    other = "{% for m in messages %}{{ eos_token }}{{ m.content }}<|endoftext|>{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": other}))
    inside = read_chat_files(folder)
    assert inside.end == inside.tokenizer.token_id("<|endoftext|>")
    assert inside.template.render([{"role": "user", "content": "x"}]) == "<|im_end|>x<|endoftext|>"

    for template, message in (
        ("{{ messages[-1].content }}", "does not end an assistant's message with a special token"),
        ("{% if %}", "The chat template cannot be read"),
        ("{{ raise_exception('no') }}", "cannot be used"),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
        with pytest.raises(ValidationError, match=message):
            read_chat_files(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValidationError, match="has no chat template"):
        read_chat_files(folder)
