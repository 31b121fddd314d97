"""The pages of datasets: the list, one with its first rows and log, download, rename, delete. Uploads are the client's."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from osmosis_platform.api import datasets
from osmosis_platform.api.pages.pager import Pager
from osmosis_platform.api.pages.rendering import go_to
from osmosis_platform.api.pages.visitors import SentDep, member_may
from osmosis_platform.api.pages.workspace import may, workspace_page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.api.segments import Segment
from osmosis_platform.db.repositories.datasets import DatasetRepository
from osmosis_platform.domain.permissions import Action, is_allowed
from osmosis_platform.errors import ServiceError
from osmosis_platform.events.log import read_page
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}/datasets", include_in_schema=False)

_ROWS, _LINES = 10, 50


@router.get("")
async def show_datasets(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_READ)]
) -> Response:
    """The datasets, newest first."""
    pager = Pager(request, f"/{scope.workspace_name}/datasets")
    found, total = await services.database.reading(
        lambda work: DatasetRepository(work).page(scope.workspace_id, limit=pager.size, offset=pager.offset)
    )
    facts = {"datasets": found, "shown": pager.over(total), "may_write": may(scope, Action.DATASETS_WRITE)}
    return workspace_page(request, "datasets", scope, "/datasets", **facts)


@router.get("/{dataset_id}")
async def show_dataset(
    request: Request,
    services: ServicesDep,
    dataset_id: Segment,
    scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_READ)],
) -> Response:
    """One dataset."""
    return await _dataset(request, services, scope, dataset_id)


@router.get("/{dataset_id}/download")
async def download(
    services: ServicesDep, dataset_id: Segment, scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_READ)]
) -> Response:
    """Leads to the bytes, by an address that counts for a while."""
    url, _ = await datasets.download_url(services, scope, dataset_id)
    return RedirectResponse(url, 303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})


@router.post("/{dataset_id}/rename")
async def send_name(
    request: Request,
    services: ServicesDep,
    dataset_id: Segment,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_WRITE)],
) -> Response:
    """Gives it another name."""
    try:
        renamed = await datasets.rename(services, scope, dataset_id, form["name"].strip())
    except ServiceError as error:
        if error.status >= 500 or error.error_code == "DATASET_NOT_FOUND":
            raise
        error.field = "name"
        return await _dataset(
            request, services, scope, dataset_id, status=error.status, failure=error, given=form.values
        )
    return go_to(f"/{scope.workspace_name}/datasets/{renamed.id}?done=renamed")


@router.post("/{dataset_id}/delete")
async def send_delete(
    services: ServicesDep,
    dataset_id: Segment,
    _form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_WRITE)],
) -> Response:
    """Deletes it for good."""
    await datasets.delete(services, scope, dataset_id)
    return go_to(f"/{scope.workspace_name}/datasets?done=deleted")


async def _dataset(
    request: Request, services: Services, scope: WorkspaceScope, dataset_id: str, **facts: Any
) -> Response:
    found = await datasets.find(services, scope, dataset_id)
    path = f"/{scope.workspace_name}/datasets/{found.id}"
    preview = found.preview or []
    rows, rows_shown = Pager(request, path, "rows", size=_ROWS).cut(preview)
    cursor = request.query_params.get("log")

    def read() -> Any:
        return read_page(services, scope.workspace_id, found.id, cursor=cursor, limit=_LINES, direction="older")

    log = await anyio.to_thread.run_sync(read)
    may_delete = is_allowed(scope.role, Action.DATASETS_DELETE, actor=scope.actor, owner_id=found.created_by)
    usual = {
        "dataset": found,
        "rows": rows,
        "rows_shown": rows_shown,
        "columns": list(dict.fromkeys(key for row in preview for key in row)),
        "lines": log.lines,
        "older": f"{path}?log={log.next_cursor}" if log.next_cursor else None,
        "may_write": may(scope, Action.DATASETS_WRITE),
        "may_delete": may_delete,
    }
    return workspace_page(request, "dataset", scope, "/datasets", **(usual | facts))
