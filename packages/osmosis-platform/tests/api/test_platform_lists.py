"""Lists answer what their models promise, though nobody builds the models; one index finds every route."""

import re

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.api.cli.datasets import DatasetPage
from osmosis_platform.api.cli.rollouts import RolloutPage
from osmosis_platform.api.cli.secrets import SecretPage
from osmosis_platform.api.route_index import RouteIndex
from osmosis_platform.api.v1.datasets import WorkspaceDatasetPage
from osmosis_platform.api.v1.jobs import JobPage
from osmosis_platform.db.repositories.datasets import DatasetRepository, new_dataset_id
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import FoundRollout, RolloutRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.tokens import actor_of, issue_token
from osmosis_platform.ids import new_id
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.secrets.keeping import set_secret
from starlette.routing import Match

NAMES = ("ant", "bee", "cat")
LISTS = {
    "/api/cli/datasets": DatasetPage,
    "/api/cli/environment-secrets": SecretPage,
    "/api/cli/rollouts": RolloutPage,
    "/api/v1/workspaces/lab/datasets": WorkspaceDatasetPage,
    "/api/v1/workspaces/lab/secrets": SecretPage,
    "/api/v1/workspaces/lab/rollouts": RolloutPage,
    "/api/v1/workspaces/lab/jobs": JobPage,
}


@pytest.fixture
def lab(services):
    """A client of the owner of a workspace that has three of everything."""
    with services.database.write() as work:
        ada = UserRepository(work).add("ada@example.test", name=None, password_hash=None, is_administrator=False)
        lab = WorkspaceRepository(work).add("lab", created_by=ada.id)
        MembershipRepository(work).add(lab.id, ada.id, Role.OWNER)
        token = issue_token(work, ada.id, kind="personal", name="t", scopes=["all"], expires_at=None)
        place = {"id": new_id("re"), "kind": "hosted", "full_name": "lab/lab", "identity": "lab/lab"}
        repository = RepositoryRepository(work).add(lab.id, {**place, "created_by": ada.id})
        found = [FoundRollout(name, "0" * 40, f"A {name}.") for name in NAMES]
        RolloutRepository(work).record(lab.id, repository.id, {"main": ("1" * 40, found)})
        for name in NAMES:
            enqueue(work, lab.id, "jobs.sweep", {}, subject_id=name)
            set_secret(services.vault, work, lab.id, actor_of(ada), scope="workspace", name=name.upper(), value="hush")
            facts = {"original_format": "jsonl", "size_bytes": 9, "blob_key": name, "upload": {}, "replaces_id": None}
            DatasetRepository(work).add(lab.id, dataset_id=new_dataset_id(), name=name, created_by=ada.id, **facts)
    headers = {"Authorization": f"Bearer {token.secret}", "X-Osmosis-Workspace": "lab"}
    return TestClient(create_app(services), headers=headers)


@pytest.mark.parametrize("path", LISTS)
def test_a_list_answers_exactly_what_its_model_promises(lab, path):
    headers = {} if path.startswith("/api/cli") else {"X-Osmosis-Workspace": ""}
    whole = lab.get(path, headers=headers).json()
    assert LISTS[path].model_validate(whole).model_dump(mode="json") == whole
    key = next(iter(whole))
    pages = [lab.get(path, params={"limit": 2, "offset": offset}, headers=headers).json() for offset in (0, 2, 4)]
    assert [one for part in pages for one in part[key]] == whole[key]
    assert [part["total_count"] for part in pages] == [3, 3, 3] and len(whole[key]) == 3
    assert [part["next_offset"] for part in pages] == [2, None, None]


def test_the_index_finds_the_route_that_would_be_found_anyway(services):
    app = create_app(services)
    index = next(route for route in app.router.routes if isinstance(route, RouteIndex))
    others = [route for route in app.router.routes if route is not index]

    def asked(method, path):
        return {"type": "http", "method": method, "path": path, "headers": [], "root_path": ""}

    def found_by(route, scope):
        return route.matches(scope)[0] == Match.FULL

    for template, operations in app.openapi()["paths"].items():
        for method in operations:
            scope = asked(method.upper(), re.sub(r"\{[^}]+\}", "some.thing", template))
            match, more = index.matches(scope)
            assert match == Match.FULL, (method, template)
            assert next(iter(more.values())) is next(route for route in others if found_by(route, scope))
    for method, path in (
        ("PATCH", "/healthz"),
        ("GET", "/api/cli"),
        ("GET", "/api/cli/datasets/a/b/c"),
        ("GET", "/lab"),
    ):
        assert index.matches(asked(method, path))[0] == Match.NONE
