"""No secret reaches the disk: in any form, in any place of a text, however the text is cut into pieces."""

import base64
import json
import random
import re
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from osmosis_ai.gateway.session import OpenSession
from osmosis_ai.redaction import MARK, Redactor, ambient_secret_values, forms_of, named_secret_values

ENCODINGS = {
    "plain": lambda secret, before: before + secret,
    "json": lambda secret, before: json.dumps({"said": before + secret}),
    "json in unicode": lambda secret, before: json.dumps({"said": before + secret}, ensure_ascii=False),
    "json in json": lambda secret, before: json.dumps(json.dumps([before + secret])),
    "repr": lambda secret, before: repr([before + secret]),
    "url": lambda secret, before: "/" + quote(before + secret, safe=""),
    "path": lambda secret, before: quote(before + secret),
    "form": lambda secret, before: "key=" + quote_plus(before + secret),
    "lower url": lambda secret, before: re.sub("%..", lambda escape: escape[0].lower(), quote(secret, safe="")),
    "base64": lambda secret, before: base64.b64encode((before + secret + before).encode()).decode(),
    "base64 of urls": lambda secret, before: base64.urlsafe_b64encode((before + secret).encode()).decode(),
    "basic": lambda secret, before: "Basic " + base64.b64encode(f"{before}:{secret}".encode()).decode(),
}
# What secrets are made of, and what encoders change.
secret_texts = st.text(st.sampled_from("aB3-_/+=\"'\\%& é€😀"), min_size=8, max_size=40).filter(
    lambda text: len(text.strip()) >= 8
)


def is_in(secret: str, text: str) -> bool:
    """Whether somebody who reads the text learns the secret by undoing one encoding."""
    if secret in text or any(form in text for form in forms_of(secret)):
        return True
    data = secret.encode()
    for word in text.replace("-", "+").replace("_", "/").split():
        for start in range(4):
            part = word[start:]
            try:
                if data in base64.b64decode(part[: len(part) // 4 * 4]):
                    return True
            except ValueError:
                continue
    return False


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    secret=secret_texts,
    encoding=st.sampled_from(sorted(ENCODINGS)),
    before=st.text("xyz ", max_size=5),
    cuts=st.lists(st.integers(0, 200), max_size=8),
    others=st.lists(secret_texts, max_size=2),
)
@example(secret="sk-12345678", encoding="base64", before="x", cuts=[3, 4, 5], others=[])
@example(secret="aaaaaaaa", encoding="plain", before="", cuts=[1, 9], others=["aaaaaaaaa"])
def test_a_secret_in_pieces_never_reaches_the_disk(tmp_path_factory, secret, encoding, before, cuts, others):
    written = f"before {ENCODINGS[encoding](secret, before)} after\nnext line".encode()
    edges = sorted({min(cut, len(written)) for cut in cuts})
    path = Path(tmp_path_factory.getbasetemp()) / "log.txt"
    stream = Redactor([secret, *others]).stream()
    with path.open("w", encoding="utf-8") as file:
        for start, end in zip([0, *edges], [*edges, len(written)], strict=True):
            file.write(stream.feed_bytes(written[start:end]))
        file.write(stream.finish())
    told = path.read_text(encoding="utf-8")
    assert not is_in(secret, told.replace(MARK, "\n"))
    assert told.startswith("before ")
    assert MARK in told


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.text("abc", min_size=1, max_size=6), max_size=4),
    st.text("abcd\n", max_size=60),
    st.lists(st.integers(0, 60)),
)
def test_a_stream_gives_what_the_whole_text_gives(values, text, cuts):
    redactor = Redactor(values)
    stream = redactor.stream()
    edges = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]
    told = "".join([*map(stream.feed, pieces), stream.finish()])
    assert told == redactor.text(text)
    assert not any(value in told.replace(MARK, "\0") for value in values)


def test_a_stream_keeps_back_no_more_than_a_value_may_begin_with():
    stream = Redactor(["hunter2-hunter2", "two\nlines of it"]).stream()
    assert stream.feed("a line\n") == "a line\n"
    assert stream.feed("a hunt") == "a "
    assert stream.feed("ress\ntwo\n") == "huntress\n"
    assert stream.feed("other.") == "two\nother."
    assert stream.finish() == ""


def test_a_stream_learns_values_while_it_runs():
    redactor = Redactor()
    stream = redactor.stream()
    assert stream.feed("hunter2 ") == "hunter2 "
    redactor.add("hunter2")
    assert stream.feed("hunter2 ") == "[REDACTED] "


def test_values_that_overlap_are_cut_as_one():
    assert Redactor(["abcd", "cdef"]).text("xabcdefx") == "x[REDACTED]x"
    assert Redactor(["abc", "abcdef", "x", ""]).text("abcdef abc fox") == "[REDACTED] [REDACTED] fo[REDACTED]"


def test_short_values_are_looked_for_as_they_are_only():
    assert Redactor(["hunter2"]).text("hunter2 " + base64.b64encode(b"hunter2").decode()) == "[REDACTED] aHVudGVyMg=="
    assert Redactor(['a"b']).text('a"b {"x": "a\\"b"}') == '[REDACTED] {"x": "[REDACTED]"}'


def test_each_line_of_a_key_file_is_a_secret_of_its_own():
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASC\nshort\n-----END KEY-----\n"
    redactor = Redactor([pem])
    assert redactor.text(pem) == MARK
    assert redactor.text("log: MIIEvQIBADANBgkqhkiG") == f"log: {MARK}"
    assert redactor.text("short") == "short"
    assert Redactor(["from-a-file\n"]).text("key from-a-file.") == f"key {MARK}."


def test_json_values_are_redacted_in_keys_and_numbers_too():
    redactor = Redactor(["hunter2", "1234567890"])
    told = redactor.value({"a": ["hunter2", 1234567890, 12, True, None], "hunter2": {"b": 0.5}})
    assert told == {"a": [MARK, MARK, 12, True, None], MARK: {"b": 0.5}}


def test_a_batch_is_searched_at_once_and_each_text_stays_one():
    redactor = Redactor(["hunter2"])
    assert redactor.texts(["a", "hunter2", ""]) == ["a", MARK, ""]
    assert redactor.texts(["hunt", "er2"]) == ["hunt", "er2"]
    assert redactor.texts([]) == []


def test_with_values_leaves_the_first_redactor_as_it_is():
    first = Redactor(["hunter2"])
    second = first.with_values("password")
    assert second.text("hunter2 password") == f"{MARK} {MARK}"
    assert first.text("hunter2 password") == f"{MARK} password"


@pytest.mark.parametrize("cut", [5, 16, 40, 79])
def test_the_key_of_any_rollout_is_cut_out_by_its_shape_also_in_pieces(cut):
    key = OpenSession("0" * 32, "http://127.0.0.1:1", keep_alive=False).session.key
    stream = Redactor().stream()
    assert stream.feed(f"Bearer {key[:cut]}") + stream.feed(key[cut:] + ", x") + stream.finish() == f"Bearer {MARK}, x"
    assert Redactor().text(f"sha256 {'0' * 64} osmosis-rollout-x") == f"sha256 {'0' * 64} osmosis-rollout-x"


def test_hostile_output_costs_no_more_than_its_length():
    chance = random.Random(1)
    values = ["a" * 4000 + "b", *("".join(chance.choices("abcdef0123456789", k=40)) for _ in range(20))]
    stream = Redactor(values).stream()
    started = time.process_time()
    for _ in range(20):
        assert MARK not in stream.feed("a" * 2047 + "c" + "a" * 2048)  # at each place the difference comes late
    assert set(stream.finish()) == {"a"}
    assert time.process_time() - started < 2  # 0.02 s here; compared letter by letter it would be five


def test_ambient_values_are_those_of_known_names_and_long_enough():
    environ = {
        "OPENAI_API_KEY": "sk-12345678", "XAI_API_KEY": "short", "HF_TOKEN": "hf_12345678", "HOME": "/home/someone",
        "AWS_SECRET_ACCESS_KEY": "s" * 40, "MY_API_KEY": "12345678",
    }  # fmt: skip
    assert set(ambient_secret_values(environ)) == {"sk-12345678", "hf_12345678", "s" * 40}
    assert set(named_secret_values(environ)) == {"sk-12345678", "hf_12345678", "s" * 40, "12345678"}
