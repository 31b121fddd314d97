"""Creating requests that carried an `Idempotency-Key`: whether they run, were carried out, and their answer, sealed."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import UtcTime

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # MAC of credential, method, path and key
    sa.Column("request_mac", sa.Text, nullable=False),  # of query and body
    sa.Column("claim", sa.Text, nullable=False),  # of the request that runs
    sa.Column("claimed_until", UtcTime, nullable=False),
    sa.Column("is_applied", sa.Boolean, nullable=False),  # its transaction was committed
    sa.Column("status", sa.Integer),  # of the answer; null until there is one
    sa.Column("data_key_id", sa.ForeignKey("data_keys.id"), index=True),
    sa.Column("nonce", sa.LargeBinary),
    sa.Column("ciphertext", sa.LargeBinary),
    sa.Column("expires_at", UtcTime, nullable=False, index=True),
)
