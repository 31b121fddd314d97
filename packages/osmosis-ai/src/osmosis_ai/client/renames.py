"""Asks GitHub whether a repository was renamed, so that a refused origin comes with the command that mends it.

Owns: this one question; `gh` is asked first, then GitHub with the token of git's own credential helper.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from osmosis_ai.client.http import httpx_module, make_client

if TYPE_CHECKING:
    from osmosis_ai.client.scope import GitScope

_TIMEOUT_S = 5.0
_API = "https://api.github.com"


def rename_hint(scope: GitScope) -> str:
    """A line with the command that points origin at the renamed repository; empty when it was not renamed."""
    if "github.com" not in scope.remote_url:
        return ""
    name = _asked_gh(scope.identity) or _asked_github(scope.identity)
    if not name or name.lower() == scope.identity:
        return ""
    url = f"git@github.com:{name}.git" if scope.remote_url.startswith("ssh:") else f"https://github.com/{name}.git"
    return f"\nOn GitHub the repository is called {name} now. Point origin at it:\n  git remote set-url origin {url}"


def _asked_gh(identity: str) -> str | None:
    return _full_name(_run(["gh", "api", f"repos/{identity}"]))


def _asked_github(identity: str) -> str | None:
    token = github_token()
    if token is None:
        return None
    try:
        with make_client(_API) as client:
            reply = client.get(
                f"{_API}/repos/{identity}",
                headers={"Authorization": f"Bearer {token}"},
                follow_redirects=True,
                timeout=_TIMEOUT_S,
            )
    except httpx_module().HTTPError:
        return None
    return _full_name(reply.text) if reply.is_success else None


def github_token() -> str | None:
    """The token that git's credential helper has for github.com; never asks anybody for one."""
    answer = _run(["git", "credential", "fill"], "protocol=https\nhost=github.com\n\n")
    lines = (line.partition("=") for line in (answer or "").splitlines())
    return next((value for key, _, value in lines if key == "password" and value), None)


def _full_name(answer: str | None) -> str | None:
    try:
        value = json.loads(answer or "")
    except ValueError:
        return None
    name = value.get("full_name") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name.count("/") == 1 else None


def _run(command: list[str], stdin: str = "") -> str | None:
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "GH_PROMPT_DISABLED": "1"}
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, encoding="utf-8", errors="replace",
            timeout=_TIMEOUT_S, env={**os.environ, **quiet}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
