"""Log lines a second that a stream takes, in batches, without the secrets of a run, on SQLite. Run: python benchmarks/platform/logs.py

The peer is an INSERT of the same rows through the bare sqlite3 driver with the same pragmas, one transaction a batch.
"""

from __future__ import annotations

import argparse
import secrets
import sqlite3
import tempfile
import time
from pathlib import Path

from osmosis_ai.redaction import Redactor
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.events.log import LogLine, append_lines

LINE = ("the quick brown fox jumps over the lazy dog " * 3)[:120]
TARGET = 50_000
SECRETS = 16  # of a run: what its config may name


def rate(write, batch: int, seconds: float) -> float:
    """Lines a second, the best of three."""
    best = 0.0
    for _ in range(3):
        done, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            write()
            done += batch
        best = max(best, done / passed)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, nargs="*", default=[100, 500])
    options = parser.parse_args()
    redactor = Redactor(f"sk-{secrets.token_hex(20)}" for _ in range(SECRETS))
    print("| batch | lines/s | bare driver | ratio | target 50,000 |\n| --- | --- | --- | --- | --- |")
    for batch in options.batch:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "platform.sqlite3"
            database = Database(f"sqlite:///{path}")
            schema.migrate(database)
            lines = [LogLine("info", "walk", LINE) for _ in range(batch)]

            def ours(database=database, lines=lines) -> None:
                with database.write(durable=False) as work:
                    append_lines(work, "ws_1", "ds_1", lines, redactor=redactor)

            bare = sqlite3.connect(Path(folder) / "bare.sqlite3", isolation_level=None)
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
                bare.execute(f"PRAGMA {pragma}")
            bare.execute(
                "CREATE TABLE lines (stream TEXT, seq INTEGER, at INTEGER, level TEXT, step TEXT, message TEXT, details TEXT, "
                "PRIMARY KEY (stream, seq))"
            )
            counter = iter(range(1 << 40))

            def peer(bare=bare, counter=counter, batch=batch) -> None:
                rows = [("ds_1", next(counter), 1, "info", "walk", LINE, None) for _ in range(batch)]
                bare.execute("BEGIN IMMEDIATE")
                bare.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                bare.execute("COMMIT")

            mine, theirs = rate(ours, batch, options.seconds), rate(peer, batch, options.seconds)
            met = "met" if mine >= TARGET else "missed"
            print(f"| {batch} | {mine:,.0f} | {theirs:,.0f} | {mine / theirs:.2f} | {met} |")


if __name__ == "__main__":
    main()
