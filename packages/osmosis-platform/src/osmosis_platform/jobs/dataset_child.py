"""The process that looks into a dataset file: limits itself, then reads one order from stdin and answers in JSON lines.

It has no secrets, no database and no network business; when its parent goes away, so does it. `python -m` runs it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

DATA_BYTES = 1 << 30
CPU_S = 4 * 3600
OPEN_FILES = 64
PROGRESS_S = 1.0


def main() -> int:
    """Does one order `{path, format, parquet, output_bytes}`; the last line tells how it ended."""
    order = json.loads(sys.stdin.readline())
    _limit(int(order["output_bytes"]))
    threading.Thread(target=_die_with_parent, daemon=True).start()
    from osmosis_platform.jobs.dataset_content import ContentError, examine

    if order["format"] == "parquet" or order["parquet"]:
        import pyarrow

        pyarrow.set_cpu_count(1)
        pyarrow.set_io_thread_count(1)

    def report(level: str, step: str, message: str) -> None:
        _say(log=[level, step, message])

    def progress(step: str, rows: int) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= PROGRESS_S:
            told_at = now
            _say(progress=[step, rows])

    told_at = time.monotonic()
    parquet = Path(order["parquet"]) if order["parquet"] else None
    try:
        content = examine(Path(order["path"]), order["format"], parquet, report, progress)
        answer: dict[str, Any] = {
            "sha256": content.sha256,
            "row_count": content.row_count,
            "preview": content.preview,
            "column_statistics": content.statistics(),
        }
        _say(content=answer, **_used())
    except ContentError as error:
        _say(error=[error.code, error.message, error.lines], **_used())
    except MemoryError:
        message = f"Reading it takes more than {DATA_BYTES >> 20} MiB of memory; its rows or values are too large."
        _say(error=["DATASET_LIMITS", message, []], **_used())
    return 0


def _limit(output_bytes: int) -> None:
    for name, value in (
        ("RLIMIT_DATA", DATA_BYTES),
        ("RLIMIT_CPU", CPU_S),
        ("RLIMIT_FSIZE", output_bytes),
        ("RLIMIT_NOFILE", OPEN_FILES),
        ("RLIMIT_CORE", 0),
    ):
        if hasattr(resource, name):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (wanted, wanted))
    os.nice(5)


def _die_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _used() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:  # Linux counts what the parent had before this program began into ru_maxrss, but not into VmHWM
        facts = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        peak = int(facts["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "max_rss_bytes": peak}


def _say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts, allow_nan=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
