"""Which folder of this machine holds the clone of a workspace, remembered from one set-up to the next.

Owns: `workspace-directories.json`. What it says is only a hint: the folder's origin is checked by whoever uses it.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from osmosis_ai.client.logins import config_directory

_VERSION = 1


def remembered_clone(platform_url: str, workspace_id: str) -> Path | None:
    """The folder that was recorded for a workspace; it need not exist any more."""
    of_platform = _platforms(_read()).get(platform_url)
    path = of_platform.get(workspace_id) if isinstance(of_platform, dict) else None
    return Path(path) if isinstance(path, str) and path else None


def remember_clone(platform_url: str, workspace_id: str, path: Path) -> None:
    """Record a folder.

    Raises:
        OSError: The file cannot be written.
    """
    known = _read()
    platforms = _platforms(known)
    before = platforms.get(platform_url)
    of_platform = {**(before if isinstance(before, dict) else {}), workspace_id: str(path.resolve())}
    known = {**known, "version": _VERSION, "platforms": {**platforms, platform_url: of_platform}}
    file = _path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".directories-", dir=file.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        json.dump(known, opened, indent=2, ensure_ascii=False)
    Path(name).replace(file)


def _platforms(known: dict[str, Any]) -> dict[str, Any]:
    platforms = known.get("platforms")
    return platforms if isinstance(platforms, dict) else {}


def _path() -> Path:
    return config_directory() / "workspace-directories.json"


def _read() -> dict[str, Any]:
    """What is recorded; nothing where the file is missing or damaged, since it holds hints only."""
    try:
        value = json.loads(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
