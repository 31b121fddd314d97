"""The public path of the source digest; the code is in `osmosis_ai.workspace.source`."""

from __future__ import annotations

from osmosis_ai.workspace.source import (
    EXCLUDE_DIRS,
    EXCLUDE_PATTERNS,
    iter_source_files,
    reject_directory_symlinks,
    source_digest,
)

__all__ = ["EXCLUDE_DIRS", "EXCLUDE_PATTERNS", "iter_source_files", "reject_directory_symlinks", "source_digest"]
