"""Encrypted values: data keys wrapped by the master key, secrets of workspaces and persons, values of single runs."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import UtcTime

master_keys = sa.Table(
    "master_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # fingerprint of the key
    sa.Column("check_nonce", sa.LargeBinary, nullable=False),
    sa.Column("check_ciphertext", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("retired_at", UtcTime),
)

data_keys = sa.Table(
    "data_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False, index=True),  # or `platform`
    sa.Column("master_key_id", sa.ForeignKey("master_keys.id"), nullable=False, index=True),
    sa.Column("nonce", sa.LargeBinary, nullable=False),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("retired_at", UtcTime),
)

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("scope", sa.Text, nullable=False),  # workspace | user
    sa.Column("owner_id", sa.Text, nullable=False, default=""),  # the person of scope user
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("data_key_id", sa.ForeignKey("data_keys.id"), nullable=False, index=True),
    sa.Column("nonce", sa.LargeBinary, nullable=False),
    sa.Column("ciphertext", sa.LargeBinary, nullable=False),
    sa.Column("created_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.UniqueConstraint("workspace_id", "scope", "owner_id", "name"),
)

run_secrets = sa.Table(
    "run_secrets",
    metadata,
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("data_key_id", sa.ForeignKey("data_keys.id"), nullable=False, index=True),
    sa.Column("nonce", sa.LargeBinary, nullable=False),
    sa.Column("ciphertext", sa.LargeBinary, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)
