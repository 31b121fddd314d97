"""Followers of a running platform: over kill -9 of its worker and of all of it, no event is lost, doubled or out of order."""

import json
import os
import signal
import sqlite3
import threading
import time

import httpx
import pytest
from platform_process import PlatformProcess

ROWS = b"".join(b'{"user_prompt": "%d + 1?", "ground_truth": "%d"}\n' % (n, n + 1) for n in range(40_000))


class Follower(threading.Thread):
    """Reads a stream as a browser does: again and again, from the last id it saw."""

    def __init__(self, platform, stream_id):
        super().__init__(daemon=True)
        self.events, self.connections, self.over = [], 0, threading.Event()
        self._platform, self._stream_id = platform, stream_id

    def run(self):
        while not self.over.is_set():
            try:
                self._read()
            except httpx.HTTPError:
                time.sleep(0.1)

    def _read(self):
        last = {"Last-Event-ID": str(self.events[-1][0])} if self.events else {}
        path = f"/api/v1/workspaces/lab/streams/{self._stream_id}/events"
        with self._platform.client() as client, client.stream("GET", path, headers=last, timeout=20) as answer:
            answer.raise_for_status()
            self.connections += 1
            event = {}
            for line in answer.iter_lines():
                name, _, text = line.partition(": ")
                if line.startswith(":"):
                    continue
                if line:
                    event[name] = text
                    continue
                if event:
                    self.events.append((int(event["id"]), event["event"], json.loads(event["data"])))
                    event = {}
                if self.over.is_set():
                    return

    def statuses(self):
        return [data["status"] for _, kind, data in self.events if kind == "dataset.status"]


def upload(platform, name):
    with platform.client() as client:
        body = {"file_name": name, "file_size": len(ROWS), "extension": "jsonl"}
        begun = client.post("/api/cli/datasets", json=body).json()
        follower = Follower(platform, begun["id"])
        follower.start()
        httpx.put(begun["upload"]["presigned_url"], content=ROWS, headers=begun["upload"]["upload_headers"],
                  trust_env=False, timeout=60).raise_for_status()  # fmt: skip
        client.post(f"/api/cli/datasets/{begun['id']}/complete", json={"file_extension": "jsonl", "parts": []})
    return follower


def until(what, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers(platform):
    with sqlite3.connect(platform.data_dir / "platform.sqlite3", timeout=30) as database:
        return [pid for (pid,) in database.execute("SELECT pid FROM workers ORDER BY seen_at DESC")]


@pytest.mark.timeout(180)
def test_a_follower_sees_everything_once_over_kills(tmp_path):
    with PlatformProcess(tmp_path / "data", env={"OSMOSIS_PLATFORM_LEASE_S": "1"}) as platform:
        follower = upload(platform, "sums")
        until(lambda: "processing" in follower.statuses())
        os.kill(workers(platform)[0], signal.SIGKILL)
        time.sleep(0.3)
        platform.kill()
        platform.start()
        until(lambda: "uploaded" in follower.statuses())
        follower.over.set()
        late = Follower(platform, follower._stream_id)
        late.start()
        until(lambda: len(late.events) >= len(follower.events))
        late.over.set()
    assert follower.statuses() == ["uploading", "pending", "processing", "uploaded"]
    assert [seq for seq, _, _ in follower.events] == list(range(1, len(follower.events) + 1))
    assert late.events[: len(follower.events)] == follower.events
    assert follower.connections >= 2
