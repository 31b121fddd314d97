"""The journal: a verdict counts when it is on the disk, and what is on the disk is always read back."""

import asyncio
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation.events import parse_verdict, verdict_line
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.rows import item_keys
from osmosis_ai.evaluation.verdict import Attempt, Failure, Fault, Outcome, Timings, Verdict

PUBLISHED = Path(__file__).parent / "pub"


def graded(row: int, run: int = 0, reward: float | None = 1.0, **more: object) -> Verdict:
    return Verdict(row, run, f"{row:016x}{run:016x}", Outcome.GRADED, row, reward, duration_ms=1.5, **more)


def failed(row: int, message: str = "boom", fault: Fault = Fault.AGENT) -> Verdict:
    return Verdict(
        row, 0, f"{row:032x}", Outcome.FAILED, row, failure=Failure(fault, "agent_error", message, "Traceback…")
    )


FULL = Verdict(
    3, 1, "ab" * 16, Outcome.FAILED, 7, None, Failure(Fault.GRADER, "agent_error", "Zeile 1\nZeile ü", "tail"), 100, 60, 40,
    0.25, 12.5, Timings(1.0, 0.1, 0.8, None), 2, {"accuracy": 0.5},
)  # fmt: skip


async def test_a_line_holds_the_published_keys_sorted_without_spaces_and_ours_on_top(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    await journal.record(graded(0, tokens=65))
    await journal.record(FULL)
    await journal.close()
    first, second = (tmp_path / "events.jsonl").read_text().splitlines()
    assert first == (
        '{"attempts":1,"duration_ms":1.5,"reward":1.0,"rollout_id":"00000000000000000000000000000000","row_index":0,'
        '"run_index":0,"source_row_index":0,"status":"success","tokens":65}'
    )
    record = json.loads(second)
    assert record["error"] == {"fault": "grader", "message": "Zeile 1\nZeile ü", "traceback_tail": "tail"}
    assert (record["error_type"], record["cost_usd"], record["prompt_tokens"]) == ("agent_error", 0.25, 60)
    assert parse_verdict(record) == FULL
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600
    assert not (tmp_path / "attempts.jsonl").exists()


async def test_the_last_verdict_of_a_key_wins_and_earlier_invocations_are_told_apart(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    await journal.record(failed(0))
    await journal.record(graded(1))
    await journal.close()
    journal = FileJournal.open(tmp_path)
    assert {key: entry.resumed for key, entry in journal.records().items()} == {(0, 0): True, (1, 0): True}
    await journal.record(graded(0))
    assert journal.records()[0, 0].outcome is Outcome.GRADED
    assert not journal.records()[0, 0].resumed
    await journal.close()
    assert FileJournal.open(tmp_path).records()[0, 0].reward == 1.0


async def test_pending_is_what_has_no_verdict_and_on_request_what_failed_or_was_skipped(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    await journal.record(graded(0))
    await journal.record(failed(1))
    await journal.record(Verdict(2, 0, "c" * 32, Outcome.SKIPPED))
    keys = list(item_keys(4, 1))
    assert list(journal.pending(keys)) == [(3, 0)]
    retried = journal.pending(keys, retry_failed=True)
    assert list(retried) == [(1, 0), (2, 0), (3, 0)]
    await journal.record(graded(1))
    assert (1, 0) in retried
    await journal.close()


async def test_verdicts_that_arrive_together_share_one_force_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = 0
    real = os.fsync

    def slow(descriptor: int) -> None:
        nonlocal forced
        forced += 1
        time.sleep(0.02)
        real(descriptor)

    journal = FileJournal.open(tmp_path)
    monkeypatch.setattr(os, "fsync", slow)
    await asyncio.gather(*(journal.record(graded(row)) for row in range(200)))
    assert forced <= 3
    await journal.close()
    assert len(FileJournal.open(tmp_path).records()) == 200


async def test_the_event_loop_goes_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = FileJournal.open(tmp_path)
    written = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda descriptor: written.wait(10))
    writing = asyncio.create_task(journal.record(graded(0)))
    for _ in range(10):
        await asyncio.sleep(0.005)
    assert not writing.done()
    assert not journal.records()
    written.set()
    await writing
    await journal.close()


async def test_a_cancelled_waiter_does_not_take_the_verdict_with_it(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    waiting = asyncio.create_task(journal.record(graded(0)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await journal.close()
    assert list(FileJournal.open(tmp_path).records()) == [(0, 0)]
    with pytest.raises(ConflictError, match="closed"):
        await journal.record(graded(1))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
async def test_a_reward_that_is_no_number_never_reaches_the_file(tmp_path: Path, reward: float) -> None:
    journal = FileJournal.open(tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        await journal.record(graded(0, reward=reward))
    await journal.record(graded(1))
    await journal.close()
    assert list(FileJournal.open(tmp_path).records()) == [(1, 0)]


async def test_messages_no_encoding_can_hold_are_kept_readable(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    await journal.record(failed(0, "half \ud800 and\u2028more"))
    await journal.close()
    failure = FileJournal.open(tmp_path).records()[0, 0].failure
    assert failure is not None
    assert failure.message == "half \\ud800 and\u2028more"


async def test_equal_failures_are_one_object_in_memory_and_long_messages_are_cut_there_only(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    for row in range(3):
        await journal.record(failed(row, "x" * 5000))
    assert len({id(entry.failure) for entry in journal.records().values()}) == 1
    failure = journal.records()[0, 0].failure
    assert failure is not None
    assert len(failure.message) == 300
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[0])["error"]["message"] == "x" * 5000
    await journal.close()


async def test_attempts_that_ended_nothing_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    for number in (1, 2):
        journal.attempt(
            Attempt(0, 0, f"{number:032x}", number, Failure(Fault.INFRASTRUCTURE, "server_died", "gone"), 12)
        )
    await journal.record(graded(0))
    await journal.close()
    lines = [json.loads(line) for line in (tmp_path / "attempts.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    assert lines[0]["failure"] == {
        "fault": "infrastructure",
        "code": "server_died",
        "message": "gone",
        "traceback_tail": None,
    }
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 1


def test_a_run_of_the_published_package_is_read_whole() -> None:
    data = (PUBLISHED / "events.jsonl").read_bytes()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "events.jsonl").write_bytes(data)
        records = FileJournal.open(Path(directory)).records()
        assert len(records) == 14
        assert sum(entry.reward or 0 for entry in records.values()) == 8
        assert Path(directory, "events.jsonl").read_bytes() == data


def test_an_empty_journal_has_no_verdicts(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    assert not FileJournal.open(tmp_path).records()


@pytest.mark.parametrize(("kept", "refused"), [(0, True), (1, True), (2, False), (3, False)])
def test_an_emptied_or_cut_journal_is_not_taken_for_a_new_run(tmp_path: Path, kept: int, refused: bool) -> None:
    lines = (PUBLISHED / "events.jsonl").read_bytes().splitlines(keepends=True)[:3]
    (tmp_path / "index.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:kept]))
    if not refused:
        assert len(FileJournal.open(tmp_path).records()) == kept
        return
    with pytest.raises(
        ValidationError, match=rf"events\.jsonl lacks {3 - kept} of the 3 results .* delete index\.jsonl"
    ):
        FileJournal.open(tmp_path)
    assert (tmp_path / "events.jsonl").read_bytes() == b"".join(lines[:kept])


def test_a_duplicated_journal_says_the_same(tmp_path: Path) -> None:
    data = (PUBLISHED / "events.jsonl").read_bytes()
    (tmp_path / "events.jsonl").write_bytes(data + data)
    once = [parse_verdict(json.loads(line)) for line in data.splitlines()]
    records = FileJournal.open(tmp_path).records()
    assert {key: entry.rollout_id for key, entry in records.items()} == {v.key: v.rollout_id for v in once}


def test_a_torn_line_is_cut_off_even_when_it_parses(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    whole = verdict_line(graded(0))
    for fragment in (verdict_line(graded(1))[:-1], b"{", b"\0\0\0", b"x" * 200_000):
        path.write_bytes(whole + fragment)
        assert list(FileJournal.open(tmp_path).records()) == [(0, 0)]
        assert path.read_bytes() == whole
    path.write_bytes(b"only a fragment")
    assert not FileJournal.open(tmp_path).records()
    assert path.read_bytes() == b""


GOOD = json.loads(verdict_line(graded(0)))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        "{bad",
        "[1]",
        "null",
        json.dumps({**GOOD, "reward": 10**400}),
        json.dumps({**GOOD, "row_index": True}),
        json.dumps({**GOOD, "row_index": "0"}),
        json.dumps({**GOOD, "run_index": -1}),
        json.dumps({**GOOD, "status": "graded"}),
        json.dumps({**GOOD, "status": None}),
        json.dumps({**GOOD, "rollout_id": "../x"}),
        json.dumps({**GOOD, "rollout_id": ""}),
        json.dumps({**GOOD, "reward": "1"}),
        json.dumps({**GOOD, "reward": True}),
        json.dumps({**GOOD, "reward": float("nan")}),
        json.dumps({key: value for key, value in GOOD.items() if key != "run_index"}),
    ],
)
def test_a_complete_line_that_is_no_verdict_stops_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(verdict_line(graded(0)) + line.encode() + b"\n" + verdict_line(graded(1)))
    before = path.read_bytes()
    with pytest.raises(ValidationError, match=r"events\.jsonl, line 2: .*--fresh") as caught:
        FileJournal.open(tmp_path)
    assert caught.value.details["line"] == 2
    assert path.read_bytes() == before


def test_unknown_keys_and_whole_numbers_are_fine(tmp_path: Path) -> None:
    line = json.dumps({**GOOD, "reward": 1, "duration_ms": 7, "new": {"x": 1}, "tokens": None})
    (tmp_path / "events.jsonl").write_text(line + "\n")
    assert FileJournal.open(tmp_path).records()[0, 0].reward == 1


def test_a_link_in_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(OsmosisError, match="cannot be written"):
        FileJournal.open(tmp_path)


verdicts = st.lists(
    st.builds(
        lambda row, run, outcome, reward, message: Verdict(
            row,
            run,
            "f" * 32,
            outcome,
            row,
            reward,
            Failure(Fault.AGENT, "agent_error", message) if outcome is Outcome.FAILED else None,
        ),
        st.integers(0, 3),
        st.integers(0, 1),
        st.sampled_from(Outcome),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    ),
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(verdicts, st.data())
def test_any_prefix_of_a_journal_replays_to_the_verdicts_whose_lines_are_whole(
    made: list[Verdict], data: st.DataObject
) -> None:
    lines = [verdict_line(verdict) for verdict in made]
    whole = b"".join(lines)
    prefix = whole[: data.draw(st.integers(0, len(whole)))]
    expected: dict = {}
    for verdict in made[: prefix.count(b"\n")]:
        expected[verdict.key] = (verdict.outcome, verdict.reward)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "events.jsonl")
        path.write_bytes(prefix)
        journal = FileJournal.open(Path(directory))
        assert {key: (entry.outcome, entry.reward) for key, entry in journal.records().items()} == expected
        assert path.read_bytes() == b"".join(lines[: prefix.count(b"\n")])
        journal.release()


WRITER = """
import asyncio, sys
from pathlib import Path
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.verdict import *

async def main():
    journal = FileJournal.open(Path(sys.argv[1]))
    async def worker(number):
        row = number
        while True:
            await journal.record(Verdict(row, 0, f"{row:032x}", Outcome.GRADED, row, 1.0, duration_ms=1.0))
            print(row, flush=True)
            row += 4
    await asyncio.gather(*(worker(number) for number in range(4)))

asyncio.run(main())
"""


def test_kill_9_at_any_moment_loses_no_verdict_that_counted(tmp_path: Path) -> None:
    generator = random.Random(4)
    for number in range(5):
        run_dir = tmp_path / str(number)
        run_dir.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(run_dir)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            counted = [int(process.stdout.readline())]
            time.sleep(generator.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            counted += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        journal = FileJournal.open(run_dir)
        assert {(row, 0) for row in counted} <= journal.records().keys()
        journal.release()


FULL_DISK = """
import asyncio, resource, signal, sys
from pathlib import Path
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.verdict import *

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def verdict(row):
    return Verdict(row, 0, f"{row:032x}", Outcome.FAILED, row, failure=Failure(Fault.AGENT, "agent_error", "x" * 200))

async def main():
    journal = FileJournal.open(Path(sys.argv[1]))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    for row in range(9):
        try:
            await journal.record(verdict(row))
        except OsmosisError as error:
            print(error.error_code, error.message)
            break
    print(len(journal.records()))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await journal.record(verdict(20))
    await journal.close()

asyncio.run(main())
"""


def test_a_full_disk_is_named_leaves_no_half_line_and_later_verdicts_count(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True)
    said, count = run.stdout.splitlines()
    assert said.startswith(f"STORAGE {tmp_path}/events.jsonl cannot be written: File too large.")
    assert "run the same command again" in said
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["row_index"] for line in lines] == [*range(int(count)), 20]
