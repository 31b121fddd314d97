"""An S3 of a test's own: moto's server on loopback, with one bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
from published import free_port

BUCKET = "osmosis"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class S3Server:
    """A running store; `environ` is what a client of it needs."""

    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environ = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
        binary = Path(sys.executable).with_name("moto_server")
        self._process = subprocess.Popen(
            [binary, "-H", "127.0.0.1", "-p", str(port)],
            env={**os.environ, **self.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.put(f"{self.url}/{BUCKET}", trust_env=False, timeout=5).raise_for_status()
                return
            except httpx.HTTPError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise
                time.sleep(0.1)

    def settings(self) -> dict[str, str]:
        """The platform's variables for this store."""
        return {
            "OSMOSIS_PLATFORM_BLOB_STORE": "s3",
            "OSMOSIS_PLATFORM_S3_BUCKET": BUCKET,
            "OSMOSIS_PLATFORM_S3_ENDPOINT": self.url,
            "OSMOSIS_PLATFORM_S3_REGION": "us-east-1",
            **self.environ,
        }

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
