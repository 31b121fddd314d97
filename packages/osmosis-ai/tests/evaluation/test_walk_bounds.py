"""How many rollouts at once, how long, how the walk is stopped, who watches it."""

import threading
import time

import pytest
from osmosis_ai.evaluation.observer import Relay, SilentObserver, Tally
from osmosis_ai.evaluation.walk import Limits, Stop, StopSwitch


@pytest.mark.parametrize(
    ("asked", "capacity", "in_flight"),
    [(None, 4, 4), (None, None, 1), (2, 4, 2), (9, 4, 4), (9, None, 9), (1, 1, 1)],
)
def test_concurrency_is_what_is_asked_within_the_servers_capacity(asked, capacity, in_flight):
    assert Limits(concurrency=asked).in_flight(capacity) == in_flight


@pytest.mark.parametrize(
    ("agent", "grader", "deadline"),
    [(None, None, 3600), (10, None, 3600), (None, 10, 3600), (10, 20, 90), (0.5, 0, 60.5)],
)
def test_a_deadline_follows_the_limits_when_both_are_set(agent, grader, deadline):
    assert Limits(agent_timeout_s=agent, grader_timeout_s=grader).deadline_s == deadline


def test_a_stop_only_rises():
    told: list[Stop] = []
    switch = StopSwitch()
    switch.listen(lambda: told.append(switch.level))
    assert [switch.rise(), switch.rise(), switch.rise()] == [Stop.DRAIN, Stop.NOW, Stop.NOW]
    assert told == [Stop.DRAIN, Stop.NOW, Stop.NOW]


class Watcher(SilentObserver):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.thread: int | None = None
        self.gate = threading.Event()

    def stage(self, text: str) -> None:
        self.gate.wait(5)
        self.thread = threading.get_ident()
        self.seen.append(text)

    def log(self, line: str) -> None:
        self.seen.append(line)


def test_a_relay_delivers_in_order_on_another_thread():
    watcher = Watcher()
    relay = Relay(watcher)
    watcher.gate.set()
    for number in range(100):
        relay.stage(str(number))
    assert relay.close() is None
    assert watcher.seen == [str(number) for number in range(100)]
    assert watcher.thread != threading.get_ident()


def test_a_watcher_that_is_far_behind_misses_log_lines_only():
    watcher = Watcher()
    relay = Relay(watcher)
    relay.stage("first")
    started = time.monotonic()
    for number in range(3 * Relay.BACKLOG):
        relay.log(str(number))
    relay.stage("last")
    assert time.monotonic() - started < 30
    watcher.gate.set()
    relay.close()
    assert watcher.seen[0] == "first" and watcher.seen[-1] == "last"
    assert len(watcher.seen) <= Relay.BACKLOG + 2


def test_a_broken_watcher_is_told_at_the_end_and_not_before():
    class Broken(SilentObserver):
        def verdict(self, verdict, tally):
            raise BrokenPipeError("nobody reads")

    relay = Relay(Broken())
    for _ in range(3):
        relay.verdict(None, Tally())
    assert isinstance(relay.close(), BrokenPipeError)


def test_a_watcher_that_hangs_does_not_hold_the_end_up():
    watcher = Watcher()
    relay = Relay(watcher)
    relay.stage("stuck")
    started = time.monotonic()
    relay.close(limit_s=0.2)
    assert time.monotonic() - started < 30
    watcher.gate.set()
