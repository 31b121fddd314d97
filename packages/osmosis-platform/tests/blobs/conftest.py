"""Both object stores, each with a client that moves bytes by their URLs as a user's would."""

import itertools
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.blobs.store import BlobStore, Upload
from osmosis_platform.db.database import Database
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings
from s3_server import BUCKET, S3Server

_count = itertools.count()


@pytest.fixture(scope="session")
def s3_server():
    server = S3Server()
    yield server
    server.close()


@dataclass
class StoreUnderTest:
    """A store and an HTTP client of its URLs."""

    store: BlobStore
    http: Any
    part_size: int

    def send(self, upload: Upload, number: int, body: bytes) -> str:
        """PUTs a part; its ETag."""
        headers = {"Content-Type": "application/octet-stream"} if upload.method == "simple" else {}
        reply = self.http.put(upload.urls[number - 1], content=body, headers=headers)
        assert reply.status_code == 200, reply.text
        return reply.headers["etag"].strip('"')


@pytest.fixture
def file_services(tmp_path):
    """Services with files for objects and parts of 1 KiB."""
    settings = Settings(data_dir=tmp_path / "data", upload_part_bytes=1024)
    settings.data_dir.mkdir()
    yield Services(settings, Database(f"sqlite:///{tmp_path / 'platform.sqlite3'}"))


@pytest.fixture
def file_http(file_services):
    return TestClient(create_app(file_services), base_url=file_services.settings.base_url)


@pytest.fixture(params=["files", "s3"])
def tested(request, tmp_path, monkeypatch):
    """Each backend; S3 has parts of 5 MiB, the least that S3 takes."""
    if request.param == "files":
        services = request.getfixturevalue("file_services")
        yield StoreUnderTest(services.blobs, request.getfixturevalue("file_http"), 1024)
        return
    server = request.getfixturevalue("s3_server")
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    settings = Settings(
        data_dir=tmp_path / "data",
        blob_store="s3",
        s3_bucket=BUCKET,
        s3_endpoint=server.url,
        s3_region="us-east-1",
        s3_prefix=f"tests/{next(_count)}",
        upload_part_bytes=1024,
    )
    services = Services(settings, Database(f"sqlite:///{tmp_path / 'platform.sqlite3'}"))
    with httpx.Client(trust_env=False, timeout=30) as http:
        yield StoreUnderTest(services.blobs, http, 5 << 20)
