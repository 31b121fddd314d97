"""Rows of creating requests that carried a key: claimed, applied, answered, forgotten. Their meaning: api/idempotency."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert_new
from osmosis_platform.db.tables.idempotency import idempotency_keys


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that carried a key.

    Attributes:
        id: MAC of the credential, the method, the path and the key.
        request_mac: MAC of the query and the body.
        claim: Of whoever runs it; another one has taken it over if it changed.
        claimed_until: When it counts as dead, unless it is answered.
        is_applied: Whether a transaction of it was committed.
        status: Of the answer; None until there is one.
        data_key_id: What the answer is sealed with.
    """

    id: str
    request_mac: str
    claim: str
    claimed_until: datetime
    is_applied: bool
    status: int | None
    data_key_id: str | None
    nonce: bytes | None = field(repr=False)
    ciphertext: bytes | None = field(repr=False)
    expires_at: datetime


class IdempotencyRepository:
    """Requests with keys, of every caller: the id holds whose it is."""

    GLOBAL = "a key belongs to the credential that its id is made of; many of these requests have no workspace"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def claim(
        self, key_id: str, *, request_mac: str, claim: str, claimed_until: datetime, expires_at: datetime
    ) -> KeyedRequest | None:
        """Notes a request that is about to run; None if it is, or what is known of an earlier one with its key."""
        now = self._work.clock()
        self._work.execute(
            idempotency_keys.delete().where(idempotency_keys.c.id == key_id, idempotency_keys.c.expires_at <= now)
        )
        values = {
            "id": key_id,
            "request_mac": request_mac,
            "claim": claim,
            "claimed_until": claimed_until,
            "is_applied": False,
            "expires_at": expires_at,
        }
        if insert_new(self._work, idempotency_keys, values):
            return None
        query = sa.select(*_COLUMNS).where(idempotency_keys.c.id == key_id).with_for_update()
        row = self._work.execute(query).one_or_none()
        return None if row is None else KeyedRequest(*row)

    def take_over(self, key_id: str, *, claim: str, claimed_until: datetime) -> None:
        """Gives a request whose process died to another one."""
        mine = idempotency_keys.c.id == key_id
        self._work.execute(idempotency_keys.update().where(mine).values(claim=claim, claimed_until=claimed_until))

    def apply(self, key_id: str, claim: str) -> bool:
        """Notes, in the transaction of the request, that it is carried out; False if another one has taken it over."""
        mine = (idempotency_keys.c.id == key_id) & (idempotency_keys.c.claim == claim)
        return self._work.execute(idempotency_keys.update().where(mine).values(is_applied=True)).rowcount == 1

    def answer(
        self, key_id: str, claim: str, *, status: int, data_key_id: str, nonce: bytes, ciphertext: bytes
    ) -> None:
        """Keeps the answer of a request."""
        mine = (idempotency_keys.c.id == key_id) & (idempotency_keys.c.claim == claim)
        values = {"status": status, "data_key_id": data_key_id, "nonce": nonce, "ciphertext": ciphertext}
        self._work.execute(idempotency_keys.update().where(mine).values(**values))

    def give_up(self, key_id: str, claim: str, *, is_refused: bool) -> None:
        """Ends a claim without an answer: forgets a request that changed nothing; of another one the outcome is unknown."""
        mine = (idempotency_keys.c.id == key_id) & (idempotency_keys.c.claim == claim)
        nothing_done = mine if is_refused else mine & ~idempotency_keys.c.is_applied
        if not self._work.execute(idempotency_keys.delete().where(nothing_done)).rowcount:
            self._work.execute(idempotency_keys.update().where(mine).values(claimed_until=self._work.clock()))

    def drop_expired(self) -> int:
        """Forgets what no retry asks for any more; how many."""
        over = idempotency_keys.c.expires_at <= self._work.clock()
        return self._work.execute(idempotency_keys.delete().where(over)).rowcount


_COLUMNS = [idempotency_keys.c[name] for name in KeyedRequest.__dataclass_fields__]
