"""The jobs of a workspace: listed, shown, cancelled. Rooms put them into the queue themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from osmosis_platform.api.paging import Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.jobs import Job, JobRepository, ListedJob
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import MissingError
from osmosis_platform.jobs.queue import request_cancel

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/jobs", tags=["jobs"])

Reader = Annotated[WorkspaceScope, allowed_here(Action.JOBS_READ)]
Canceller = Annotated[WorkspaceScope, allowed_here(Action.JOBS_CANCEL)]

type Status = Literal["queued", "running", "finished", "failed", "cancelled"]


class JobErrorView(BaseModel):
    """Why a job failed, or why its last try did."""

    code: str
    message: str
    fault: str


class JobView(BaseModel):
    """One job."""

    id: str
    kind: str
    queue: str
    status: Status
    subject_id: str | None = Field(description="What it works on; the job's log lines are in the log of this id.")
    priority: int
    failures: int = Field(description="Tries that ended by an error that may pass.")
    crashes: int = Field(description="Tries whose worker stopped answering.")
    cancel_requested: bool
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: JobErrorView | None
    created_at: str
    next_try_at: str | None = Field(description="Of a queued job.")
    started_at: str | None
    finished_at: str | None


class JobPage(BaseModel):
    """One page of jobs, newest first."""

    jobs: list[JobView]
    total_count: int
    has_more: bool
    next_offset: int | None


@router.get("", response_model=JobPage)
async def list_jobs(
    scope: Reader,
    services: ServicesDep,
    limit: Limit = 50,
    offset: Offset = 0,
    status: Annotated[list[Status] | None, Query(max_length=5, description="Only jobs in these states.")] = None,
    kind: Annotated[str | None, Query(max_length=100, description="Only this kind.")] = None,
    subject_id: Annotated[str | None, Query(max_length=100, description="Only jobs that work on this.")] = None,
) -> Response:
    """The jobs of the workspace, newest first."""

    def read(work: UnitOfWork) -> tuple[list[ListedJob], int]:
        return JobRepository(work).page(
            scope.workspace_id, limit=limit, offset=offset, statuses=status or (), kind=kind, subject_id=subject_id
        )

    jobs, total = await services.database.reading(read)
    return answer(page("jobs", [job_wire(job) for job in jobs], total, offset))


@router.get("/{job_id}", response_model=JobView)
async def get_job(scope: Reader, services: ServicesDep, job_id: str) -> dict[str, Any]:
    """One job."""
    job = await services.database.reading(lambda work: JobRepository(work).get(scope.workspace_id, job_id))
    return job_wire(_existing(job, job_id))


@router.post("/{job_id}/cancel", response_model=JobView)
async def cancel_job(scope: Canceller, services: ServicesDep, job_id: str) -> dict[str, Any]:
    """Cancels a job: at once while it waits; a running one is asked to stop, and ends within seconds."""

    def write(work: UnitOfWork) -> Job:
        repository = JobRepository(work)
        before = _existing(repository.get(scope.workspace_id, job_id), job_id)
        request_cancel(work, scope.workspace_id, job_id)
        after = _existing(repository.get(scope.workspace_id, job_id), job_id)
        if before.cancel_requested_at is None and after.cancel_requested_at is not None:
            AuditRepository(work).record(
                scope.workspace_id, scope.actor, "job.cancel", "job", job_id, {"kind": after.kind}
            )
        return after

    return job_wire(await services.database.writing(write))


def job_wire(job: ListedJob) -> dict[str, Any]:
    """A job as the wire shows it. The payload stays inside: it is the kind's own business."""
    error = job.error
    return {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "status": job.status.value,
        "subject_id": job.subject_id,
        "priority": job.priority,
        "failures": job.failures,
        "crashes": job.crashes,
        "cancel_requested": job.cancel_requested_at is not None,
        "progress": job.progress,
        "result": job.result,
        "error": None if error is None else {"code": error.code, "message": error.message, "fault": error.fault},
        "created_at": wire_time(job.created_at),
        "next_try_at": wire_time(job.not_before) if job.status == "queued" else None,
        "started_at": wire_time(job.started_at),
        "finished_at": wire_time(job.finished_at),
    }


def _existing(job: Job | None, job_id: str) -> Job:
    if job is None:
        raise MissingError(
            f"There is no job {job_id[:80]!r} in this workspace. `GET .../jobs` lists them.", field="job_id"
        )
    return job
