"""logs.txt and the secrets that must not be in it."""

import os
import re
import stat
from pathlib import Path

import pytest
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.runlog import RunLog, rewrite_redacted
from osmosis_ai.redaction import Redactor


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
