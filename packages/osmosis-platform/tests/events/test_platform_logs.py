"""Log lines of a stream: numbered by the newest writer, read in pages, sealed without anybody noticing."""

import itertools

import pytest
import sqlalchemy as sa
from osmosis_platform.db.tables.events import log_lines, log_segments
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.events.log import LogLine, StaleWriterError, append_event, append_lines, read_page
from osmosis_platform.events.sealing import seal_streams
from osmosis_platform.jobs import seal_logs
from osmosis_platform.jobs.handler import handler_of
from osmosis_platform.jobs.schedule import SCHEDULE
from osmosis_platform.secrets.redacting import OWN

WORKSPACE, STREAM = "ws_1", "ds_1"


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
