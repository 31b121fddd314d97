"""What happens to a dataset is told in order: every change once, whoever dies in between."""

import signal
import time

import pytest
from job_kinds import WorkerProcess
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.jobs.dataset_content import examine

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake


def told(ada, dataset_id):
    with ada.services.database.read() as work:
        found = StreamRepository(work).events_after(ada.workspace_id, dataset_id, 0, 1000)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [(event.kind, dict(event.payload)) for event in found]


def statuses(ada, dataset_id):
    return [payload["status"] for kind, payload in told(ada, dataset_id) if kind == "dataset.status"]


def test_a_dataset_tells_its_way_and_its_end(ada, rows):
    dataset = ada.uploaded(rows)
    assert statuses(ada, dataset["id"]) == ["uploading", "pending", "processing", "uploaded"]
    assert told(ada, dataset["id"])[-1] == ("dataset.status", {"status": "uploaded", "row_count": 5})
    assert ada.v1("DELETE", "/sums").status_code == 204
    assert told(ada, dataset["id"])[-1] == ("dataset.deleted", {})


@ON_SQLITE
def test_a_file_that_is_no_dataset_tells_why(ada):
    dataset = ada.uploaded(b'{"user_prompt": "1"}\n' * 5)
    assert statuses(ada, dataset["id"]) == ["uploading", "pending", "processing", "error"]
    facts = told(ada, dataset["id"])[-1][1]
    assert facts["error_code"] == "DATASET_INVALID"
    assert facts["error_message"]


@ON_SQLITE
def test_an_upload_that_was_given_up_tells_it_once(ada):
    begun = ada.begin()
    for _ in range(2):
        ada.cli("POST", f"/{begun['id']}/abort", {})
    assert statuses(ada, begun["id"]) == ["uploading", "cancelled"]


def test_reading_and_converting_tell_how_far_they_are(tmp_path):
    path, told = tmp_path / "long.jsonl", []
    path.write_bytes(b"".join(b'{"user_prompt": "%d?", "ground_truth": "1"}\n' % number for number in range(9000)))
    examine(path, "jsonl", tmp_path / "copy.parquet", lambda *_: None, lambda step, rows: told.append((step, rows)))
    assert told == [*(("read", 1024 * n) for n in range(1, 9)), ("convert", 8192)]


@pytest.mark.parametrize("place", ["job.before-commit:1", "dataset.before-done", "dataset.in-done", "job.in-end"])
def test_a_killed_worker_loses_and_doubles_no_event(ada, rows, database_url, place):
    dataset = ada.upload(rows)
    doomed = WorkerProcess(database_url, ada.services.settings.data_dir, lease_s=1.0, crash_at=place)
    try:
        deadline = time.monotonic() + 60
        while doomed.process.poll() is None:
            assert time.monotonic() < deadline, "it was to die"
            time.sleep(0.05)
    finally:
        doomed.stop(signal.SIGKILL)
    ada.process()
    # After a kill behind the change the next worker finds it done.
    deadline = time.monotonic() + 30
    while statuses(ada, dataset["id"])[-1] != "uploaded":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert statuses(ada, dataset["id"]) == ["uploading", "pending", "processing", "uploaded"]
