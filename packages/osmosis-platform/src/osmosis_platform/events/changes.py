"""Changes of datasets and syncs together with the events that tell them: one transaction, one event for each change.

The stream of a dataset or a sync has its id. Kinds: `dataset.status` (the first one is `uploading`), `dataset.progress`,
`dataset.deleted`; `sync.status`, `sync.progress`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.datasets import DatasetRepository
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.db.repositories.syncs import Sync, SyncRepository
from osmosis_platform.domain.dataset import DatasetStatus
from osmosis_platform.events.log import append_event
from osmosis_platform.secrets.redacting import OWN

DATASET_STATUS, DATASET_PROGRESS, DATASET_DELETED = "dataset.status", "dataset.progress", "dataset.deleted"
SYNC_STATUS, SYNC_PROGRESS = "sync.status", "sync.progress"

_DATASET_ENDS = (DatasetStatus.UPLOADED, DatasetStatus.ERROR, DatasetStatus.CANCELLED)
_TOLD_OF_DATASETS = ("row_count", "error_code", "error_message")
_TOLD_OF_SYNCS = ("trigger", "branch", "commit_sha", "rollout_count", "error_code", "error_message")


def tell_dataset(work: UnitOfWork, workspace_id: str, dataset_id: str, kind: str, payload: Mapping[str, Any]) -> None:
    """Adds an event to a dataset's stream."""
    append_event(work, workspace_id, dataset_id, kind, payload, redactor=OWN)


def move_dataset(
    work: UnitOfWork,
    workspace_id: str,
    dataset_id: str,
    from_: Sequence[DatasetStatus],
    to: DatasetStatus,
    **values: Any,
) -> bool:
    """`DatasetRepository.move`, with its event unless the dataset was there already, as a job that begins again is.

    Args:
        work: A unit of work that may write.
        workspace_id: Whose.
        dataset_id: Which.
        from_: Where it must be.
        to: Where it will be.
        values: Further columns.

    Returns:
        Whether it was in one of the states, and so is in the new one.
    """
    repository = DatasetRepository(work)
    before = repository.lock_status(workspace_id, dataset_id)
    if not repository.move(workspace_id, dataset_id, from_, to, **values):
        return False
    if before != to:
        facts = {name: values[name] for name in _TOLD_OF_DATASETS if values.get(name) is not None}
        append_event(work, workspace_id, dataset_id, DATASET_STATUS, {"status": str(to), **facts}, redactor=OWN)
        if to in _DATASET_ENDS:
            StreamRepository(work).close(workspace_id, dataset_id)
    return True


def tell_sync(work: UnitOfWork, sync: Sync) -> None:
    """Adds the event of a sync's new status; one that ended has said everything."""
    facts = {name: getattr(sync, name) for name in _TOLD_OF_SYNCS}
    told = {name: value for name, value in facts.items() if value is not None}
    append_event(work, sync.workspace_id, sync.id, SYNC_STATUS, {"status": sync.status, **told}, redactor=OWN)
    if sync.finished_at is not None:
        StreamRepository(work).close(sync.workspace_id, sync.id)


def discard_sync(work: UnitOfWork, sync: Sync) -> None:
    """Drops a sync that told nothing new, and its stream."""
    SyncRepository(work).discard(sync.workspace_id, sync.id)
    StreamRepository(work).drop(sync.workspace_id, sync.id)
