"""Every route of /api/cli and /api/v1 against every kind of caller, made from OpenAPI and from what routes declare.

Nobody gets more than domain.permissions says, strangers learn nothing of a workspace, and nobody makes the platform fail.
"""

import importlib
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from osmosis_platform.api.app import ROUTERS, create_app
from osmosis_platform.api.scope import declared
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.tables.identity import api_tokens, memberships, workspaces
from osmosis_platform.domain.permissions import RULES, Action, Role
from osmosis_platform.identity.accounts import create_user, create_workspace
from osmosis_platform.identity.members import accept_invitation, invite
from osmosis_platform.identity.tokens import actor_of, issue_token
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

METHODS = {"get", "post", "put", "patch", "delete"}
MISSING = "missing-0"
BARE = ["/git/{path:path}"]  # asks Git's own way for a token: tests/git
ROLES = [str(role) for role in Role]
REFUSED = {
    "nobody": "AUTH_HEADER_MISSING",
    "revoked": "TOKEN_REVOKED",
    "expired": "TOKEN_EXPIRED",
    "forged": "TOKEN_INVALID",
}


@dataclass
class Route:
    method: str
    path: str
    action: Action | None
    is_stream: bool

    def __str__(self):
        return f"{self.method.upper()} {self.path}"

    @property
    def in_workspace(self):
        return "{workspace}" in self.path

    @property
    def by_header(self):
        return self.path.startswith("/api/cli") and self.action is not None and RULES[self.action].roles is not None


@dataclass
class World:
    """A workspace `lab` with one person of each role, another workspace, strangers, and a credential for each."""

    client: TestClient
    services: Services
    routes: list[Route]
    undeclared: list[str]
    workspace_id: str
    users: dict[str, str]
    credentials: dict[str, str | None] = field(repr=False)

    def ask(self, route, who):
        path = route.path.replace("{workspace}", "lab")
        while "{" in path:
            start, end = path.index("{"), path.index("}")
            path = path[:start] + MISSING + path[end + 1 :]
        headers, token = {}, self.credentials[who]
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if route.by_header:
            headers["X-Osmosis-Workspace"] = "lab"
        body = {} if route.method in {"post", "put", "patch"} else None
        return self.client.request(route.method.upper(), path, json=body, headers=headers)

    def mend(self):
        """Puts back what an allowed write took away: members, tokens, the workspace."""
        with self.services.database.write(durable=False) as work:
            work.execute(workspaces.update().values(deleted_at=None))
            named = workspaces.update().where(workspaces.c.id == self.workspace_id)
            work.execute(named.values(name="lab", name_key="lab"))
            work.execute(api_tokens.update().where(api_tokens.c.name != "revoked").values(revoked_at=None))
            for role in ROLES:
                mine = (memberships.c.workspace_id == self.workspace_id, memberships.c.user_id == self.users[role])
                if work.execute(memberships.update().where(*mine).values(role=role)).rowcount == 0:
                    values = {"workspace_id": self.workspace_id, "user_id": self.users[role], "role": role}
                    work.execute(memberships.insert().values(**values, created_at=work.clock()))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    url = f"sqlite:///{folder / 'platform.sqlite3'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database("route_matrix")
    database = Database(url)
    schema.migrate(database)
    services = Services(Settings(data_dir=folder), database)
    app = create_app(services)
    users, credentials = {}, {"nobody": None}
    with database.write() as work:
        people = {name: create_user(work, f"{name}@hidden.example") for name in [*ROLES, "stranger"]}
        users = {name: user.id for name, user in people.items()}
        lab = create_workspace(services, work, people["owner"], "lab")
        other = create_workspace(services, work, people["stranger"], "elsewhere")
        for role in ROLES[1:]:
            link = invite(work, actor_of(people["owner"]), lab.id, role=Role(role))
            accept_invitation(work, actor_of(people[role]), link.secret)

        def token(name, owner, **facts):
            facts = {"kind": "personal", "name": name, "scopes": ["all"], "expires_at": None} | facts
            issued = issue_token(work, users[owner], **facts)
            credentials[name] = issued.secret
            return issued

        for name in users:
            token(name, name)
        token("narrow", "owner", scopes=["audit:read"])
        token("elsewhere", "owner", workspace_id=other.id)
        TokenRepository(work).revoke(users["owner"], token("revoked", "owner").id)
        ends = token("expired", "owner", expires_at=work.clock() + timedelta(hours=1))
        over = api_tokens.update().where(api_tokens.c.id == ends.id)
        work.execute(over.values(expires_at=work.clock() - timedelta(seconds=1)))
    credentials["forged"] = credentials["owner"][:-1] + ("0" if credentials["owner"][-1] != "0" else "1")
    routes, undeclared = [], []
    for path, operations in app.openapi()["paths"].items():
        for method, facts in operations.items():
            if method not in METHODS or not path.startswith(("/api/cli/", "/api/v1/")):
                continue
            action, why = facts.get("x-osmosis-action"), facts.get("x-osmosis-open")
            if action is None and not why:
                undeclared.append(f"{method.upper()} {path}")
                continue
            is_stream = any("text/event-stream" in answer.get("content", {}) for answer in facts["responses"].values())
            routes.append(Route(method, path, None if action is None else Action(action), is_stream))
    client = TestClient(app, raise_server_exceptions=False)
    yield World(client, services, routes, undeclared, lab.id, users, credentials)
    database.close()


def found(world, wanted, judge):
    """What is wrong over all routes and callers: one line for each."""
    wrong = []
    for route in world.routes:
        for who in wanted(route):
            answer = world.ask(route, who)
            is_json = answer.content and answer.headers.get("content-type", "").startswith("application/json")
            body = answer.json() if is_json else {}
            fault = f"fails: {answer.text[:200]}" if answer.status_code >= 500 else judge(route, who, answer, body)
            if fault:
                wrong.append(f"{route} as {who}: {answer.status_code} {body.get('code')}: {fault}")
            if answer.status_code < 300 and route.method != "get":
                world.mend()
    return wrong


def test_every_route_declares_what_it_does(world):
    assert len(world.routes) > 20
    assert world.undeclared == []


def served():
    """Every route of every router that the application takes in, also those that OpenAPI does not show."""
    routers = [*ROUTERS, "osmosis_platform.api.pages.router"]
    waiting = [route for name in routers for route in importlib.import_module(name).router.routes]
    while waiting:
        route = waiting.pop()
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        if inner is not None:
            waiting += inner
        else:
            yield route


def test_no_route_can_hide_from_the_matrix(world):
    """A route of the API that is not in OpenAPI, and one anywhere that says of nobody who may call it, are found here."""
    known = {(route.method, route.path) for route in world.routes}
    hidden, silent, bare, seen = [], [], [], 0
    for route in served():
        if not isinstance(route, APIRoute):
            bare.append(route.path)
            continue
        seen += 1
        if declared(route) is None:
            silent.append(route.path)
        if route.path.startswith(("/api/cli", "/api/v1")):
            hidden += [route.path for method in route.methods if (method.lower(), route.path) not in known]
    assert seen > len(world.routes)
    assert (hidden, silent, bare) == ([], [], BARE)


def test_actions_of_a_workspace_are_declared_where_a_workspace_is(world):
    """An action with roles needs a workspace to have a role in."""
    wrong = [
        str(route)
        for route in world.routes
        if route.action is not None
        and not RULES[route.action].administrator
        and (RULES[route.action].roles is None) == route.in_workspace
        and not route.by_header
    ]
    assert wrong == []


def test_without_a_credential_that_counts_every_route_answers_401(world):
    def judge(route, who, answer, body):
        return None if (answer.status_code, body.get("code")) == (401, REFUSED[who]) else f"not {REFUSED[who]}"

    assert found(world, lambda route: REFUSED if route.action is not None else (), judge) == []


def test_strangers_learn_nothing_of_a_workspace(world):
    hidden = [world.workspace_id, *(world.users[role] for role in ROLES), *(f"{role}@hidden.example" for role in ROLES)]

    def judge(route, who, answer, body):
        if who == "stranger" and any(text in answer.text for text in hidden):
            return f"tells of the workspace: {answer.text[:300]}"
        if route.in_workspace and answer.status_code != 404:
            return "not 404"
        if route.by_header and body.get("code") != "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED":
            return "not WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"
        return None

    assert found(world, lambda route: ("stranger", "elsewhere"), judge) == []


def test_every_role_may_what_the_table_says(world):
    def judge(route, who, answer, body):
        rule = RULES[route.action]
        is_refused = answer.status_code == 403 and body.get("action") == str(route.action)
        may = who in rule.roles and not rule.administrator
        if may and (is_refused or answer.status_code == 401):
            return "refused though the table allows it"
        return None if may or is_refused else "allowed though the table forbids it"

    def roles(route):
        if route.action is None or RULES[route.action].roles is None:
            return ()
        # A stream of events has no end: only who is refused asks for it here.
        return [role for role in ROLES if not route.is_stream or role not in RULES[route.action].roles]

    assert found(world, roles, judge) == []


def test_a_token_without_the_scope_is_refused(world):
    def judge(route, who, answer, body):
        rule = RULES[route.action]
        needs_more = rule.scope is not None and rule.scope != "audit:read"
        if needs_more and body.get("code") != "TOKEN_SCOPE_MISSING":
            return "not TOKEN_SCOPE_MISSING"
        is_refused = body.get("code") == "TOKEN_SCOPE_MISSING" and body.get("action") == str(route.action)
        return "refused though any token will do" if is_refused and not needs_more else None

    assert found(world, lambda route: ("narrow",) if route.action is not None else (), judge) == []


def test_open_routes_stand_whoever_calls(world):
    assert (
        found(world, lambda route: ("nobody", "forged", "viewer") if route.action is None else (), lambda *_: None)
        == []
    )


def test_routes_of_administrators_refuse_everybody_else(world):
    def judge(route, who, answer, body):
        return None if answer.status_code == 403 else "not 403"

    def wanted(route):
        return ROLES if route.action is not None and RULES[route.action].administrator else ()

    assert found(world, wanted, judge) == []
