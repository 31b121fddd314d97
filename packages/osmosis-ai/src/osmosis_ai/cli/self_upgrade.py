"""Upgrading this very installation: what is the latest release, how was ours installed, which tool replaces it.

Owns the question to the package index and the commands tried. What did not come from the index (a checkout, a
repository, a wheel) is recognised and left alone: the index may have another program of this name.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.consts import PACKAGE_VERSION, package_name
from osmosis_ai.errors import PlatformError

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output

_INDEX_URL = f"https://pypi.org/pypi/{package_name}/json"
_INDEX_TIMEOUT_S = 10
_COMMAND_TIMEOUT_S = 120
_OUTPUT_TAIL = 4000

type Kind = Literal["uv tool", "pipx", "pip", "development", "archive"]


@dataclass(frozen=True, slots=True)
class Installation:
    """How this program came here.

    Attributes:
        kind: The tool that manages it, or what it was made from when that is not the package index.
        source: Where that lies: a checkout's path, a repository's URL, the path or URL of a wheel.
    """

    kind: Kind
    source: str = ""


def upgrade(output: Output) -> OperationResult:
    """Bring this installation to the latest release.

    Raises:
        PlatformError: The index does not answer, or no command succeeded; `details` has the commands to run by hand.
    """
    from packaging.version import Version

    with output.working("Checking for updates..."):
        latest = latest_release()
    versions = {"installed_version": PACKAGE_VERSION, "latest_version": latest}
    if Version(latest) <= Version(PACKAGE_VERSION):
        return OperationResult(
            operation="upgrade",
            status="no_update",
            resource=versions,
            message=f"{package_name} {PACKAGE_VERSION} is up to date (latest release: {latest}).",
        )
    installation = detect_installation()
    if installation.kind == "development":
        source = installation.source
        remedy = (
            f"uv pip install --upgrade {shlex.quote(source)}"
            if "://" in source
            else f"git -C {shlex.quote(source)} pull"
        )
        return OperationResult(
            operation="upgrade",
            status="noop",
            resource={**versions, "method": installation.kind},
            message=f"Release {latest} is out. This is a development install from {source}; update that yourself.",
            next_steps=[remedy],
        )
    if installation.kind == "archive":
        return OperationResult(
            operation="upgrade",
            status="noop",
            resource={**versions, "method": installation.kind},
            message=f"Release {latest} is on the package index. This installation comes from {installation.source}, not"
            " from there, so nothing was changed; whoever runs your platform has the wheel that goes with it.",
            next_steps=["uv pip install --upgrade PATH_OR_URL_OF_THE_NEW_WHEEL"],
        )
    return _run(installation.kind, latest, versions, output)


def latest_release() -> str:
    """The version that the package index names.

    Raises:
        PlatformError: The index cannot be reached or does not name one.
    """
    from packaging.version import InvalidVersion, Version

    from osmosis_ai.client.http import failure_text, httpx_module, make_client

    httpx = httpx_module()
    try:
        with make_client(_INDEX_URL) as client:
            answer = client.get(_INDEX_URL, timeout=_INDEX_TIMEOUT_S, follow_redirects=True)
        answer.raise_for_status()
        latest = answer.json()["info"]["version"]
        Version(latest)
        return latest
    except httpx.HTTPStatusError as error:
        reason = f"it answered HTTP {error.response.status_code}"
    except httpx.HTTPError as error:
        reason = failure_text(error)
    except (ValueError, KeyError, TypeError, InvalidVersion):
        reason = "its answer names no version"
    raise PlatformError(
        f"Cannot find out the latest release from {_INDEX_URL}: {reason}. Check the connection and any proxy settings,"
        " then try again."
    )


def detect_installation() -> Installation:
    """How this program was installed, from the package's own record and the interpreter's place."""
    record = _direct_url()
    url = str(record.get("url", ""))
    if url.startswith("file://") and "dir_info" in record:
        from urllib.parse import unquote, urlsplit

        return Installation("development", unquote(urlsplit(url).path))
    if "vcs_info" in record or "archive_info" in record:
        from osmosis_ai.workspace.repository import without_login

        shown = without_login(url)
        return (
            Installation("archive", shown) if "archive_info" in record else Installation("development", f"git+{shown}")
        )
    place = Path(sys.prefix).as_posix()
    for mark, kind in (("/uv/tools/", "uv tool"), ("/pipx/venvs/", "pipx")):
        if mark in f"{place}/":
            return Installation(kind)
    return Installation("pip")


def upgrade_commands(kind: Kind) -> list[list[str]]:
    """The commands that upgrade an installation, in the order they are tried."""
    match kind:
        case "uv tool":
            return [["uv", "tool", "upgrade", package_name]]
        case "pipx":
            return [["pipx", "upgrade", package_name]]
        case "pip":
            return [
                ["uv", "pip", "install", "--python", sys.executable, "--upgrade", package_name],
                [sys.executable, "-m", "pip", "install", "--upgrade", package_name],
            ]
        case "development" | "archive":
            return []


def _run(kind: Kind, latest: str, versions: dict[str, str], output: Output) -> OperationResult:
    commands = upgrade_commands(kind)
    tried: list[dict[str, Any]] = []
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        shown = shlex.join(command)
        with output.working(f"Running {shown}..."):
            outcome = _execute(command)
        tried.append({"command": shown, **outcome})
        if outcome["returncode"] == 0 and _installed_version() == latest:
            return OperationResult(
                operation="upgrade",
                resource={
                    **versions,
                    "method": kind,
                    "command": shown,
                    "stdout": outcome["stdout"],
                    "stderr": outcome["stderr"],
                },
                message=f"Upgraded {package_name} from {PACKAGE_VERSION} to {latest}.",
            )
    manual = [shlex.join(command) for command in commands]
    listed = "".join(f"\n  {command}" for command in manual)
    raise PlatformError(
        f"{package_name} is still {PACKAGE_VERSION}; the upgrade to {latest} did not succeed. Run it by hand to see"
        f" why:{listed}",
        details={**versions, "method": kind, "manual_commands": manual, "attempts": tried},
    )


def _execute(command: Sequence[str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            list(command),
            cwd="/",  # a project around the current directory could name another index, or hold a pip.py
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"returncode": None, "stdout": "", "stderr": f"no end after {_COMMAND_TIMEOUT_S} s"}
    except OSError as error:
        return {"returncode": None, "stdout": "", "stderr": str(error)}
    return {
        "returncode": done.returncode,
        "stdout": done.stdout[-_OUTPUT_TAIL:],
        "stderr": done.stderr[-_OUTPUT_TAIL:],
    }


def _installed_version() -> str | None:
    """What is installed now, asked of a fresh interpreter."""
    ask = f"from importlib.metadata import version; print(version({package_name!r}))"
    outcome = _execute([sys.executable, "-I", "-c", ask])
    return outcome["stdout"].strip() if outcome["returncode"] == 0 else None


def _direct_url() -> dict[str, Any]:
    """The record that installers leave for what did not come from an index (PEP 610); empty for what did."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(package_name).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
