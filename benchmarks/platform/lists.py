"""List pages of 50 rows against a trivial endpoint of the same server, one client. Run: python benchmarks/platform/lists.py

The server is `osmosis-platform up` as users run it. Requests alternate, so that load on the machine meets both alike;
p2, the fastest of fifty, is what a busy machine leaves alone.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import sqlalchemy as sa
from osmosis_platform.db.database import Database
from osmosis_platform.db.tables.identity import users, workspaces
from osmosis_platform.ids import new_id
from osmosis_platform.jobs.queue import enqueue
from platform_process import PlatformProcess

TRIVIAL = "/healthz"
LISTS = {
    "jobs": "/api/v1/workspaces/lab/jobs?limit=50",
    "datasets": "/api/cli/datasets?limit=50",
    "secrets": "/api/v1/workspaces/lab/secrets?limit=50",
    "rollouts": "/api/cli/rollouts?limit=50",
}
ROWS = 200
SHOWN = (2, 50, 99)  # percentiles


def fill(url: str) -> None:
    """Rows enough that every page is full, and there are more."""
    database = Database(url)
    with database.write() as work:
        workspace_id = work.execute(sa.select(workspaces.c.id)).scalar_one()
        user_id = work.execute(sa.select(users.c.id)).scalar_one()
        later = work.clock() + timedelta(days=1)
        for number in range(ROWS):
            enqueue(work, workspace_id, "jobs.sweep", {}, subject_id=f"subject-{number}", not_before=later)
        fill_datasets(work, workspace_id, user_id)
    database.close()


def fill_datasets(work, workspace_id: str, user_id: str) -> None:
    from osmosis_platform.db.tables.datasets import datasets

    now = work.clock()
    for number in range(ROWS):
        values = {
            "id": new_id("ds"),
            "workspace_id": workspace_id,
            "name": f"dataset-{number}",
            "live_name": f"dataset-{number}",
            "status": "uploaded",
            "original_format": "jsonl",
            "original_size_bytes": 1 << 20,
            "original_blob_key": f"{workspace_id}/datasets/{number}",
            "file_format": "jsonl",
            "file_size_bytes": 1 << 20,
            "row_count": 1000,
            "created_by": user_id,
            "created_at": now,
            "updated_at": now,
        }
        work.execute(datasets.insert().values(values))


class Client:
    """One kept-alive connection: what a browser tab or a command has."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> tuple[int, int, float]:
        """(status, bytes, ms)."""
        headers = self._headers | ({"X-Osmosis-Workspace": "lab"} if path.startswith("/api/cli") else {})
        started = time.perf_counter()
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        return answer.status, len(body), (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--postgresql", action="store_true", help="on a PostgreSQL of its own")
    options = parser.parse_args()
    server, url = None, None
    if options.postgresql:
        from postgres_server import PostgresServer

        server = PostgresServer()
        url = server.create_database("lists")
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "data"
        with PlatformProcess(data_dir, database_url=url) as platform:
            fill(url or f"sqlite:///{data_dir / 'platform.sqlite3'}")
            client = Client(platform.url, platform.token)
            for _ in range(50):
                [client.get(path) for path in (TRIVIAL, *LISTS.values())]
            times: dict[str, list[float]] = {path: [] for path in (TRIVIAL, *LISTS.values())}
            for _ in range(options.requests):
                for path, seen in times.items():
                    seen.append(client.get(path)[2])
            bases = [percentile(times[TRIVIAL], which) for which in SHOWN]
            print(
                f"{TRIVIAL:10}", *(f"p{which} {base:6.2f} ms{'':14}" for which, base in zip(SHOWN, bases, strict=True))
            )
            for name, path in LISTS.items():
                status, size, _ = client.get(path)
                found = [percentile(times[path], which) for which in SHOWN]
                ratios = [one / base for one, base in zip(found, bases, strict=True)]
                facts = zip(SHOWN, found, ratios, strict=True)
                shown = " ".join(f"p{which} {ms:6.2f} ms ({ratio:4.1f} times)" for which, ms, ratio in facts)
                print(f"{name:10} {shown}  {size:6} bytes" + ("" if status == 200 else f"  STATUS {status}"))
    if server is not None:
        server.close()


def percentile(values: list[float], which: int) -> float:
    return statistics.quantiles(values, n=100)[which - 1]


if __name__ == "__main__":
    main()
