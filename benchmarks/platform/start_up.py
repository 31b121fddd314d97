"""From the command to the first 200 of a platform that is started for the first time. Run: python benchmarks/platform/start_up.py

The peer is a bare FastAPI application under uvicorn, started and asked in the same way.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

HELLO = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/healthz")
async def healthz(): return {}
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", http="httptools")
"""
TARGET_S = 3.0


def first_answer(command: list[str], port: int) -> float:
    """Seconds from the start of a process to its first 200; the process is ended."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=5).status_code == 200:
                    return time.perf_counter() - started
            except httpx.TransportError:
                time.sleep(0.01)
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    ours, theirs = [], []
    up = str(Path(sys.executable).with_name("osmosis-platform"))
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            ours.append(first_answer([up, "up", "--data-dir", f"{folder}/data", "--port", str(port)], port))
        port = free_port()
        theirs.append(first_answer([sys.executable, "-c", HELLO, str(port)], port))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    met = "met" if mine <= TARGET_S else "missed"
    print("| first start | bare FastAPI | ratio | target 3 s |\n| --- | --- | --- | --- |")
    print(f"| {mine:.2f} s | {peer:.2f} s | {mine / peer:.1f} | {met} |")


if __name__ == "__main__":
    main()
