"""Every operation of the OpenAPI document, with what its schema allows and what it forbids: an answer, never a 5xx."""

import logging

import pytest
import schemathesis
import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from osmosis_platform.api.app import create_app
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.git import hosting
from osmosis_platform.identity.tokens import issue_token
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings
from schemathesis.generation import GenerationMode

EXAMPLES = 6
# operations that go on answering until the reader leaves
STREAMS = {"text/event-stream"}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request, tmp_path_factory):
    """An application over each database."""
    directory = tmp_path_factory.mktemp("fuzz")
    url = f"sqlite:///{directory / 'platform.sqlite3'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database("fuzz")
    database = Database(url)
    schema.migrate(database)
    services = Services(Settings(data_dir=directory), database)
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield Place(services)
    structlog.configure(**before)
    database.close()


class Place:
    def __init__(self, services):
        self.services = services
        self.app = create_app(services)
        self.schema = schemathesis.openapi.from_asgi("/api/openapi.json", self.app)

    def operations(self):
        return [result.ok() for result in self.schema.get_all_operations()]

    def headers(self, who):
        """Of a new person each time, since operations revoke tokens, close accounts and delete workspaces."""
        with self.services.database.write() as work:
            count = len(UserRepository(work).all())
            user = UserRepository(work).add(
                f"{who}-{count}@example.com", name=who, password_hash=None, is_administrator=False
            )
            token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None)
            lab = WorkspaceRepository(work).by_name("lab")
            if lab is None:
                lab = WorkspaceRepository(work).add("lab", created_by=user.id)
                hosting.create_hosted(self.services, work, lab.id, "lab", user.id)
            if who == "owner":
                MembershipRepository(work).add(lab.id, user.id, Role.OWNER)
        return {"Authorization": f"Bearer {token.secret}"}


def is_stream(operation):
    content = [kind for answer in operation.definition.raw["responses"].values() for kind in answer.get("content", {})]
    return bool(STREAMS & set(content))


def ask(operation, headers):
    """Sends generated requests; gives how many, and what went wrong."""
    failures, seen = [], 0
    cases = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, here=st.integers(0, 3))
    def send(case, here):
        nonlocal seen
        seen += 1
        if here and "workspace" in (case.path_parameters or {}):
            case.path_parameters["workspace"] = "lab"
        scope = {"X-Osmosis-Workspace": "lab"} if here else {}
        answer = case.call(headers={**headers, **scope})
        if answer.status_code >= 500:
            request = case.as_curl_command()[:700]
            failures.append(f"{answer.status_code} {operation.label}: {request}\n   {answer.text[:300]}")

    try:
        send()
    except Exception as error:
        failures.append(f"{operation.label} raised {error!r:.600}")
    return seen, failures


@pytest.mark.parametrize("who", ["owner", "stranger"])
def test_no_input_makes_the_platform_fail(place, who):
    asked = [ask(one, place.headers(who)) for one in place.operations() if not is_stream(one)]
    failures = [failure for _, found in asked for failure in found]
    assert not failures, "\n".join(failures)
    assert sum(seen for seen, _ in asked) > 100
