"""What the dataset routes of both surfaces do; wire models are in api.cli.datasets and api.v1.datasets.

No database session is open while the object store works. Where both change, the row decides: an object without a row that
wants it is swept, a row never tells of bytes that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio.to_thread

from osmosis_platform.api.scope import WorkspaceScope
from osmosis_platform.blobs.store import Upload
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.datasets import Dataset, DatasetRepository, new_dataset_id
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.dataset import IN_WORK, DatasetStatus, check_name, check_size
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, MissingError, TakenError
from osmosis_platform.events.changes import DATASET_DELETED, DATASET_STATUS, move_dataset, tell_dataset
from osmosis_platform.jobs.queue import enqueue, request_cancel
from osmosis_platform.services import Services
from osmosis_platform.usage import quotas

PROCESS = "dataset.process"


async def find(services: Services, scope: WorkspaceScope, name_or_id: str) -> Dataset:
    """The dataset of a name or id.

    Raises:
        MissingError: There is none in this workspace.
    """
    found = await services.database.reading(lambda work: DatasetRepository(work).find(scope.workspace_id, name_or_id))
    return _there(found, name_or_id)


async def begin(
    services: Services, scope: WorkspaceScope, *, name: str, format: str, size_bytes: int, overwrite_id: str | None
) -> tuple[Dataset, Upload]:
    """A new dataset that waits for its bytes, and leave to upload them.

    Raises:
        InvalidRequestError: Name, size or the dataset to overwrite do not fit.
        TakenError: The name belongs to another dataset; `existing_dataset_id` says which.
        ForbiddenError: The dataset to overwrite is somebody else's, or a quota is reached.
        StorageFullError: The store has no room.
    """
    name = check_name(name)
    check_size(size_bytes, services.settings.max_dataset_bytes)
    await services.database.reading(
        lambda work: _may_begin(work, scope, name, size_bytes=size_bytes, overwrite_id=overwrite_id)
    )
    dataset_id = new_dataset_id()
    key = f"{scope.workspace_id}/datasets/{dataset_id}/original"
    upload = await anyio.to_thread.run_sync(lambda: services.blobs.begin_upload(key, size_bytes=size_bytes))

    def add(work: UnitOfWork) -> Dataset:
        WorkspaceRepository(work).lock(scope.workspace_id)  # two that begin at once must not both fit the quota
        replaced = _may_begin(work, scope, name, size_bytes=size_bytes, overwrite_id=overwrite_id)
        repository = DatasetRepository(work)
        added = repository.add(
            scope.workspace_id,
            dataset_id=dataset_id,
            name=name,
            original_format=format,
            size_bytes=size_bytes,
            blob_key=key,
            upload=upload.to_json(),
            replaces_id=replaced,
            created_by=scope.actor.user_id,
        )
        if not added:
            raise _taken(name, repository.holder(scope.workspace_id, name))
        tell_dataset(work, scope.workspace_id, dataset_id, DATASET_STATUS, {"status": str(DatasetStatus.UPLOADING)})
        _audit(work, scope, "dataset.create", dataset_id, name=name, size_bytes=size_bytes, overwrites=replaced)
        return _there(repository.get(scope.workspace_id, dataset_id), dataset_id)

    try:
        return await services.database.writing(add), upload
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(services.blobs.abort_upload, key, upload)
        raise


async def renew(services: Services, scope: WorkspaceScope, name_or_id: str) -> tuple[Upload, Sequence[int]]:
    """Fresh URLs of an upload that was interrupted, and the parts that arrived already.

    Raises:
        MissingError: No such dataset.
        TakenError: It is not being uploaded.
    """
    dataset = await find(services, scope, name_or_id)
    if dataset.status != DatasetStatus.UPLOADING or dataset.upload is None:
        raise _not_now(dataset, "its upload is over")
    upload, key = Upload.from_json(dataset.upload), dataset.original_blob_key

    def renewed() -> tuple[Upload, Sequence[int]]:
        there = services.blobs.uploaded_parts(key, upload)
        return services.blobs.renew_upload(key, upload), [part.number for part in there]

    return await anyio.to_thread.run_sync(renewed)


async def complete(
    services: Services, scope: WorkspaceScope, dataset_id: str, *, format: str, parts: Sequence[tuple[int, str]]
) -> Dataset:
    """Makes the dataset of what arrived and puts its job into the queue; a second call answers what has become of it.

    Raises:
        MissingError: No such dataset, or the store forgot the upload.
        InvalidRequestError: Parts are absent or other ones, or the extension is another one.
        TakenError: The dataset was cancelled.
    """
    dataset = await _by_id(services, scope, dataset_id)
    if format != dataset.original_format:
        message = f"{dataset.name} was begun as {dataset.original_format}; complete it with the same extension."
        raise InvalidRequestError(message, field="file_extension")
    if dataset.status == DatasetStatus.CANCELLED:
        raise _not_now(dataset, "its upload was cancelled; upload it again")
    if dataset.status != DatasetStatus.UPLOADING or dataset.upload is None:
        return dataset
    upload, key = Upload.from_json(dataset.upload), dataset.original_blob_key
    info = await anyio.to_thread.run_sync(services.blobs.complete_upload, key, upload, parts)

    def finish(work: UnitOfWork) -> Dataset:
        WorkspaceRepository(work).lock(scope.workspace_id)  # two that overwrite one dataset come one after the other
        repository = DatasetRepository(work)
        values: dict[str, Any] = {"upload": None, "original_sha256": info.sha256}
        from_ = (DatasetStatus.UPLOADING,)
        if move_dataset(work, scope.workspace_id, dataset.id, from_, DatasetStatus.PENDING, **values):
            if dataset.live_name is None:
                _take_over(work, scope, dataset)
            enqueue(work, scope.workspace_id, PROCESS, {}, subject_id=dataset.id, unique_key=_job_key(dataset.id))
            _audit(work, scope, "dataset.complete", dataset.id, name=dataset.name)
        return _there(repository.get(scope.workspace_id, dataset.id), dataset.id)

    finished = await services.database.writing(finish)
    if finished.status == DatasetStatus.CANCELLED or finished.deleted_at is not None:  # while the store worked
        await anyio.to_thread.run_sync(services.blobs.delete, key)
        raise _not_now(finished, "its upload was cancelled meanwhile; upload it again")
    return finished


async def abort(services: Services, scope: WorkspaceScope, dataset_id: str) -> None:
    """Cancels an upload and forgets its bytes; fine if it is cancelled already.

    Raises:
        MissingError: No such dataset.
        TakenError: It is complete already.
    """
    dataset = await _by_id(services, scope, dataset_id)

    def cancel(work: UnitOfWork) -> Dataset:
        repository = DatasetRepository(work)
        from_ = (DatasetStatus.UPLOADING,)
        if move_dataset(work, scope.workspace_id, dataset.id, from_, DatasetStatus.CANCELLED, upload=None):
            _audit(work, scope, "dataset.abort", dataset.id, name=dataset.name)
        return _there(repository.get(scope.workspace_id, dataset.id), dataset.id)

    after = await services.database.writing(cancel)
    if after.status != DatasetStatus.CANCELLED:
        raise _not_now(after, "its upload is complete; delete the dataset instead")
    await anyio.to_thread.run_sync(_forget_upload, services, dataset)


async def download_url(services: Services, scope: WorkspaceScope, name_or_id: str) -> tuple[str, str]:
    """A URL of the bytes and the file name to save them under.

    Raises:
        MissingError: No such dataset.
        TakenError: It is not `uploaded`.
    """
    dataset = await find(services, scope, name_or_id)
    if dataset.status != DatasetStatus.UPLOADED or dataset.file_blob_key is None:
        what = "it can be downloaded once it is uploaded"
        raise _not_now(dataset, dataset.error_message or what)
    key, file_name = dataset.file_blob_key, f"{dataset.name}.{dataset.file_format}"
    url = await anyio.to_thread.run_sync(lambda: services.blobs.presign_get(key, file_name=file_name))
    return url, file_name


async def rename(services: Services, scope: WorkspaceScope, name_or_id: str, name: str) -> Dataset:
    """Gives a dataset another name.

    Raises:
        InvalidRequestError: The name cannot be one.
        MissingError: No such dataset.
        TakenError: The name belongs to another one, or the dataset is cancelled or still overwriting one.
    """
    try:
        name = check_name(name)
    except InvalidRequestError as error:
        error.field = "name"
        raise

    def change(work: UnitOfWork) -> Dataset:
        WorkspaceRepository(work).lock(scope.workspace_id)
        repository = DatasetRepository(work)
        dataset = _there(repository.find(scope.workspace_id, name_or_id), name_or_id)
        if dataset.live_name is None:
            raise _not_now(dataset, "only a dataset that has its name can get another one")
        if not repository.give_name(scope.workspace_id, dataset.id, name):
            raise _taken(name, repository.holder(scope.workspace_id, name))
        _audit(work, scope, "dataset.rename", dataset.id, before=dataset.name, after=name)
        return _there(repository.get(scope.workspace_id, dataset.id), name)

    return await services.database.writing(change)


async def delete(services: Services, scope: WorkspaceScope, name_or_id: str) -> None:
    """Deletes a dataset: its name is free at once, its bytes go with a later sweep. There is no way back.

    Raises:
        MissingError: No such dataset.
        ForbiddenError: It is somebody else's.
    """

    def remove(work: UnitOfWork) -> Dataset:
        WorkspaceRepository(work).lock(scope.workspace_id)
        repository = DatasetRepository(work)
        dataset = _there(repository.find(scope.workspace_id, name_or_id), name_or_id)
        scope.require(Action.DATASETS_DELETE, owner_id=dataset.created_by)
        _delete(work, scope, dataset)
        return dataset

    dataset = await services.database.writing(remove)
    await anyio.to_thread.run_sync(_forget_upload, services, dataset)


def _may_begin(
    work: UnitOfWork, scope: WorkspaceScope, name: str, *, size_bytes: int, overwrite_id: str | None
) -> str | None:
    """Whether a dataset of this name and size can be begun; the id of the one it overwrites."""
    quotas.check(work, scope.workspace_id, "datasets.file_bytes", size_bytes)
    quotas.check(work, scope.workspace_id, "datasets.bytes", size_bytes)
    holder = DatasetRepository(work).holder(scope.workspace_id, name)
    if holder is None:
        return None
    if overwrite_id is None:
        raise _taken(name, holder)
    if holder.id != overwrite_id:
        message = f"{name} is another dataset now ({holder.id}) than the one to overwrite. Upload it again."
        raise TakenError(message, field="overwrite_dataset_id", details={"existing_dataset_id": holder.id})
    scope.require(Action.DATASETS_DELETE, owner_id=holder.created_by)
    return holder.id


def _take_over(work: UnitOfWork, scope: WorkspaceScope, dataset: Dataset) -> None:
    """Deletes whoever has the name now and gives it to a dataset whose upload is complete."""
    repository = DatasetRepository(work)
    holder = repository.holder(scope.workspace_id, dataset.name)
    if holder is not None and holder.id != dataset.id:
        if holder.id != dataset.replaces_id:  # someone else overwrote the same one first: theirs is overwritten in turn
            scope.require(Action.DATASETS_DELETE, owner_id=holder.created_by)
        _delete(work, scope, holder)
    repository.give_name(scope.workspace_id, dataset.id, dataset.name)


def _delete(work: UnitOfWork, scope: WorkspaceScope, dataset: Dataset) -> None:
    from osmosis_platform.db.repositories.jobs import JobRepository

    if DatasetRepository(work).delete(scope.workspace_id, dataset.id, deleted_by=scope.actor.user_id):
        tell_dataset(work, scope.workspace_id, dataset.id, DATASET_DELETED, {})
        _audit(work, scope, "dataset.delete", dataset.id, name=dataset.name)
    if dataset.status in IN_WORK:
        open_id = JobRepository(work).find_open(scope.workspace_id, f"{scope.workspace_id}:{_job_key(dataset.id)}")
        if open_id is not None:
            request_cancel(work, scope.workspace_id, open_id)


def _forget_upload(services: Services, dataset: Dataset) -> None:
    if dataset.upload is not None:
        services.blobs.abort_upload(dataset.original_blob_key, Upload.from_json(dataset.upload))


async def _by_id(services: Services, scope: WorkspaceScope, dataset_id: str) -> Dataset:
    found = await services.database.reading(lambda work: DatasetRepository(work).get(scope.workspace_id, dataset_id))
    if found is not None and found.deleted_at is not None:
        found = None
    return _there(found, dataset_id)


def _there(dataset: Dataset | None, asked: str) -> Dataset:
    if dataset is None:
        message = f"There is no dataset {asked[:200]!r} in this workspace. `osmosis dataset list` shows what there is."
        raise MissingError(message, code="DATASET_NOT_FOUND")
    return dataset


def _taken(name: str, holder: Dataset | None) -> TakenError:
    message = f"A dataset {name} exists already. Upload it under another name, or overwrite it (--overwrite)."
    details = {"existing_dataset_id": holder.id} if holder else {}
    return TakenError(message, field="file_name", details=details)


def _not_now(dataset: Dataset, why: str) -> TakenError:
    message = f"Dataset {dataset.name} is {dataset.status}: {why}."
    return TakenError(message.replace("..", "."), code="DATASET_STATE", details={"status": str(dataset.status)})


def _job_key(dataset_id: str) -> str:
    return f"dataset:{dataset_id}"


def _audit(work: UnitOfWork, scope: WorkspaceScope, action: str, dataset_id: str, **details: Any) -> None:
    facts = {name: value for name, value in details.items() if value is not None}
    AuditRepository(work).record(scope.workspace_id, scope.actor, action, "dataset", dataset_id, facts)
