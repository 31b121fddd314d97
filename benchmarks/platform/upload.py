"""One upload through the server as a share of the disk's own speed. Run: python benchmarks/platform/upload.py

The peer is `dd conv=fsync` onto the same disk in the same run, before and after; the mean of both counts,
because disks of virtual machines have bursts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
SERVER = """
import sys
from pathlib import Path
import uvicorn
from osmosis_platform.api.app import create_app
from osmosis_platform.db import schema
from osmosis_platform.services import open_services
from osmosis_platform.settings import Settings
services = open_services(Settings(data_dir=Path(sys.argv[1]), port=int(sys.argv[2]), upload_part_bytes=int(sys.argv[4])))
schema.migrate(services.database)
upload = services.blobs.begin_upload("ws_1/datasets/ds_1/original", size_bytes=int(sys.argv[3]))
print("\\n".join(upload.urls), flush=True)
print(flush=True)
uvicorn.run(create_app(services), port=services.settings.port, log_level="error", access_log=False)
"""


def disk_speed(directory: Path, size_bytes: int) -> float:
    """Bytes a second of dd with one fsync at the end."""
    target = directory / "dd"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=4M", f"count={size_bytes // (4 * MIB)}", "conv=fsync"]
    started = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    taken = time.perf_counter() - started
    target.unlink()
    return size_bytes / taken


def peak_rss(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) * 1024  # type: ignore[index]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def put(url: str, size_bytes: int) -> None:
    """Sends zeros with as little of the two cores as a client can."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)
    connection.putrequest("PUT", place.path)
    connection.putheader("Content-Length", str(size_bytes))
    connection.putheader("Content-Type", "application/octet-stream")
    connection.endheaders()
    block = bytes(MIB)
    for _ in range(size_bytes // MIB):
        connection.send(block)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--part-mib", type=int, default=64)
    arguments = parser.parse_args()
    size_bytes = arguments.mib * MIB
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as name:
        directory = Path(name)
        speeds = [disk_speed(directory, size_bytes)]
        with httpx.Client(trust_env=False, timeout=600) as probe:
            port = 20_000 + time.time_ns() % 20_000
            server = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    SERVER,
                    directory / "data",
                    str(port),
                    str(size_bytes),
                    str(arguments.part_mib * MIB),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert server.stdout is not None
                urls = [line.strip() for line in iter(server.stdout.readline, "\n") if line.strip()]
                threading.Thread(target=server.stdout.read, daemon=True).start()  # the server's log
                while True:
                    try:
                        probe.get(f"http://127.0.0.1:{port}/healthz")
                        break
                    except httpx.TransportError:
                        time.sleep(0.1)
                before, cpu = peak_rss(server.pid), cpu_seconds(server.pid)
                started, left = time.perf_counter(), size_bytes
                for url in urls:
                    length = min(left, size_bytes if len(urls) == 1 else arguments.part_mib * MIB)
                    put(url, length)
                    left -= length
                taken, after = time.perf_counter() - started, peak_rss(server.pid)
                cpu = cpu_seconds(server.pid) - cpu
            finally:
                server.kill()
                server.wait()
        speeds.append(disk_speed(directory, size_bytes))
    facts = {
        "mib": arguments.mib,
        "parts": len(urls),
        "upload_mib_per_s": round(size_bytes / taken / MIB, 1),
        "dd_fsync_mib_per_s": [round(speed / MIB, 1) for speed in speeds],
        "share_of_dd": round(size_bytes / taken / (sum(speeds) / len(speeds)), 2),
        "server_cpu_s_per_gib": round(cpu / size_bytes * 1024 * MIB, 2),
        "peak_rss_mib": round(after / MIB, 1),
        "rss_before_mib": round(before / MIB, 1),
    }
    print(json.dumps(facts))
    if facts["share_of_dd"] < 0.6 or facts["peak_rss_mib"] >= 200:
        sys.exit("missed: 60 % of dd with less than 200 MiB resident")


if __name__ == "__main__":
    main()
