"""Log lines of a stream: numbered by the newest writer, read in pages, sealed without anybody noticing."""

import base64
import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.db.tables.events import log_lines, log_segments
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.events.log import LogLine, StaleWriterError, append_event, append_lines, read_page
from osmosis_platform.events.sealing import seal_streams
from osmosis_platform.jobs import seal_logs
from osmosis_platform.jobs.handler import handler_of
from osmosis_platform.jobs.schedule import SCHEDULE
from osmosis_platform.secrets.redacting import OWN

WORKSPACE, STREAM = "ws_1", "ds_1"
FROM_THE_FIRST = base64.urlsafe_b64encode(b"seq:0").decode().rstrip("=")


def add(services, texts, epoch=0):
    with services.database.write(durable=False) as work:
        lines = [LogLine("info", "walk", text) for text in texts]
        append_lines(work, WORKSPACE, STREAM, lines, redactor=OWN, epoch=epoch)


def read(services, cursor=None, limit=3, direction="older", workspace=WORKSPACE):
    return read_page(services, workspace, STREAM, cursor=cursor, limit=limit, direction=direction)


def walk(services, direction, cursor=None, limit=3):
    pages = []
    while True:
        page = read(services, cursor, limit, direction)
        pages.append([line.message for line in page.lines])
        cursor = page.next_cursor
        if cursor is None:
            return pages


def test_the_newest_page_comes_first_and_each_is_oldest_first(services):
    add(services, "abcdefgh")
    assert walk(services, "older") == [["f", "g", "h"], ["c", "d", "e"], ["a", "b"]]


def test_newer_lines_follow_a_cursor(services):
    add(services, "abcdefgh")
    cursor = read(services).next_cursor  # continues before f
    assert walk(services, "newer", cursor)[0] == ["g", "h"]


def test_a_page_read_again_is_the_same_while_lines_arrive(services):
    add(services, "abcdef")
    cursor = read(services).next_cursor
    before = read(services, cursor).lines
    add(services, "ghi")
    assert read(services, cursor).lines == before


@pytest.mark.parametrize("cursor", ["", "!", "c2VxOg", "eHg6MQ", "c2VxOi0x", "x" * 400])
def test_a_cursor_of_somebody_else_is_refused(services, cursor):
    add(services, "a")
    with pytest.raises(InvalidRequestError, match="cursor"):
        read(services, cursor)


def test_another_workspace_sees_nothing(services):
    add(services, "abc")
    assert read(services, workspace="ws_2").lines == ()


def test_a_writer_that_was_taken_over_adds_nothing(services):
    add(services, "ab", epoch=1)
    add(services, "cd", epoch=2)
    with pytest.raises(StaleWriterError):
        add(services, "e", epoch=1)
    add(services, "f")  # a request holds no lease
    assert [line.message for line in read(services, limit=50).lines] == list("abcdf")


def test_sealing_moves_lines_and_readers_do_not_notice(services):
    texts = [str(n) for n in range(25)]
    for batch in itertools.batched(texts, 4):
        add(services, batch)
    before = [walk(services, direction) for direction in ("older", "newer")]
    assert seal_streams(services, lines=10) == 2
    with services.database.read() as work:
        assert work.execute(sa.select(sa.func.count()).select_from(log_lines)).scalar_one() == 5
        assert work.execute(sa.select(sa.func.count()).select_from(log_segments)).scalar_one() == 2
    assert [walk(services, direction) for direction in ("older", "newer")] == before
    assert seal_streams(services, lines=10) == 0


SEAL = """
import sys
from pathlib import Path
from osmosis_platform.db.database import Database
from osmosis_platform.events.sealing import seal_streams
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings
seal_streams(Services(Settings(data_dir=Path(sys.argv[2])), Database(sys.argv[1])), lines=10, closed_lines=1)
"""


def close(services):
    with services.database.write() as work:
        StreamRepository(work).close(WORKSPACE, STREAM)


def test_a_kill_while_sealing_loses_no_line_and_leaves_no_object(services, database_url):
    """kill -9 between the object and its row, then further lines, so that the next segment is another one."""
    add(services, map(str, range(7)))
    close(services)
    environment = {**os.environ, "OSMOSIS_CRASH_AT": "logs.after-blob"}
    command = [sys.executable, "-c", SEAL, database_url, str(services.settings.data_dir)]
    assert subprocess.run(command, env=environment, timeout=60).returncode == -signal.SIGKILL
    assert len(list(services.blobs.list(""))) == 1
    add(services, map(str, range(7, 12)))
    before = walk(services, "newer", cursor=FROM_THE_FIRST)
    assert [text for page in before for text in page] == [str(number) for number in range(12)]
    assert seal_streams(services, lines=10, closed_lines=1) == 2
    assert walk(services, "newer", cursor=FROM_THE_FIRST) == before
    with services.database.read() as work:
        noted = {segment.blob_key for segment in StreamRepository(work).segments_between(WORKSPACE, STREAM, 1, 99)}
    assert {info.key for info in services.blobs.list("")} == noted


def test_a_short_log_of_a_closed_stream_stays_in_its_rows(services):
    add(services, map(str, range(99)))
    close(services)
    assert seal_streams(services) == 0
    add(services, "x")
    assert seal_streams(services) == 1


def test_writers_at_once_make_one_order(services):
    """Numbers without gaps, each writer's own order kept, lines and events alike."""

    def write(writer):
        for turn in range(10):
            with services.database.write(durable=False) as work:
                lines = [LogLine("info", writer, str(2 * turn + half)) for half in (0, 1)]
                append_lines(work, WORKSPACE, STREAM, lines, redactor=OWN)
                append_event(work, WORKSPACE, STREAM, "tick", {"writer": writer, "turn": turn}, redactor=OWN)

    writers = "abcd"
    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(write, writers))
    with services.database.read() as work:
        found = StreamRepository(work)
        lines = found.lines_between(WORKSPACE, STREAM, 0, 1000)
        events = found.events_after(WORKSPACE, STREAM, 0, 1000)
    assert [line.seq for line in lines] == list(range(1, 81))
    assert [event.seq for event in events] == list(range(1, 41))
    for writer in writers:
        assert [line.message for line in lines if line.step == writer] == [str(number) for number in range(20)]
        assert [one.payload["turn"] for one in events if one.payload["writer"] == writer] == list(range(10))


def test_hostile_texts_become_lines(services):
    with services.database.write() as work:
        lines = [
            LogLine("shout", "s" * 999, "\x00\ud800" + "x" * 99_999, {"n": "\x00"}),
            LogLine("info", "s", "m", {"x": "y" * 99_999}),
        ]
        append_lines(work, WORKSPACE, STREAM, lines, redactor=OWN)
    first, second = read(services).lines
    assert (first.level, len(first.step), first.details) == ("info", 100, {"n": ""})
    assert first.message.endswith("[cut]")
    assert "dropped" in second.details


def test_events_are_numbered_in_their_transaction(services):
    with services.database.write() as work:
        assert append_event(work, WORKSPACE, STREAM, "dataset.created", {}, redactor=OWN) == 1
    with pytest.raises(RuntimeError), services.database.write() as work:
        append_event(work, WORKSPACE, STREAM, "dataset.lost", {}, redactor=OWN)
        raise RuntimeError
    with services.database.write() as work:
        assert append_event(work, WORKSPACE, STREAM, "dataset.done", {}, redactor=OWN) == 2


def test_a_worker_seals_by_itself():
    assert "logs.seal" in SCHEDULE
    assert handler_of("logs.seal") is seal_logs.run
