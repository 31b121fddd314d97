"""The checks of `osmosis-platform doctor`: each says what it found and, where that is weak or wrong, the remedy."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa
from osmosis_ai.errors import OsmosisError

from osmosis_platform.db import schema
from osmosis_platform.ops.instance import read_url
from osmosis_platform.ops.listening import is_loopback
from osmosis_platform.ops.settings_file import unknown
from osmosis_platform.secrets.master_key import key_place, waiting_place
from osmosis_platform.services import Services, open_services
from osmosis_platform.settings import Settings

_LITTLE_SPACE = 2 << 30
_GIT_FLOOR = (2, 37)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check-up."""

    what: str
    state: Literal["ok", "weak", "bad"]
    text: str


def examine(settings: Settings) -> list[Finding]:
    """Checks this machine and the platform's parts; nothing is changed."""
    findings = [_data_dir(settings)]
    if findings[0].state == "bad":
        return findings
    services = open_services(settings)
    checks: list[tuple[str, Callable[[Services], Finding]]] = [
        ("settings", _settings),
        ("disk", _disk),
        ("database", _database),
        ("durability", _durability),
        ("master key", _master_key),
        ("objects", _objects),
        ("git", _git),
        ("isolation", _isolation),
        ("network", _network),
        ("workers", _workers),
        ("running", _running),
    ]
    try:
        for what, check in checks:
            try:
                findings.append(check(services))
            except OsmosisError as error:
                findings.append(Finding(what, "bad", error.message))
            except Exception as error:
                findings.append(Finding(what, "bad", f"{type(error).__name__}: {error}"))
    finally:
        services.close()
    return findings


def _data_dir(settings: Settings) -> Finding:
    path = settings.data_dir
    if not path.is_dir():
        return Finding("data directory", "bad", f"{path} does not exist; `osmosis-platform up` makes it.")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding("data directory", "bad", f"{path} cannot be written by this user; mend its owner or mode.")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding("data directory", "weak", f"{path} can be read by others (mode {mode:o}); chmod 700 {path}")
    return Finding("data directory", "ok", str(path))


def _settings(services: Services) -> Finding:
    misspelt = unknown(services.settings)
    if misspelt:
        text = f"no setting, and without effect: {', '.join(misspelt[:5])}. See `osmosis-platform settings show`."
        return Finding("settings", "weak", text)
    return Finding("settings", "ok", "every line and variable is known")


def _disk(services: Services) -> Finding:
    free = shutil.disk_usage(services.settings.data_dir).free
    text = f"{free / (1 << 30):.1f} GiB free"
    if free < _LITTLE_SPACE:
        return Finding("disk", "weak", f"{text}; uploads and logs stop when it is full. Free some space.")
    return Finding("disk", "ok", text)


def _database(services: Services) -> Finding:
    revision = schema.current(services.database)  # says why, if there is no way to it
    started = time.perf_counter()
    with services.database.read() as work:
        query = "SELECT sqlite_version()" if work.dialect == "sqlite" else "SHOW server_version"
        version = work.execute(sa.text(query)).scalar_one()
    took_ms = (time.perf_counter() - started) * 1000
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[services.database.dialect]
    text = f"{name} {version}, schema {revision or 'none'}, answers in {took_ms:.0f} ms"
    if revision != schema.newest():
        return Finding("database", "bad", f"{text}; this version wants {schema.newest()}: osmosis-platform migrate")
    return Finding("database", "ok", text)


def _durability(services: Services) -> Finding:
    if services.database.dialect == "sqlite":
        return Finding("durability", "weak", "one machine's SQLite: back it up (osmosis-platform backup FILE).")
    with services.database.read() as work:
        values = [work.execute(sa.text(f"SHOW {name}")).scalar_one() for name in ("fsync", "synchronous_commit")]
    if "off" in values:
        text = f"fsync={values[0]}, synchronous_commit={values[1]}: a power cut may lose what was saved."
        return Finding("durability", "weak", text)
    return Finding("durability", "ok", "PostgreSQL writes to its disk before it answers")


def _master_key(services: Services) -> Finding:
    services.vault.check(services.database)
    settings = services.settings
    if settings.master_key is not None:
        return Finding("master key", "ok", "from OSMOSIS_MASTER_KEY")
    path = key_place(settings)
    if services.vault.master_key_source == str(waiting_place(settings)):
        text = f"a rotation was interrupted; {waiting_place(settings)} is in use. Start the platform to end it."
        return Finding("master key", "weak", text)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding("master key", "weak", f"{path} can be read by others (mode {mode:o}); chmod 600 {path}")
    if settings.master_key_file is None:
        return Finding("master key", "weak", f"{path} lies beside the data it protects; keep a copy elsewhere.")
    return Finding("master key", "ok", str(path))


def _objects(services: Services) -> Finding:
    key = "platform/doctor/probe"
    services.blobs.put(key, [b"probe"])
    found = b"".join(services.blobs.open(key))
    services.blobs.delete(key)
    if found != b"probe":
        return Finding("objects", "bad", "what was written came back changed; check the disk or the store.")
    settings = services.settings
    where = f"S3 bucket {settings.s3_bucket}" if settings.blob_store == "s3" else "files in the data directory"
    return Finding("objects", "ok", f"{where}: written, read and deleted")


def _git(services: Services) -> Finding:
    path = shutil.which("git")
    if path is None:
        return Finding("git", "bad", "git is not installed; repositories cannot be served. Install git 2.37 or newer.")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split()
    version = tuple(int(part) for part in said[2].split(".")[:2])
    if version < _GIT_FLOOR:
        return Finding("git", "weak", f"git {said[2]} is old; install 2.37 or newer.")
    return Finding("git", "ok", f"git {said[2]}")


def _isolation(services: Services) -> Finding:
    if shutil.which("bwrap") is None:
        text = "bubblewrap is not installed; rollouts of others could not be isolated. Install bubblewrap."
        return Finding("isolation", "weak", text)
    probe = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        return Finding("isolation", "weak", f"bubblewrap does not work here: {done.stderr.strip()[:200]}")
    return Finding("isolation", "ok", "bubblewrap with namespaces of its own")


def _network(services: Services) -> Finding:
    settings = services.settings
    if settings.tls_cert is not None:
        return Finding("network", "ok", f"https on {settings.host}:{settings.port}")
    if is_loopback(settings.host):
        return Finding("network", "ok", f"this machine only ({settings.host}:{settings.port})")
    return Finding("network", "weak", f"plain http on {settings.host}: tokens can be read on the way. Use TLS.")


def _workers(services: Services) -> Finding:
    count = services.settings.workers
    if count == 0:
        return Finding(
            "workers", "weak", "none: datasets are not processed and repositories not synced on this machine."
        )
    return Finding("workers", "ok", f"{count} with {services.settings.worker_slots} slots each")


def _running(services: Services) -> Finding:
    import httpx

    url = read_url(services.settings)
    if url is None:
        return Finding("running", "weak", "it never ran here: osmosis-platform up")
    try:
        answer = httpx.get(f"{url}/readyz", timeout=3, trust_env=False, verify=False)  # noqa: S501 - its own certificate
    except httpx.HTTPError:
        return Finding("running", "weak", f"nothing answers at {url}: osmosis-platform up")
    state = "ok" if answer.status_code == 200 else "bad"
    return Finding("running", state, f"{url} answers {answer.status_code}")
