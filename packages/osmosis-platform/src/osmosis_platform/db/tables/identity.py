"""Who exists: users, their sessions and tokens, workspaces, memberships, invitations, device logins."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import Json, UtcTime

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("email", sa.Text, nullable=False, unique=True),  # lower-case
    sa.Column("name", sa.Text),
    sa.Column("password_hash", sa.Text),  # argon2id; absent: signs in through OIDC only
    sa.Column("is_administrator", sa.Boolean, nullable=False, default=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("disabled_at", UtcTime),
)

oidc_identities = sa.Table(
    "oidc_identities",
    metadata,
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("issuer", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    sa.Column("created_at", UtcTime, nullable=False),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),  # of the cookie's value
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("last_used_at", UtcTime),
    sa.Column("ip", sa.Text),
    sa.Column("user_agent", sa.Text),
)

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),  # personal | device | run
    sa.Column("user_id", sa.ForeignKey("users.id"), nullable=False, index=True),
    sa.Column("workspace_id", sa.Text, index=True),  # only this workspace, when set
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("last_used_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
)

device_logins = sa.Table(
    "device_logins",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("device_code_sha256", sa.Text, nullable=False, unique=True),
    sa.Column("user_code", sa.Text, nullable=False, unique=True),
    sa.Column("device_name", sa.Text, nullable=False),
    sa.Column("ip", sa.Text),
    sa.Column("status", sa.Text, nullable=False),  # pending | approved | denied | redeemed
    sa.Column("user_id", sa.ForeignKey("users.id")),
    sa.Column("interval_s", sa.Integer, nullable=False),
    sa.Column("last_polled_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("name_key", sa.Text, unique=True),  # lower-case name; absent once deleted
    sa.Column("timezone", sa.Text, nullable=False, default="UTC"),
    sa.Column("billing_ready", sa.Boolean, nullable=False, default=False),  # read only where billing is required
    sa.Column("created_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("purge_began_at", UtcTime),  # from then on it cannot be brought back
    sa.Column("purged_at", UtcTime),  # when what a deleted one held was removed for good
)

former_workspace_names = sa.Table(
    "former_workspace_names",
    metadata,
    sa.Column("name_key", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("renamed_at", UtcTime, nullable=False),
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True, index=True),
    sa.Column("role", sa.Text, nullable=False),  # owner | admin | member | viewer
    sa.Column("created_at", UtcTime, nullable=False),
)

invitations = sa.Table(
    "invitations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False, index=True),
    sa.Column("email", sa.Text),  # only this person, when set
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),  # of the link's token
    sa.Column("created_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("accepted_at", UtcTime),
    sa.Column("accepted_by", sa.Text),
    sa.Column("revoked_at", UtcTime),
)

quickstarts = sa.Table(
    "quickstarts",
    metadata,
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True),
    sa.Column("intent", sa.Text, nullable=False),
    sa.Column("completed_at", UtcTime, nullable=False),
)

throttles = sa.Table(
    "throttles",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),  # what is counted, for example `user-code:203.0.113.9`
    sa.Column("window_started_at", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
)

platform_facts = sa.Table(
    "platform_facts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),  # instance_id, setup_token_sha256, ...
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
