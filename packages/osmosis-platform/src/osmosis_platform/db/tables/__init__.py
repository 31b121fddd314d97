"""Every table, one module per noun; importing this package fills `metadata`."""

from osmosis_platform.db.tables import audit, datasets, events, git, idempotency, identity, jobs, secrets, usage
from osmosis_platform.db.tables.metadata import metadata

__all__ = ["audit", "datasets", "events", "git", "idempotency", "identity", "jobs", "metadata", "secrets", "usage"]
