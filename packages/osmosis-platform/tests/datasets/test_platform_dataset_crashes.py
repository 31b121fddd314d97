"""A worker killed with SIGKILL while it makes a dataset: another one does it again, and nothing of the first try is left."""

import signal
import time

import pytest
from job_kinds import WorkerProcess


@pytest.mark.parametrize("place", ["job.before-commit:2", "dataset.before-done"])
def test_a_killed_worker_costs_nothing_but_time(ada, rows, database_url, place):
    data_dir = ada.services.settings.data_dir
    dataset = ada.upload(rows)
    doomed = WorkerProcess(database_url, data_dir, lease_s=1.0, crash_at=place)
    try:
        deadline = time.monotonic() + 60
        while doomed.process.poll() is None:
            assert time.monotonic() < deadline, "it was to die"
            time.sleep(0.05)
    finally:
        doomed.stop(signal.SIGKILL)
    assert ada.cli("GET", "/sums").json()["status"] == "processing"
    ada.process()
    assert ada.cli("GET", "/sums").json()["status"] == "uploaded"
    keys = [
        info.key.rpartition("/")[2] for info in ada.services.blobs.list(f"{ada.workspace_id}/datasets/{dataset['id']}")
    ]
    assert keys == ["original", "parquet"]
    assert list((data_dir / "tmp").iterdir()) == []
    assert list(ada.services.blobs.staging.iterdir()) == []
    steps = [entry["step"] for entry in ada.cli("GET", "/sums/logs").json()["logs"]]
    assert steps[-4:] == ["setup", "validate", "convert", "done"] and steps.count("done") == 1
