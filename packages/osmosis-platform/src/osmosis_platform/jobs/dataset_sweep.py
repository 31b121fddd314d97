"""The periodic job that cancels uploads nobody goes on with and removes the bytes of datasets that are gone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from osmosis_platform.blobs.store import Upload
from osmosis_platform.db.repositories.datasets import Dataset, DatasetRepository, DatasetSweepRepository
from osmosis_platform.domain.dataset import DatasetStatus
from osmosis_platform.events.changes import move_dataset
from osmosis_platform.jobs.handler import JobContext
from osmosis_platform.services import Services

UPLOADS_KEPT = timedelta(days=7)
BYTES_KEPT = timedelta(days=1)  # a run that began with a dataset before it was deleted may still read it


def run(context: JobContext) -> Mapping[str, Any]:
    """Sweeps once; what it could not finish it finds again the next time."""
    services, now = context.services, context.services.clock()
    with services.database.read() as work:
        sweeps = DatasetSweepRepository(work)
        abandoned, purgeable = sweeps.abandoned(now - UPLOADS_KEPT), sweeps.purgeable(now - BYTES_KEPT)
    for dataset in abandoned:
        context.check()
        with context.write() as work:
            move_dataset(work, dataset.workspace_id, dataset.id, (DatasetStatus.UPLOADING,), DatasetStatus.CANCELLED)
    for dataset in purgeable:
        context.check()
        _purge(services, dataset)
        with context.write() as work:
            DatasetRepository(work).mark_purged(dataset.workspace_id, dataset.id)
    uploads = services.blobs.sweep(now - 2 * UPLOADS_KEPT)
    _empty_scratch(services, now - BYTES_KEPT)
    return {"cancelled": len(abandoned), "purged": len(purgeable), "uploads": uploads}


def _purge(services: Services, dataset: Dataset) -> None:
    if dataset.upload is not None:
        services.blobs.abort_upload(dataset.original_blob_key, Upload.from_json(dataset.upload))
    for info in list(services.blobs.list(f"{dataset.workspace_id}/datasets/{dataset.id}")):
        services.blobs.delete(info.key)


def _empty_scratch(services: Services, before: datetime) -> None:
    """Removes what killed processes of long ago left; what is younger may be in use."""
    for path in (services.settings.data_dir / "tmp").glob("*"):
        with suppress(OSError):
            if path.stat().st_mtime < before.timestamp():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
