"""Asks GitHub whether a repository has a commit, so that a pin nobody can fetch is found before a run is submitted.

Owns: this one question; `gh` is asked first, then GitHub with the token of git's own credential helper. Silence is no
answer: without either, nothing is known.
"""

from __future__ import annotations

import subprocess

from osmosis_ai.client.http import httpx_module, make_client
from osmosis_ai.client.renames import github_token

_TIMEOUT_S = 10.0
_API = "https://api.github.com"
_NO_SUCH_COMMIT = 422  # GitHub's answer for a hash that an existing repository lacks; 404 may also be a closed door


def commit_on_github(identity: str, commit: str) -> bool | None:
    """Whether GitHub has a commit.

    Args:
        identity: `owner/repo`.
        commit: Its full or short hash.

    Returns:
        None when nobody could say.
    """
    path = f"repos/{identity}/commits/{commit}"
    answer = _asked_gh(path)
    return _asked_github(path) if answer is None else answer


def _asked_gh(path: str) -> bool | None:
    try:
        done = subprocess.run(
            ["gh", "api", "--silent", path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode == 0:
        return True
    return False if f"HTTP {_NO_SUCH_COMMIT}" in done.stderr else None


def _asked_github(path: str) -> bool | None:
    token = github_token()
    if token is None:
        return None
    try:
        with make_client(_API) as client:
            url, headers = f"{_API}/{path}", {"Authorization": f"Bearer {token}"}
            status = client.get(url, headers=headers, follow_redirects=True, timeout=_TIMEOUT_S).status_code
    except httpx_module().HTTPError:
        return None
    return True if status == 200 else False if status == _NO_SUCH_COMMIT else None
