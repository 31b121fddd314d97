"""What tests of git share: members of a workspace with a hosted repository, a real server, and the real git."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.git import hosting
from osmosis_platform.identity.tokens import issue_token
from real_git import Server

_count = itertools.count()


@pytest.fixture
def database_url(request, tmp_path):
    """SQLite; a test of statements that are new asks for both databases by an indirect parameter."""
    if getattr(request, "param", "sqlite") == "postgresql":
        return request.getfixturevalue("postgres").create_database(f"git_{next(_count)}")
    return f"sqlite:///{tmp_path / 'platform.sqlite3'}"


@dataclass
class Lab:
    """A workspace `lab` with one person for each role and a stranger."""

    services: object
    workspace_id: str
    repository: Repository
    users: dict[str, str]
    tokens: dict[str, str] = field(repr=False)

    @property
    def path(self) -> Path:
        return hosting.place(self.services.settings, self.repository.id)

    def stored(self) -> Repository:
        with self.services.database.read() as work:
            return RepositoryRepository(work).get(self.workspace_id, self.repository.id)

    def branches(self) -> dict[str, str]:
        with self.services.database.read() as work:
            return RepositoryRepository(work).branches(self.workspace_id, self.repository.id)


@pytest.fixture
def lab(services):
    users, tokens = {}, {}
    with services.database.write() as work:
        for name in ("owner", "admin", "member", "viewer", "stranger"):
            user = UserRepository(work).add(
                f"{name}@example.com", name=name, password_hash=None, is_administrator=False
            )
            token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None)
            users[name], tokens[name] = user.id, token.secret
        workspace = WorkspaceRepository(work).add("lab", created_by=users["owner"])
        for role in Role:
            MembershipRepository(work).add(workspace.id, users[str(role)], role)
        repository = hosting.create_hosted(services, work, workspace.id, "lab", users["owner"])
    return Lab(services, workspace.id, repository, users, tokens)


@pytest.fixture
def server(services, lab):
    running = Server(create_app(services))
    yield running
    running.stop()


@pytest.fixture
def clone_url(server, lab):
    """The clone URL with a member's token as the password."""

    def make(who="member", path="lab/lab", *, token=None):
        secret = token or lab.tokens[who]
        return f"http://anyone:{secret}@127.0.0.1:{server.port}/git/{path}.git"

    return make
