"""nano's tokenizer: byte-complete, digits apart, streams whole characters, cuts at message ends."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.errors import ValidationError
from osmosis_trainer.chat.template import ChatTemplate
from osmosis_trainer.chat.tokens import TextTokenizer


@pytest.fixture(scope="module")
def tokenizer(nano_folder):
    return TextTokenizer(nano_folder / "tokenizer.json")


@settings(deadline=None, max_examples=300)
@given(st.text())
def test_any_text_encodes_and_decodes_without_loss(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_byte_has_a_token(tokenizer):
    for value in range(256):
        assert any(tokenizer._bytes[i] == bytes([value]) for i in range(len(tokenizer._bytes)))


def test_digits_are_tokens_of_their_own(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("x1234")] == ["x", "1", "2", "3", "4"]


@settings(deadline=None)
@given(st.text(min_size=1), st.data())
def test_a_stream_gives_the_same_text_however_it_is_cut(tokenizer, text, data):
    ids = tokenizer.encode(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5)))
    stream = tokenizer.stream()
    pieces = [stream.push(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)] + [stream.end()]
    assert "".join(pieces) == text
    assert all("�" not in piece for piece in pieces) or "�" in text


def test_a_character_cut_off_becomes_a_replacement_character(tokenizer):
    stream = tokenizer.stream()
    ids = tokenizer.encode("é漢")
    assert stream.push(ids[:-1]) == "é"
    assert stream.end() == "�"


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=4))
def test_a_conversation_encodes_to_its_messages_ids_in_a_row(nano_folder, tokenizer, contents):
    template = ChatTemplate((nano_folder / "chat_template.jinja").read_text())
    messages = [{"role": "user", "content": content} for content in contents]
    parts = [tokenizer.encode(template.render([message])) for message in messages]
    assert tokenizer.encode(template.render(messages)) == [i for part in parts for i in part]


def test_a_tokenizer_of_another_kind_is_refused_by_name(nano_folder, tmp_path):
    specification = json.loads((nano_folder / "tokenizer.json").read_text())
    specification["model"]["vocab"]["▁word"] = len(specification["model"]["vocab"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(specification))
    with pytest.raises(ValidationError, match="no byte-level BPE"):
        TextTokenizer(path)
    path.write_text("{")
    with pytest.raises(ValidationError, match=r"tokenizer\.json cannot be read"):
        TextTokenizer(path)
