"""logs.txt and the secrets that must not be in it."""

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.redaction import Redactor, ambient_secret_values
from osmosis_ai.evaluation.runlog import RunLog, rewrite_redacted
from osmosis_ai.gateway.session import OpenSession


def test_the_longest_value_is_cut_first_and_short_given_values_too() -> None:
    redactor = Redactor(["abc", "abcdef", "x", ""])
    assert redactor.text("abcdef abc fox") == "[REDACTED] [REDACTED] fo[REDACTED]"
    assert Redactor().text("abc") == "abc"


def test_a_value_is_found_as_json_writes_it() -> None:
    redactor = Redactor(['p"w\\é\n'])
    assert redactor.text('{"a":"p\\"w\\\\é\\n"} {"a":"p\\"w\\\\\\u00e9\\n"}') == '{"a":"[REDACTED]"} {"a":"[REDACTED]"}'


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=5), st.text("abcd", max_size=30))
def test_no_value_is_left(values: list[str], text: str) -> None:
    redacted = Redactor(values).text(text)
    assert not any(value in redacted.replace("[REDACTED]", "\n") for value in values)


def test_the_key_of_any_rollout_is_cut_out_by_its_shape() -> None:
    key = OpenSession("0" * 32, "http://127.0.0.1:1", keep_alive=False).session.key
    assert Redactor(["other"]).text(f"Bearer {key}, other") == "Bearer [REDACTED], [REDACTED]"
    assert Redactor().text(f"sha256 {'0' * 64}") == f"sha256 {'0' * 64}"


def test_ambient_values_are_those_of_known_names_and_long_enough() -> None:
    environ = {
        "OPENAI_API_KEY": "sk-12345678", "XAI_API_KEY": "short", "HF_TOKEN": "hf_12345678", "HOME": "/home/someone",
        "AWS_SECRET_ACCESS_KEY": "s" * 40, "MY_API_KEY": "12345678",
    }  # fmt: skip
    assert set(ambient_secret_values(environ)) == {"sk-12345678", "hf_12345678", "s" * 40}


def test_a_line_has_time_level_step_message_and_sorted_details(tmp_path: Path) -> None:
    log = RunLog(tmp_path, Redactor(["hunter2"]))
    log.line("INFO", "result", "work item finished", {"b": 1, "a": "hunter2", "ü": None})
    log.line("WARNING", "rollout-server", "two\nlines\r\nand \ud800 hunter2")
    text = (tmp_path / "logs.txt").read_text()
    first, second = text.splitlines()
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z INFO \[result\] work item finished \{"a":"\[REDACTED\]","b":1,"ü":null\}',
        first,
    )
    log.line("INFO", "rollout-server", "\x1b]0;title\x07 \x9b31m \u202e\ttab")
    third = (tmp_path / "logs.txt").read_text().splitlines()[2]
    assert third.endswith("\\x1b]0;title\\x07 \\x9b31m \\u202e\ttab")
    assert second.endswith("Z WARNING [rollout-server] two lines and \\ud800 [REDACTED]")
    assert stat.S_IMODE((tmp_path / "logs.txt").stat().st_mode) == 0o600
    log.close()


def test_lines_are_there_at_once_and_added_by_later_invocations(tmp_path: Path) -> None:
    path = tmp_path / "logs.txt"
    for number in (1, 2):
        log = RunLog(tmp_path, Redactor())
        log.line("INFO", "run", "one")
        assert path.read_text().count("\n") == number
        log.close()
        log.line("INFO", "run", "after the end")
        log.close()
    assert path.read_text().count("\n") == 2


def test_a_log_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    (tmp_path / "logs.txt").symlink_to("/dev/full")
    with pytest.raises(OsmosisError, match=r"logs\.txt cannot be written"):
        RunLog(tmp_path, Redactor())
    (tmp_path / "logs.txt").unlink()
    log = RunLog(tmp_path, Redactor())
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._descriptor)
    os.close(full)
    log.line("ERROR", "run", "lost")
    assert log.failed is not None
    assert "No space left" in log.failed
    log.close()


def test_a_whole_log_is_redacted_before_it_leaves(tmp_path: Path) -> None:
    rewrite_redacted(tmp_path, Redactor(["hunter2"]))
    path = tmp_path / "logs.txt"
    path.write_bytes(b"a hunter2\n\xff bytes stay\n")
    rewrite_redacted(tmp_path, Redactor(["hunter2"]))
    assert path.read_bytes() == b"a [REDACTED]\n\xff bytes stay\n"
