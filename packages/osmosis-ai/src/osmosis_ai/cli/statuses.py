"""The status words of the platform as people read them: a token for tables, a word for details, a colour for both.

The token stands in brackets, so that a status also stands out where there is no colour.
"""

from __future__ import annotations

from osmosis_ai.cli.dates import ABSENT
from osmosis_ai.cli.results import Role, Text

_WORDS: dict[Role, tuple[str, ...]] = {
    "waiting": ("pending", "queued", "waiting", "preparing", "submitted"),
    "active": ("running", "processing", "uploading", "syncing", "grading", "finalizing", "stopping"),
    "good": ("finished", "uploaded", "deployed", "completed", "succeeded", "success", "synced", "ready", "created"),
    "bad": ("failed", "error", "crashed", "unavailable"),
    "dim": ("stopped", "cancelled", "canceled", "inactive", "archived", "deleted"),
}
_ROLES: dict[str, Role] = {word: role for role, words in _WORDS.items() for word in words}


def status_token(status: str | None) -> Text:
    """A status in a table: `[running]`."""
    return Text(f"[{status}]", _role(status)) if status else Text(ABSENT, "dim")


def status_word(status: str | None) -> Text:
    """A status in a detail: `Running`."""
    return Text(status.replace("_", " ").capitalize(), _role(status)) if status else Text(ABSENT, "dim")


def _role(status: str | None) -> Role | None:
    return _ROLES.get((status or "").lower())
