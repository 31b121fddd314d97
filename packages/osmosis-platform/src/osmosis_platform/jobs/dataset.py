"""The job `dataset.process`: makes an uploaded file a dataset, or says why it is none. The reading: jobs.dataset_content."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from osmosis_platform import crashpoints
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.datasets import Dataset, DatasetRepository
from osmosis_platform.db.repositories.jobs import Job
from osmosis_platform.domain.dataset import IN_WORK, DatasetStatus
from osmosis_platform.domain.job import JobStatus
from osmosis_platform.events.changes import DATASET_PROGRESS, move_dataset
from osmosis_platform.jobs.handler import JobContext, JobFailureError
from osmosis_platform.services import Services

_LINE_BYTES = 8 << 20
_GRACE_S = 900
_SLOWEST_BYTES_PER_S = 500_000
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_SIGNALS = {
    signal.SIGXCPU: ("DATASET_LIMITS", "Reading it takes too long; split the file."),
    signal.SIGXFSZ: ("DATASET_LIMITS", "Its Parquet copy grows far beyond the file; split the file."),
    signal.SIGABRT: ("DATASET_UNREADABLE", "The file makes its reader give up: it is damaged, or made to harm."),
    signal.SIGSEGV: ("DATASET_UNREADABLE", "The file makes its reader crash: it is damaged, or made to harm."),
    signal.SIGBUS: ("DATASET_UNREADABLE", "The file makes its reader crash: it is damaged, or made to harm."),
}


def process(context: JobContext) -> Mapping[str, Any] | None:
    """Validates, counts, samples and converts the dataset that is the job's subject.

    Raises:
        JobFailureError: The file is no dataset (`fault` user), or its reader was killed; `ended` writes it down.
    """
    workspace_id, dataset_id = context.job.workspace_id, str(context.job.subject_id)
    with context.write(durable=True) as work:
        repository = DatasetRepository(work)
        if not move_dataset(work, workspace_id, dataset_id, IN_WORK, DatasetStatus.PROCESSING):
            return {"skipped": "the dataset was deleted or cancelled"}
        dataset = repository.get(workspace_id, dataset_id)
        assert dataset is not None
        size = dataset.original_size_bytes
        context.log("info", "setup", f"processing {dataset.name}.{dataset.original_format}, {size} bytes", work=work)
    blobs = context.services.blobs
    with _scratch(context.services, dataset_id) as scratch, blobs.local(dataset.original_blob_key) as original:
        copy = None if dataset.original_format == "parquet" else scratch / "copy.parquet"
        facts = _examine(context, dataset, original, scratch, copy)
        context.check()
        parquet_key = dataset.original_blob_key
        if copy is not None:
            parquet_key = f"{workspace_id}/datasets/{dataset_id}/parquet"
            blobs.put_file(parquet_key, copy)
    crashpoints.reach("dataset.before-done")
    with context.write(durable=True) as work:
        move_dataset(
            work,
            workspace_id,
            dataset_id,
            (DatasetStatus.PROCESSING,),
            DatasetStatus.UPLOADED,
            original_sha256=facts["sha256"],
            file_format=dataset.original_format,
            file_size_bytes=dataset.original_size_bytes,
            file_blob_key=dataset.original_blob_key,
            parquet_blob_key=parquet_key,
            row_count=facts["row_count"],
            preview=facts["preview"],
            column_statistics=facts["column_statistics"],
        )
        crashpoints.reach("dataset.in-done")
        context.log("info", "done", f"{dataset.name} can be used by runs; rows: {facts['row_count']}", work=work)
    return {"row_count": facts["row_count"], "max_rss_bytes": facts["max_rss_bytes"]}


def ended(work: UnitOfWork, job: Job) -> None:
    """Gives a dataset the end of its job, in the same transaction, unless it has one."""
    if job.subject_id is None:
        return
    if job.status == JobStatus.CANCELLED:
        move_dataset(work, job.workspace_id, job.subject_id, IN_WORK, DatasetStatus.CANCELLED)
    elif job.status == JobStatus.FAILED:
        code = job.error.code if job.error else "INTERNAL"
        message = job.error.message if job.error else "Processing failed."
        values = {"error_code": code, "error_message": message}
        move_dataset(work, job.workspace_id, job.subject_id, IN_WORK, DatasetStatus.ERROR, **values)


@contextmanager
def _scratch(services: Services, dataset_id: str) -> Generator[Path]:
    """A directory of this job; one that a killed worker left is emptied."""
    path = services.settings.data_dir / "tmp" / f"dataset-{dataset_id}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700, parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _examine(context: JobContext, dataset: Dataset, original: Path, scratch: Path, copy: Path | None) -> dict[str, Any]:
    """Runs the child over the file.

    Raises:
        JobFailureError: What it says is wrong, or how it died.
    """
    place = scratch / f"{dataset.name}.{dataset.original_format}"  # messages name the file as the user does
    place.symlink_to(original)
    order = {
        "path": str(place),
        "format": dataset.original_format,
        "parquet": str(copy) if copy else None,
        "output_bytes": 4 * dataset.original_size_bytes + (64 << 20),
    }
    deadline = time.monotonic() + _GRACE_S + dataset.original_size_bytes / _SLOWEST_BYTES_PER_S
    with subprocess.Popen(
        [sys.executable, "-m", "osmosis_platform.jobs.dataset_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=scratch,
        env=_environment(),
        start_new_session=True,
    ) as child:
        try:
            assert child.stdin is not None
            child.stdin.write(json.dumps(order).encode() + b"\n")
            child.stdin.flush()  # and stays open: its end tells the child that we are gone
            last: dict[str, Any] = {}
            for said in _answers(context, child, deadline):
                if "log" in said:
                    level, step, message = said["log"]
                    context.log(level, step, _shown(message, scratch))
                elif "progress" in said:
                    step, rows = said["progress"]
                    _tell_progress(context, step, rows)
                else:
                    last = said
            status = child.wait()
        finally:
            child.kill()
    context.cpu_seconds += float(last.get("cpu_s", 0.0))
    if "content" in last:
        return {**last["content"], "max_rss_bytes": last["max_rss_bytes"]}
    if "error" in last:
        code, message, lines = last["error"]
        for line in lines:
            context.log("error", "validate", _shown(line, scratch))
        raise _refused(context, code, _shown(message, scratch))
    if -status in _SIGNALS:
        raise _refused(context, *_SIGNALS[signal.Signals(-status)])
    message = f"The process that read the dataset ended with status {status}. It is tried again."
    raise JobFailureError("DATASET_READER_LOST", message, retryable=True)


def _tell_progress(context: JobContext, step: str, rows: int) -> None:
    facts = {"step": step, "rows": rows}
    with context.write() as work:
        context.progress(facts, work=work)
        context.event(DATASET_PROGRESS, {**facts, "attempt": context.job.epoch}, work=work)


def _answers(context: JobContext, child: subprocess.Popen[bytes], deadline: float) -> Generator[dict[str, Any]]:
    """What the child says, line by line, while nobody cancels the job."""
    assert child.stdout is not None
    file, rest = child.stdout.fileno(), b""
    poll = select.poll()  # select() takes no descriptor over 1,023
    poll.register(file, select.POLLIN)
    while True:
        context.check()
        if time.monotonic() > deadline or len(rest) > _LINE_BYTES:
            raise _refused(context, *_SIGNALS[signal.SIGXCPU])
        if not poll.poll(250):
            continue
        chunk = os.read(file, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _refused(context: JobContext, code: str, message: str) -> JobFailureError:
    context.log("error", "validate", f"{code}: the file cannot be used as a dataset")
    return JobFailureError(code, message, fault="user")


def _shown(message: str, scratch: Path) -> str:
    return message.replace(f"{scratch}/", "")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    # The same hashes each time, and an allocator whose reservations do not count as memory in use.
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
    }
