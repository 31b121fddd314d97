"""Two workspaces, people in each role, and a client that works with datasets over HTTP."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.accounts import create_user
from osmosis_platform.identity.tokens import issue_token
from osmosis_platform.jobs.worker import Worker
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def services(tmp_path, database):
    """Parts of 1 KiB, so that small files go in several."""
    settings = Settings(data_dir=tmp_path / "data", port=8700, upload_part_bytes=1024, max_dataset_bytes=1 << 30)
    settings.data_dir.mkdir(mode=0o700)
    return Services(settings, database)


@dataclass
class Client:
    """One person in one workspace."""

    services: Services
    http: TestClient
    token: str
    workspace: str
    workspace_id: str
    user_id: str
    urls: list[str] = field(default_factory=list)

    def call(self, method, path, body=None, **parameters):
        headers = {"Authorization": f"Bearer {self.token}", "X-Osmosis-Workspace": self.workspace}
        return self.http.request(method, path, json=body, headers=headers, params=parameters)

    def cli(self, method, path="", body=None, **parameters):
        return self.call(method, f"/api/cli/datasets{path}", body, **parameters)

    def v1(self, method, path="", body=None, **parameters):
        return self.call(method, f"/api/v1/workspaces/{self.workspace}/datasets{path}", body, **parameters)

    def begin(self, name="sums", size=254, extension="jsonl", **more):
        reply = self.cli("POST", body={"file_name": name, "file_size": size, "extension": extension, **more})
        assert reply.status_code == 201, reply.text
        return reply.json()

    def send(self, begun, content):
        upload = begun["upload"]
        if upload["method"] == "simple":
            reply = self.http.put(upload["presigned_url"], content=content, headers=upload["upload_headers"])
            assert reply.status_code == 200, reply.text
            return []
        parts = []
        for part in upload["presigned_urls"]:
            at = (part["part_number"] - 1) * upload["part_size"]
            reply = self.http.put(part["presigned_url"], content=content[at : at + part["size"]])
            parts.append({"PartNumber": part["part_number"], "ETag": reply.headers["etag"].strip('"')})
        return parts

    def complete(self, begun, parts, extension="jsonl"):
        return self.cli("POST", f"/{begun['id']}/complete", {"file_extension": extension, "parts": parts})

    def upload(self, content, name="sums", extension="jsonl", **more):
        begun = self.begin(name, len(content), extension, **more)
        reply = self.complete(begun, self.send(begun, content), extension)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def process(self):
        """Runs a worker until no job is open."""
        with working(self.services):
            deadline = time.monotonic() + 60
            while True:
                items = self.cli("GET").json()["datasets"]
                if not [one for one in items if one["status"] in {"pending", "processing"}]:
                    return
                assert time.monotonic() < deadline, items
                time.sleep(0.05)

    def uploaded(self, content, name="sums", extension="jsonl", **more):
        dataset = self.upload(content, name, extension, **more)
        self.process()
        return self.cli("GET", f"/{dataset['id']}").json()


@contextmanager
def working(services):
    stop = threading.Event()
    worker = Worker(services, slots=1, lease_s=5.0, poll_s=0.05, drain_s=1.0, schedule={})
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def people(services):
    """A function that makes a person of a role in a workspace, and their client."""
    http = TestClient(create_app(services), base_url=services.settings.base_url)

    def make(email, workspace="lab", role=Role.OWNER, scopes=("all",)):
        with services.database.write() as work:
            user = create_user(work, email)
            workspaces = WorkspaceRepository(work)
            found = workspaces.by_name(workspace) or workspaces.add(workspace, created_by=user.id)
            MembershipRepository(work).add(found.id, user.id, role)
            token = issue_token(work, user.id, kind="personal", name="test", scopes=list(scopes), expires_at=None)
        return Client(services, http, token.secret, workspace, found.id, user.id)

    return make


@pytest.fixture
def ada(people):
    """The owner of the workspace `lab`."""
    return people("ada@example.test")


@pytest.fixture
def rows():
    """A valid dataset of 5 rows as JSON lines."""
    return b"".join(
        json.dumps({"user_prompt": f"{n} + {n}?", "ground_truth": str(2 * n), "weight": n / 2}).encode() + b"\n"
        for n in range(5)
    )
