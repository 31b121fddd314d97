"""Datasets as rows. What their states mean is in domain.dataset; their bytes are in the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert_new
from osmosis_platform.db.listing import Listing
from osmosis_platform.db.tables.datasets import datasets
from osmosis_platform.db.tables.identity import users
from osmosis_platform.domain.dataset import DatasetStatus, spelled
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class ListedDataset:
    """What lists tell of a dataset.

    Attributes:
        original_format: As it was uploaded, like the other originals.
        file_format: Of what download serves, like the other file facts; None before it is complete.
        replaces_id: Which one it overwrites.
        creator_name: The name or e-mail address of who uploaded it.
    """

    id: str
    name: str
    status: DatasetStatus
    original_format: str
    original_size_bytes: int
    file_format: str | None
    file_size_bytes: int | None
    row_count: int | None
    error_code: str | None
    error_message: str | None
    replaces_id: str | None
    creator_name: str | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    deleted_by: str | None


@dataclass(frozen=True, slots=True)
class Dataset(ListedDataset):
    """One dataset.

    Attributes:
        live_name: Its name while it answers to it; None when it is cancelled, deleted, or overwrites one still in use.
        parquet_blob_key: Of the copy that runs read.
        preview: The first rows.
        upload: How the object store knows the upload, while there is one.
    """

    workspace_id: str
    live_name: str | None
    original_sha256: str | None
    original_blob_key: str
    file_blob_key: str | None
    parquet_blob_key: str | None
    created_by: str
    purged_at: datetime | None
    preview: list[dict[str, Any]] | None
    column_statistics: dict[str, Any] | None
    upload: dict[str, Any] | None


_CREATOR = sa.func.coalesce(sa.func.nullif(users.c.name, ""), users.c.email).label("creator_name")


def _columns(item: type[ListedDataset]) -> list[sa.ColumnElement[Any]]:
    """In the order of the fields, so that a row becomes an item as it comes."""
    return [_CREATOR if name == "creator_name" else datasets.c[name] for name in item.__dataclass_fields__]


_ALL = _columns(Dataset)
_ROWS = datasets.join(users, users.c.id == datasets.c.created_by)


def _made[T: ListedDataset](item: type[T], row: Sequence[Any]) -> T:
    id_, name, status, *facts = row
    return item(id_, name, DatasetStatus(status), *facts)


def _listing(is_gone: sa.ColumnElement[bool], newest: sa.Column[Any]) -> Listing[ListedDataset]:
    return Listing(
        _columns(ListedDataset),
        partial(_made, ListedDataset),
        datasets,
        where=(datasets.c.workspace_id == sa.bindparam("workspace_id"), is_gone),
        order=(newest.desc(), datasets.c.id.desc()),
        source=_ROWS,
    )


_LIVE = _listing(datasets.c.deleted_at.is_(None), datasets.c.created_at)
_DELETED = _listing(datasets.c.deleted_at.is_not(None), datasets.c.deleted_at)


class DatasetRepository:
    """Datasets of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(
        self,
        workspace_id: str,
        *,
        dataset_id: str,
        name: str,
        original_format: str,
        size_bytes: int,
        blob_key: str,
        upload: Mapping[str, Any],
        replaces_id: str | None,
        created_by: str,
    ) -> bool:
        """Adds a dataset that is being uploaded; False if the name belongs to another one and none is overwritten."""
        now = self._work.clock()
        values: dict[str, Any] = {
            "id": dataset_id,
            "workspace_id": workspace_id,
            "name": name,
            "live_name": None if replaces_id else name,
            "status": DatasetStatus.UPLOADING,
            "original_format": original_format,
            "original_size_bytes": size_bytes,
            "original_blob_key": blob_key,
            "upload": dict(upload),
            "replaces_id": replaces_id,
            "created_by": created_by,
            "created_at": now,
            "updated_at": now,
        }
        return insert_new(self._work, datasets, values)

    def find(self, workspace_id: str, name_or_id: str) -> Dataset | None:
        """The dataset of a name or id, unless deleted: who answers to the name, else the newest that once did."""
        name = spelled(name_or_id)
        query = self._of(workspace_id, _ALL).where(
            datasets.c.deleted_at.is_(None),
            sa.or_(datasets.c.live_name == name, datasets.c.id == name_or_id, datasets.c.name == name),
        )
        first = sa.case((datasets.c.live_name == name, 0), (datasets.c.id == name_or_id, 1), else_=2)
        query = query.order_by(first, datasets.c.created_at.desc(), datasets.c.id.desc()).limit(1)
        return self._one(query)

    def get(self, workspace_id: str, dataset_id: str) -> Dataset | None:
        """The dataset of an id, deleted or not."""
        return self._one(self._of(workspace_id, _ALL).where(datasets.c.id == dataset_id))

    def holder(self, workspace_id: str, name: str) -> Dataset | None:
        """Who answers to a name."""
        return self._one(self._of(workspace_id, _ALL).where(datasets.c.live_name == spelled(name)))

    def page(
        self, workspace_id: str, *, limit: int, offset: int, deleted: bool = False
    ) -> tuple[Sequence[ListedDataset], int]:
        """One page, newest first, and how many there are in all."""
        listing = _DELETED if deleted else _LIVE
        return listing.page(self._work, {"workspace_id": workspace_id}, limit=limit, offset=offset)

    def lock_status(self, workspace_id: str, dataset_id: str) -> DatasetStatus | None:
        """Where a dataset is, and stays until this transaction ends."""
        query = sa.select(datasets.c.status).where(datasets.c.workspace_id == workspace_id, datasets.c.id == dataset_id)
        found = self._work.execute(query.with_for_update()).scalar_one_or_none()
        return None if found is None else DatasetStatus(found)

    def move(
        self,
        workspace_id: str,
        dataset_id: str,
        from_: Sequence[DatasetStatus],
        to: DatasetStatus,
        **values: Any,
    ) -> bool:
        """Takes an undeleted dataset from one of some states to another; False if it is in none of them.

        Args:
            workspace_id: Whose.
            dataset_id: Which.
            from_: Where it must be.
            to: Where it will be.
            values: Further columns.
        """
        if to == DatasetStatus.CANCELLED:
            values["live_name"] = None
        statement = (
            datasets.update()
            .where(
                datasets.c.workspace_id == workspace_id,
                datasets.c.id == dataset_id,
                datasets.c.status.in_(from_),
                datasets.c.deleted_at.is_(None),
            )
            .values(status=to, updated_at=self._work.clock(), **values)
        )
        return self._work.execute(statement).rowcount == 1

    def give_name(self, workspace_id: str, dataset_id: str, name: str) -> bool:
        """Lets an undeleted dataset answer to a checked name; False if another one does."""
        taken = sa.exists().where(
            datasets.c.workspace_id == workspace_id, datasets.c.live_name == name, datasets.c.id != dataset_id
        )
        if self._work.execute(sa.select(taken)).scalar_one():
            return False
        self._work.execute(
            datasets.update()
            .where(
                datasets.c.workspace_id == workspace_id,
                datasets.c.id == dataset_id,
                datasets.c.deleted_at.is_(None),
            )
            .values(name=name, live_name=name, updated_at=self._work.clock())
        )
        return True

    def delete(self, workspace_id: str, dataset_id: str, *, deleted_by: str | None) -> bool:
        """Marks a dataset as deleted, which frees its name; False if it is already."""
        now = self._work.clock()
        statement = (
            datasets.update()
            .where(
                datasets.c.workspace_id == workspace_id,
                datasets.c.id == dataset_id,
                datasets.c.deleted_at.is_(None),
            )
            .values(live_name=None, deleted_at=now, deleted_by=deleted_by, updated_at=now)
        )
        return self._work.execute(statement).rowcount == 1

    def mark_purged(self, workspace_id: str, dataset_id: str) -> None:
        """Notes that the objects are gone."""
        place = (datasets.c.workspace_id == workspace_id, datasets.c.id == dataset_id)
        self._work.execute(datasets.update().where(*place).values(purged_at=self._work.clock()))

    def _of(self, workspace_id: str, columns: Sequence[Any]) -> sa.Select[Any]:
        return sa.select(*columns).select_from(_ROWS).where(datasets.c.workspace_id == workspace_id)

    def _one(self, query: sa.Select[Any]) -> Dataset | None:
        row = self._work.execute(query).one_or_none()
        return None if row is None else _made(Dataset, row)


class DatasetSweepRepository:
    """Datasets of every workspace whose objects nobody needs any more."""

    GLOBAL = "the sweep looks after the whole store; what it finds names its workspace"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def abandoned(self, before: datetime, *, limit: int = 500) -> Sequence[Dataset]:
        """Uploads that began before a moment and were never completed."""
        return self._some(
            limit,
            datasets.c.status == DatasetStatus.UPLOADING,
            datasets.c.deleted_at.is_(None),
            datasets.c.updated_at < before,
        )

    def purgeable(self, before: datetime, *, limit: int = 500) -> Sequence[Dataset]:
        """Datasets deleted or cancelled before a moment whose objects are still there."""
        gone = sa.or_(
            datasets.c.deleted_at < before,
            sa.and_(datasets.c.status == DatasetStatus.CANCELLED, datasets.c.updated_at < before),
        )
        return self._some(limit, gone, datasets.c.purged_at.is_(None))

    def _some(self, limit: int, *conditions: sa.ColumnElement[bool]) -> Sequence[Dataset]:
        query = sa.select(*_ALL).select_from(_ROWS).where(*conditions).order_by(datasets.c.updated_at).limit(limit)
        return [_made(Dataset, row) for row in self._work.execute(query)]


def new_dataset_id() -> str:
    """An id for a dataset that is about to be added."""
    return new_id("ds")
