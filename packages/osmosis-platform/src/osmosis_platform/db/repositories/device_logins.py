"""Device logins as rows: what a command line asked for and a person approved or denied."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert_new
from osmosis_platform.db.tables.identity import device_logins


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """A login that a device began.

    Attributes:
        user_code: Eight letters without the hyphen.
        status: `pending`, `approved`, `denied` or `redeemed`.
        user_id: Who approved or denied it.
        interval_s: How long the device must wait between two polls.
    """

    id: str
    user_code: str
    device_name: str
    ip: str | None
    status: str
    user_id: str | None
    interval_s: int
    last_polled_at: datetime | None
    created_at: datetime
    expires_at: datetime


COLUMNS = [device_logins.c[name] for name in DeviceLogin.__dataclass_fields__]


class DeviceLoginRepository:
    """Every device login."""

    GLOBAL = "a device is nobody's until somebody approves it"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, login: DeviceLogin, device_code_sha256: str) -> bool:
        """Adds a login; False if its user code is in use."""
        values = {column.name: getattr(login, column.name) for column in COLUMNS}
        values["device_code_sha256"] = device_code_sha256
        return insert_new(self._work, device_logins, values)

    def by_device_code(self, sha256: str) -> DeviceLogin | None:
        """The login of a device code's hash."""
        return self._one(device_logins.c.device_code_sha256 == sha256)

    def by_user_code(self, user_code: str) -> DeviceLogin | None:
        """The login of a user code that somebody may still decide."""
        return self._one(
            device_logins.c.user_code == user_code,
            device_logins.c.status == "pending",
            device_logins.c.expires_at > self._work.clock(),
        )

    def polled(self, login_id: str, interval_s: int) -> None:
        """Notes a poll, and how long the device must wait from now on."""
        self._set(login_id, last_polled_at=self._work.clock(), interval_s=interval_s)

    def decide(self, login_id: str, user_id: str, status: str) -> bool:
        """Approves or denies a pending login: true for exactly one of those who try."""
        pending = (device_logins.c.id == login_id, device_logins.c.status == "pending")
        pending = (*pending, device_logins.c.expires_at > self._work.clock())
        statement = sa.update(device_logins).where(*pending).values(status=status, user_id=user_id)
        return self._work.execute(statement).rowcount == 1

    def redeem(self, login_id: str) -> bool:
        """Uses an approved login up: true for exactly one of those who try."""
        approved = (device_logins.c.id == login_id, device_logins.c.status == "approved")
        return self._work.execute(sa.update(device_logins).where(*approved).values(status="redeemed")).rowcount == 1

    def drop_older(self, age: timedelta) -> int:
        """Forgets logins that were over some time ago, so that their user codes are free again."""
        limit = self._work.clock() - age
        return self._work.execute(sa.delete(device_logins).where(device_logins.c.expires_at <= limit)).rowcount

    def _set(self, login_id: str, **values: object) -> None:
        self._work.execute(sa.update(device_logins).where(device_logins.c.id == login_id).values(**values))

    def _one(self, *conditions: sa.ColumnElement[bool]) -> DeviceLogin | None:
        row = self._work.execute(sa.select(*COLUMNS).where(*conditions)).mappings().one_or_none()
        return None if row is None else DeviceLogin(**row)
