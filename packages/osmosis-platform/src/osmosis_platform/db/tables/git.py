"""Repositories of workspaces, their branches and syncs, the rollouts found in them, source snapshots."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import UtcTime

repositories = sa.Table(
    "repositories",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),  # hosted | remote
    sa.Column("full_name", sa.Text, nullable=False),  # owner/repo as people see it
    sa.Column("identity", sa.Text, nullable=False, index=True),  # lower-case owner/repo, or host[:port]/path elsewhere
    sa.Column("remote_url", sa.Text),  # without credentials
    sa.Column("credential_kind", sa.Text, nullable=False, default="none"),  # none | token | deploy_key
    sa.Column("credential_key_id", sa.Text),
    sa.Column("credential_nonce", sa.LargeBinary),
    sa.Column("credential_ciphertext", sa.LargeBinary),
    sa.Column("deploy_public_key", sa.Text),
    sa.Column("known_hosts", sa.Text),
    sa.Column("webhook_key_id", sa.Text),
    sa.Column("webhook_nonce", sa.LargeBinary),
    sa.Column("webhook_ciphertext", sa.LargeBinary),
    sa.Column("default_branch", sa.Text, nullable=False, default="main"),
    sa.Column("last_synced_at", UtcTime),
    sa.Column("created_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("disconnected_at", UtcTime),
)

sa.Index(
    "uq_repositories_connected",
    repositories.c.workspace_id,
    unique=True,
    sqlite_where=repositories.c.disconnected_at.is_(None),
    postgresql_where=repositories.c.disconnected_at.is_(None),
)  # a workspace has exactly one

repository_branches = sa.Table(
    "repository_branches",
    metadata,
    sa.Column("repository_id", sa.ForeignKey("repositories.id"), primary_key=True),
    sa.Column("branch", sa.Text, primary_key=True),
    sa.Column("commit_sha", sa.Text, nullable=False),
    sa.Column("synced_at", UtcTime, nullable=False),
)

repository_syncs = sa.Table(
    "repository_syncs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("repository_id", sa.ForeignKey("repositories.id"), nullable=False, index=True),
    sa.Column("trigger", sa.Text, nullable=False),  # push | webhook | poll | manual | submit
    sa.Column("status", sa.Text, nullable=False),  # pending | syncing | success | failed
    sa.Column("branch", sa.Text),
    sa.Column("commit_sha", sa.Text),
    sa.Column("author", sa.Text),
    sa.Column("message", sa.Text),
    sa.Column("rollout_count", sa.Integer),
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
)

rollouts = sa.Table(
    "rollouts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False, index=True),
    sa.Column("repository_id", sa.ForeignKey("repositories.id"), nullable=False),
    sa.Column("branch", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("active", sa.Boolean, nullable=False, default=True),  # False: gone from the branch's newest commit
    sa.Column("commit_sha", sa.Text, nullable=False),
    sa.Column("tree_sha", sa.Text),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("last_synced_at", UtcTime, nullable=False),
    sa.UniqueConstraint("repository_id", "branch", "name"),
)

source_snapshots = sa.Table(
    "source_snapshots",
    metadata,
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), primary_key=True),
    sa.Column("tree_sha", sa.Text, primary_key=True),
    sa.Column("blob_key", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)
