"""Values that came with a run: sealed when it is submitted, opened by whoever holds its lease, gone when it ends.

They are in no other row: not in the job's payload, events or history. A retry has to bring them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.jobs import Job
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.repositories.secrets import RunSecretRepository, RunSecretSweep, SealedRunSecret
from osmosis_platform.errors import TakenError
from osmosis_platform.secrets.keeping import check_name, check_value
from osmosis_platform.secrets.vault import Sealed, Vault

ORPHANS_KEPT = timedelta(hours=1)
"""Values of a run that no open job is for are swept after this time; the end of the run removes them at once."""


def keep_for_run(vault: Vault, work: UnitOfWork, workspace_id: str, run_id: str, provided: Mapping[str, str]) -> None:
    """Keeps the values that came with a run, in the transaction that puts its job into the queue.

    Raises:
        InvalidRequestError: A name or a value is not one.
    """
    for name, value in sorted(provided.items()):
        sealed = vault.seal(work, workspace_id, check_value(value), _place(run_id, check_name(name)))
        row = SealedRunSecret(name, sealed.data_key_id, sealed.nonce, sealed.ciphertext)
        RunSecretRepository(work).add(workspace_id, run_id, row)


def read_for_run(vault: Vault, work: UnitOfWork, job: Job) -> dict[str, str]:
    """The values that came with the run that a job drives, for the worker that holds its lease.

    Args:
        vault: Opens them.
        work: A transaction.
        job: As it was claimed; its subject is the run.

    Raises:
        TakenError: `LEASE_LOST`: another worker drives the run, or nobody; it gets nothing.
    """
    if job.subject_id is None or not LeaseRepository(work).hold(job.id, job.epoch):
        raise TakenError(f"This worker does not hold the lease of job {job.id}.", code="LEASE_LOST")
    return {
        row.name: vault.unseal(
            work,
            job.workspace_id,
            Sealed(row.data_key_id, row.nonce, row.ciphertext),
            _place(job.subject_id, row.name),
        ).decode()
        for row in RunSecretRepository(work).all(job.workspace_id, job.subject_id)
    }


def forget_run(work: UnitOfWork, workspace_id: str, run_id: str) -> int:
    """Removes what came with a run, in the transaction that ends it; how many values there were."""
    return RunSecretRepository(work).forget(workspace_id, run_id)


def sweep(work: UnitOfWork) -> int:
    """Removes values whose run's end was never written, such as those of a run that was not put into the queue."""
    return RunSecretSweep(work).drop_orphans(work.clock() - ORPHANS_KEPT)


def _place(run_id: str, name: str) -> dict[str, str]:
    return {"scope": "run", "owner": run_id, "name": name, "version": "1"}
