"""Datasets for pages and other clients: what the command line cannot do; uploads begin in api.cli.datasets."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from osmosis_platform.api import datasets
from osmosis_platform.api.cli.datasets import DatasetItem, UploadState, facts_of, pages_of
from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.repositories.datasets import Dataset, DatasetRepository, ListedDataset
from osmosis_platform.domain.permissions import Action
from osmosis_platform.services import Services

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/datasets", tags=["datasets"])


class WorkspaceDataset(DatasetItem):
    """A dataset with its history."""

    replaces_id: str | None
    deleted_at: str | None
    deleted_by: str | None


class WorkspaceDatasetPage(BaseModel):
    """One page of datasets."""

    datasets: list[WorkspaceDataset]
    total_count: int
    has_more: bool
    next_offset: int | None


class Rename(BaseModel):
    """Another name."""

    name: str = Field(max_length=1000)


class Statistics(BaseModel):
    """What is in the columns, as processing counted it; null before that."""

    row_count: int | None
    column_statistics: dict[str, Any] | None


class Preview(BaseModel):
    """Some of the first rows; long cells are cut."""

    rows: list[dict[str, Any]]
    total_count: int
    has_more: bool
    next_offset: int | None


@router.get("", response_model=WorkspaceDatasetPage)
async def list_workspace_datasets(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_READ)],
    services: ServicesDep,
    deleted: Annotated[bool, Query(description="The deleted ones instead, latest first.")] = False,
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """Datasets, newest first."""
    items, total = await services.database.reading(
        lambda work: DatasetRepository(work).page(scope.workspace_id, limit=limit, offset=offset, deleted=deleted)
    )
    place = pages_of(services, scope)
    return answer(page("datasets", [_facts(one, place, None) for one in items], total, offset))


@router.get("/{dataset}")
async def show_workspace_dataset(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_READ)], services: ServicesDep, dataset: Segment
) -> WorkspaceDataset:
    """One dataset by name or id."""
    return _item(services, scope, await datasets.find(services, scope, dataset))


@router.patch("/{dataset}")
async def rename_dataset(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_WRITE)],
    services: ServicesDep,
    dataset: Segment,
    body: Rename,
) -> WorkspaceDataset:
    """Gives a dataset another name."""
    return _item(services, scope, await datasets.rename(services, scope, dataset, body.name))


@router.delete("/{dataset}", status_code=204)
async def delete_dataset(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_WRITE)], services: ServicesDep, dataset: Segment
) -> Response:
    """Deletes a dataset for good; runs that used it keep their results."""
    await datasets.delete(services, scope, dataset)
    return Response(status_code=204)


@router.get("/{dataset}/statistics")
async def dataset_statistics(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_READ)], services: ServicesDep, dataset: Segment
) -> Statistics:
    """Types, nulls, distinct values, ranges and lengths of the columns."""
    found = await datasets.find(services, scope, dataset)
    return Statistics(row_count=found.row_count, column_statistics=found.column_statistics)


@router.get("/{dataset}/preview")
async def dataset_preview(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_READ)],
    services: ServicesDep,
    dataset: Segment,
    limit: Limit = 10,
    offset: Offset = 0,
) -> Preview:
    """Pages of the first rows."""
    found = await datasets.find(services, scope, dataset)
    rows = found.preview or []
    return Preview(**page("rows", rows[offset : offset + limit], len(rows), offset))


@router.get("/{dataset}/upload")
async def dataset_upload(
    scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_WRITE)], services: ServicesDep, dataset: Segment
) -> UploadState:
    """Fresh URLs for an upload that was interrupted, and which parts need not be sent again."""
    upload, there = await datasets.renew(services, scope, dataset)
    return UploadState(upload=upload.wire(), uploaded_parts=list(there))


def _item(services: Services, scope: WorkspaceScope, dataset: Dataset) -> WorkspaceDataset:
    return WorkspaceDataset(**_facts(dataset, pages_of(services, scope), dataset.preview))


def _facts(dataset: ListedDataset, pages: str, preview: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        **facts_of(dataset, pages, preview),
        "replaces_id": dataset.replaces_id,
        "deleted_at": wire_time(dataset.deleted_at),
        "deleted_by": dataset.deleted_by,
    }
