"""Uploads in parts that were killed or lost the platform go on in the next process with what is missing."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from osmosis_cli import OSMOSIS, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

ROWS = "".join(f'{{"user_prompt": "q{n}", "ground_truth": "{n}"}}\n' for n in range(90))
PART = len(ROWS) // 6 + 1
UPLOAD = ("--json", "dataset", "upload", "data/m.jsonl", "--yes")
DATASET = {
    "id": "ds_1", "file_name": "m", "file_size": len(ROWS), "status": "uploading", "file_format": "jsonl",
    "created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:05:00Z",
}  # fmt: skip


class Store:
    """A platform with one upload of six parts; part 6 gives no answer while `stalls`."""

    def __init__(self, api: StubApi) -> None:
        self.api = api
        self.stored: dict[int, bytes] = {}
        self.stalls = True
        self.released = threading.Event()
        self.made = 0
        api.routes |= {f"PUT /part/{n}": self._take(n) for n in range(1, 7)}
        api.routes |= {
            "POST /api/cli/datasets": self._create,
            "GET /api/cli/datasets/ds_1/upload": lambda _: {**self._wire(), "uploaded_parts": sorted(self.stored)},
            "POST /api/cli/datasets/ds_1/complete": {**DATASET, "status": "processing"},
            "POST /api/cli/datasets/ds_1/abort": Answer(status=204),
        }

    def _create(self, _asked):
        self.made += 1
        return {**DATASET, **self._wire()}

    def _wire(self):
        urls = [{"part_number": n, "presigned_url": f"{self.api.url}/part/{n}?sig=s3cret"} for n in range(1, 7)]
        return {"upload": {"method": "multipart", "part_size": PART, "total_parts": 6, "presigned_urls": urls}}

    def _take(self, number):
        def take(asked):
            if number == 6 and self.stalls:
                self.released.wait(30)
                return Answer({}, 500)
            self.stored[number] = asked.body
            return Answer({}, headers={"ETag": f'"e{number}"'})

        return take

    @property
    def sent(self):
        """The parts that were asked for, in the order of their numbers."""
        return sorted(call for call in self.api.calls if call.startswith("PUT"))


@pytest.fixture
def ws(tmp_path):
    make_workspace(tmp_path / "ws")
    (tmp_path / "ws/data/m.jsonl").write_text(ROWS)
    return tmp_path / "ws"


@pytest.fixture
def store():
    with StubApi() as api:
        store = Store(api)
        yield store
        store.released.set()


@pytest.fixture
def env(tmp_path, store):
    (tmp_path / "home").mkdir()
    return environment(tmp_path / "home", **store.api.environment())


def notes(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home/.cache/osmosis/uploads").glob("*"))


def kill_midway(ws, env, store, tmp_path, *options):
    """Kill an upload with -9 when all parts but the last are stored and noted."""
    started = subprocess.Popen([OSMOSIS, *UPLOAD, *options], cwd=ws, env=env)
    end = time.monotonic() + 30
    while len(store.stored) < 5 or not (found := notes(tmp_path)) or found[0].read_text().count("etag") < 5:
        assert time.monotonic() < end and started.poll() is None
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.wait()
    store.stalls = False
    store.api.asked.clear()


def test_a_killed_upload_sends_what_is_missing(ws, env, store, tmp_path):
    kill_midway(ws, env, store, tmp_path)
    (note,) = notes(tmp_path)
    assert "s3cret" not in note.read_text() and note.stat().st_mode & 0o077 == 0
    done = osmosis(*UPLOAD, cwd=ws, env=env)
    assert done.json["resource"]["status"] == "processing" and done.stderr == ""
    assert store.sent == ["PUT /part/6"] and store.made == 1
    assert b"".join(store.stored[n] for n in range(1, 7)).decode() == ROWS
    assert store.api.asked[-1].json["parts"] == [{"PartNumber": n, "ETag": f"e{n}"} for n in range(1, 7)]
    assert notes(tmp_path) == []


@pytest.mark.parametrize("why", ["changed", "touched", "gone", "lost", "damaged"])
def test_an_upload_begins_anew_where_going_on_would_be_wrong(ws, env, store, tmp_path, why):
    kill_midway(ws, env, store, tmp_path)
    file = ws / "data/m.jsonl"
    if why == "changed":
        file.write_text(ROWS.replace("q1", "Q1"))
    elif why == "touched":
        os.utime(file, (1, 1))
    elif why == "gone":
        store.api.routes["GET /api/cli/datasets/ds_1/upload"] = Answer({"error": "no route"}, 404)
    elif why == "lost":
        store.stored.clear()
    else:
        notes(tmp_path)[0].write_bytes(b"\xff{\n[1]")
    assert osmosis(*UPLOAD, cwd=ws, env=env).status == 0
    assert len(store.sent) == 6
    assert store.made == (1 if why == "lost" else 2)
    assert b"".join(store.stored[n] for n in range(1, 7)).decode() == file.read_text()
    assert notes(tmp_path) == []


def test_what_was_begun_to_replace_a_dataset_replaces_none_without_being_told_again(ws, env, store, tmp_path):
    taken = Answer({"error": "taken", "existing_dataset_id": "ds_0"}, 409)
    create = store.api.routes["POST /api/cli/datasets"]
    store.api.routes["POST /api/cli/datasets"] = lambda asked: (
        create(asked) if "overwrite_dataset_id" in asked.json else taken
    )
    kill_midway(ws, env, store, tmp_path, "--overwrite")
    assert osmosis(*UPLOAD, cwd=ws, env=env).error["code"] == "CONFLICT"
    assert "POST /api/cli/datasets/ds_1/complete" not in store.api.calls
    assert osmosis(*UPLOAD, "--overwrite", cwd=ws, env=env).status == 0
    assert store.sent == ["PUT /part/6"]


def test_an_upload_that_is_taken_back_leaves_no_notes(ws, env, store, tmp_path):
    store.api.routes["PUT /part/3"] = Answer(status=403)
    store.stalls = False
    assert osmosis(*UPLOAD, cwd=ws, env=env).error["code"] == "VALIDATION"
    assert "POST /api/cli/datasets/ds_1/abort" in store.api.calls
    assert not (tmp_path / "home/.cache").exists()


def test_an_upload_whose_end_is_refused_for_good_is_not_tried_again_as_it_is(ws, env, store, tmp_path):
    store.stalls = False
    store.api.routes.pop("POST /api/cli/datasets/ds_1/complete")
    store.api.routes["POST /api/cli/datasets/ds_1/complete"] = Answer({"error": "not now"}, 403)
    assert osmosis(*UPLOAD, cwd=ws, env=env).status == 1
    assert len(notes(tmp_path)) == 1
    store.api.routes["POST /api/cli/datasets/ds_1/complete"] = Answer({"error": "a part is another one"}, 400)
    assert osmosis(*UPLOAD, cwd=ws, env=env).error["code"] == "VALIDATION"
    assert notes(tmp_path) == []


def test_an_upload_whose_end_was_not_heard_is_only_ended(ws, env, store, tmp_path):
    store.stalls = False
    told = store.api.routes.pop("POST /api/cli/datasets/ds_1/complete")
    store.api.routes["POST /api/cli/datasets/ds_1/complete"] = Answer({"error": "not now"}, 403)
    assert osmosis(*UPLOAD, cwd=ws, env=env).status == 1
    store.api.asked.clear()
    store.api.routes["POST /api/cli/datasets/ds_1/complete"] = told
    assert osmosis(*UPLOAD, cwd=ws, env=env).status == 0
    assert store.sent == [] and notes(tmp_path) == []
