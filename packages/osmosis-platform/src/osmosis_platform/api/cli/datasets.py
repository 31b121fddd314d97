"""The seven dataset endpoints of the command line (platform-api.md 8); what they do is in api.datasets."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from osmosis_platform.api import datasets
from osmosis_platform.api.cli.logs import Cursor, LineDirection, LineLimit, LogEntries, log_page
from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed
from osmosis_platform.api.segments import Segment
from osmosis_platform.blobs.store import MAX_PARTS
from osmosis_platform.clock import wire_time
from osmosis_platform.db.repositories.datasets import Dataset, DatasetRepository, ListedDataset
from osmosis_platform.domain.dataset import Format
from osmosis_platform.domain.permissions import Action
from osmosis_platform.services import Services

router = APIRouter(prefix="/api/cli/datasets", tags=["datasets"])


class DatasetItem(BaseModel):
    """A dataset (platform-api.md 8.1). Size, format and `updated_at` are of the bytes that download serves."""

    id: str
    file_name: str
    file_size: int
    status: str
    file_format: str | None
    original_file_format: str | None
    original_file_size: int | None
    row_count: int | None
    creator_name: str | None
    created_at: str | None
    updated_at: str | None
    platform_url: str | None
    is_internal_user: bool = False
    data_preview: list[dict[str, Any]] | None = None
    error_code: str | None = None
    error_message: str | None = None


class DatasetBegun(DatasetItem):
    """A new dataset with leave to upload it."""

    upload: dict[str, Any]


class DatasetPage(BaseModel):
    """One page of datasets, newest first."""

    datasets: list[DatasetItem]
    total_count: int
    has_more: bool
    next_offset: int | None


class Begin(BaseModel):
    """What the client knows of a file that it is about to upload."""

    file_name: str = Field(max_length=1000, description="The file's name without folder and extension.")
    file_size: Annotated[int, Field(strict=True, ge=0, lt=1 << 63, description="Bytes.")]
    extension: Format
    overwrite_dataset_id: str | None = Field(None, max_length=100, description="`existing_dataset_id` of a 409.")


class Part(BaseModel):
    """A part that was uploaded."""

    PartNumber: Annotated[int, Field(strict=True, ge=1, le=MAX_PARTS)]
    ETag: str = Field(max_length=200)


class Complete(BaseModel):
    """What the client says it uploaded."""

    file_extension: Format
    parts: list[Part] = Field(default_factory=list, max_length=MAX_PARTS)


class UploadState(BaseModel):
    """How to go on with an upload that was broken off; 0.3.8 does not ask for it."""

    upload: dict[str, Any]
    uploaded_parts: list[int]


class Download(BaseModel):
    """Where the bytes are."""

    presigned_url: str
    expires_in: int
    file_name: str


@router.get("", response_model=DatasetPage)
async def list_datasets(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_READ)],
    services: ServicesDep,
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """Datasets, newest first."""
    items, total = await services.database.reading(
        lambda work: DatasetRepository(work).page(scope.workspace_id, limit=limit, offset=offset)
    )
    place = pages_of(services, scope)
    return answer(page("datasets", [facts_of(one, place, None) for one in items], total, offset))


@router.post("", status_code=201)
async def begin_dataset(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_WRITE)], services: ServicesDep, body: Begin
) -> DatasetBegun:
    """Begins an upload."""
    dataset, upload = await datasets.begin(
        services,
        scope,
        name=body.file_name,
        format=body.extension,
        size_bytes=body.file_size,
        overwrite_id=body.overwrite_dataset_id,
    )
    return DatasetBegun(**facts_of(dataset, pages_of(services, scope), None), upload=upload.wire())


@router.get("/{dataset}")
async def show_dataset(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_READ)], services: ServicesDep, dataset: Segment
) -> DatasetItem:
    """One dataset by name or id, with its first rows."""
    return item_of(services, scope, await datasets.find(services, scope, dataset))


@router.get("/{dataset}/upload")
async def dataset_upload(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_WRITE)], services: ServicesDep, dataset: Segment
) -> UploadState:
    """Fresh URLs for an upload that was broken off, and which parts need not be sent again."""
    upload, there = await datasets.renew(services, scope, dataset)
    return UploadState(upload=upload.wire(), uploaded_parts=list(there))


@router.post("/{dataset}/complete")
async def complete_dataset(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_WRITE)],
    services: ServicesDep,
    dataset: Segment,
    body: Complete,
) -> DatasetItem:
    """Ends an upload; a repeated call answers what has become of it."""
    parts = [(part.PartNumber, part.ETag) for part in body.parts]
    found = await datasets.complete(services, scope, dataset, format=body.file_extension, parts=parts)
    return item_of(services, scope, found)


@router.post("/{dataset}/abort", status_code=204)
async def abort_dataset(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_WRITE)], services: ServicesDep, dataset: Segment
) -> Response:
    """Cancels an upload."""
    await datasets.abort(services, scope, dataset)
    return Response(status_code=204)


@router.get("/{dataset}/download")
async def download_dataset(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_READ)], services: ServicesDep, dataset: Segment
) -> Download:
    """A URL of the bytes as they were uploaded."""
    url, file_name = await datasets.download_url(services, scope, dataset)
    return Download(presigned_url=url, expires_in=services.settings.url_lifetime_s, file_name=file_name)


@router.get("/{dataset}/logs")
async def dataset_logs(
    scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_READ)],
    services: ServicesDep,
    dataset: Segment,
    limit: LineLimit = 50,
    direction: LineDirection = "older",
    cursor: Cursor = None,
) -> LogEntries:
    """What was done to the dataset, in pages of lines."""
    found = await datasets.find(services, scope, dataset)
    return await log_page(services, scope.workspace_id, found.id, cursor=cursor, limit=limit, direction=direction)


def item_of(services: Services, scope: WorkspaceScope, dataset: Dataset) -> DatasetItem:
    """A dataset on the wire."""
    return DatasetItem(**facts_of(dataset, pages_of(services, scope), dataset.preview))


def pages_of(services: Services, scope: WorkspaceScope) -> str:
    """Where the pages of the workspace's datasets are."""
    return f"{services.settings.base_url}/{scope.workspace_name}/datasets"


def facts_of(dataset: ListedDataset, pages: str, preview: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The fields of `DatasetItem`."""
    served = dataset.file_format is not None and dataset.file_size_bytes is not None
    return {
        "id": dataset.id,
        "file_name": dataset.name,
        "file_size": (dataset.file_size_bytes or 0) if served else dataset.original_size_bytes,
        "status": dataset.status,
        "file_format": dataset.file_format if served else dataset.original_format,
        "original_file_format": dataset.original_format,
        "original_file_size": dataset.original_size_bytes,
        "row_count": dataset.row_count,
        "creator_name": dataset.creator_name,
        "created_at": wire_time(dataset.created_at),
        "updated_at": wire_time(dataset.updated_at),
        "platform_url": f"{pages}/{dataset.id}",
        "is_internal_user": False,
        "data_preview": preview,
        "error_code": dataset.error_code,
        "error_message": dataset.error_message,
    }
