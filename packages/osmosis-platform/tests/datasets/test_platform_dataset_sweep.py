"""The sweep cancels uploads nobody goes on with, and removes the bytes of datasets that are gone, a day later."""

import os
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from osmosis_platform.db.repositories.datasets import DatasetRepository
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.db.tables.datasets import datasets
from osmosis_platform.jobs import dataset_sweep
from osmosis_platform.jobs.dataset_sweep import BYTES_KEPT, UPLOADS_KEPT
from osmosis_platform.jobs.handler import KINDS
from osmosis_platform.jobs.schedule import SCHEDULE

MOMENT = timedelta(minutes=1)


@pytest.fixture
def sweep(services):
    def sweep():
        context = SimpleNamespace(services=services, check=lambda: None, write=services.database.write)
        return dataset_sweep.run(context)

    return sweep


@pytest.fixture
def age(services):
    """Lets a dataset be as it is now for some time."""

    def age(dataset_id, **since):
        values = {f"{name}_at": services.database.clock() - ago for name, ago in since.items()}
        with services.database.write() as work:
            work.execute(datasets.update().where(datasets.c.id == dataset_id).values(**values))

    return age


def row(ada, dataset_id):
    with ada.services.database.read() as work:
        return DatasetRepository(work).get(ada.workspace_id, dataset_id)


def keys(ada, dataset_id):
    found = ada.services.blobs.list(f"{ada.workspace_id}/datasets/{dataset_id}")
    return [info.key.rpartition("/")[2] for info in found]


def uploads(services):
    return {path.stem for path in services.blobs.staging.iterdir()}


def test_it_runs_by_itself():
    assert "datasets.sweep" in SCHEDULE
    assert KINDS["datasets.sweep"].endswith("dataset_sweep:run")


def test_an_upload_that_nobody_goes_on_with_is_cancelled_and_its_name_is_free(ada, sweep, age, services):
    begun, fresh = ada.begin(size=2048), ada.begin("fresh")
    part = begun["upload"]["presigned_urls"][0]
    assert ada.http.put(part["presigned_url"], content=b"x" * part["size"]).status_code == 200
    age(begun["id"], updated=UPLOADS_KEPT - MOMENT)
    assert sweep()["cancelled"] == 0
    age(begun["id"], updated=UPLOADS_KEPT + MOMENT)
    assert sweep()["cancelled"] == 1
    assert (row(ada, begun["id"]).status, row(ada, fresh["id"]).status) == ("cancelled", "uploading")
    with services.database.read() as work:
        last = StreamRepository(work).events_after(ada.workspace_id, begun["id"], 0, 10)[-1]
    assert (last.kind, last.payload) == ("dataset.status", {"status": "cancelled"})
    staged = uploads(services)
    age(begun["id"], updated=BYTES_KEPT + MOMENT)
    assert sweep()["purged"] == 1
    assert len(uploads(services)) == len(staged) - 1
    ada.begin()  # the name


def test_bytes_of_a_deleted_dataset_stay_a_day_and_then_go_once(ada, rows, sweep, age):
    gone, kept = ada.uploaded(rows), ada.uploaded(rows, "kept")
    assert ada.v1("DELETE", "/sums").status_code == 204
    age(gone["id"], deleted=BYTES_KEPT - MOMENT)
    assert sweep()["purged"] == 0
    assert keys(ada, gone["id"]) == ["original", "parquet"]
    age(gone["id"], deleted=BYTES_KEPT + MOMENT)
    assert sweep()["purged"] == 1
    assert sweep()["purged"] == 0
    assert (keys(ada, gone["id"]), keys(ada, kept["id"])) == ([], ["original", "parquet"])
    assert ada.cli("GET", "/kept/download").status_code == 200


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_sweep_that_was_killed_is_finished_by_the_next(ada, rows, sweep, age, monkeypatch):
    gone = ada.uploaded(rows)
    ada.v1("DELETE", "/sums")
    age(gone["id"], deleted=BYTES_KEPT + MOMENT)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DatasetRepository, "mark_purged", die)
        sweep()
    assert keys(ada, gone["id"]) == []
    assert sweep()["purged"] == 1
    assert sweep()["purged"] == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_killed_workers_left_goes_when_it_is_old(ada, sweep, services):
    old, young = (services.settings.data_dir / "tmp" / f"dataset-{name}" for name in ("old", "young"))
    for path in (old, young):
        path.mkdir(parents=True)
        (path / "copy.parquet").write_bytes(b"x")
    then = time.time() - (BYTES_KEPT + MOMENT).total_seconds()
    snapshot = old.with_name("snapshot-x.tar.zst")
    snapshot.write_bytes(b"x")
    for path in (old, snapshot):
        os.utime(path, (then, then))
    sweep()
    assert (old.exists(), snapshot.exists(), young.exists()) == (False, False, True)
