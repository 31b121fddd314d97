"""Ids: UUIDv7 by the letter, and in the order in which one process made them."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from osmosis_platform.ids import new_id

DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def number(text):
    value = 0
    for digit in text.partition("_")[2]:
        value = value * 32 + DIGITS.index(digit)
    return value


def test_an_id_is_a_uuid_of_version_7_of_this_moment():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(int=number(new_id("ds")))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_sort_as_they_were_made():
    made = [new_id("jo") for _ in range(5_000)]
    assert made == sorted(made)


def test_threads_and_a_clock_that_jumps_back_make_no_id_twice(monkeypatch):
    last = new_id("jo")
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: new_id("jo"), range(2_000)))
    assert len(set(made)) == 2_000 and min(made) > last
