"""A creating request that is sent again with its key creates nothing twice, on both databases."""

import threading
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from osmosis_platform.api import idempotency
from osmosis_platform.api.app import create_app
from osmosis_platform.api.idempotency import CLAIMED, HEADER, KEPT, REPLAYED
from osmosis_platform.db.database import joining
from osmosis_platform.db.repositories.idempotency import IdempotencyRepository
from osmosis_platform.db.tables.idempotency import idempotency_keys
from osmosis_platform.db.tables.identity import api_tokens
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import TakenError
from osmosis_platform.jobs import identity_sweep
from platform_people import People

TOKENS = "/api/v1/tokens"
BODY = {"name": "robot", "scopes": ["all"]}
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake


class Clock:
    now = datetime(2026, 11, 30, 8, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def clock(database):
    database.clock = Clock()
    return database.clock


@pytest.fixture
def ada(services, clock):
    services.vault.check(services.database)
    return People(services).make("ada")


def post(person, key, body=BODY, path=TOKENS, **extra):
    headers = {"Authorization": f"Bearer {person.token}", HEADER: key, **extra}
    return person.http.post(path, json=body, headers=headers)


def count(services, table, *where):
    with services.database.read() as work:
        return work.execute(sa.select(sa.func.count()).select_from(table).where(*where)).scalar_one()


def code(reply):
    return reply.status_code, reply.json()["code"]


def test_the_same_request_answers_as_it_did_and_creates_nothing(services, ada):
    first, second = post(ada, "k-1"), post(ada, "k-1")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert REPLAYED not in first.headers
    assert second.headers[REPLAYED] == "true"
    assert count(services, api_tokens, api_tokens.c.name == "robot") == 1
    assert post(ada, "k-2").json()["id"] != first.json()["id"]


def test_a_key_of_another_request_is_refused(services, ada):
    post(ada, "k-1")
    assert code(post(ada, "k-1", {**BODY, "name": "other"})) == (400, "IDEMPOTENCY_KEY_REUSED")
    assert count(services, api_tokens, api_tokens.c.name == "other") == 0


@ON_SQLITE
def test_a_key_counts_for_one_credential_and_path(services, ada):
    eve = People(services).make("eve", Role.MEMBER)
    mine = post(ada, "k-1").json()
    assert post(eve, "k-1").json()["id"] != mine["id"]
    narrow = ada.call("POST", TOKENS, {"name": "narrow", "scopes": ["tokens:write"]}).json()["token"]
    as_narrow = SimpleNamespace(token=narrow, http=ada.http)
    reply = post(as_narrow, "k-1")
    assert mine["token"] not in reply.text
    path = f"/api/v1/workspaces/{ada.workspace}/invitations"
    assert post(ada, "k-1", {"role": "member"}, path).status_code != 400


@ON_SQLITE
def test_what_is_kept_shows_nobody_the_token(services, ada, tmp_path):
    token = post(ada, "k-1").json()["token"]
    with services.database.read() as work:
        (row,) = work.execute(sa.select(idempotency_keys)).all()
    assert row.status == 201 and row.is_applied
    services.database.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("platform.sqlite3*"))
    assert b"k-1" not in bytes(row.ciphertext)
    assert token.encode() not in stored


@ON_SQLITE
@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "x" * 256])
def test_a_key_that_is_none_is_refused(ada, key):
    assert code(post(ada, key.encode("latin-1"))) == (400, "IDEMPOTENCY_KEY_INVALID")


@ON_SQLITE
def test_a_refused_request_does_not_use_up_its_key(services, ada):
    assert post(ada, "k-1", {**BODY, "workspace": "nowhere"}).status_code == 404
    assert post(ada, "k-1", {**BODY, "name": ""}).status_code == 400
    assert post(ada, "k-1").status_code == 201


def test_duplicates_at_once_create_one_thing(services, ada):
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(post(ada, "k-1"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(services, api_tokens, api_tokens.c.name == "robot") == 1
    assert {reply.status_code for reply in replies} <= {201, 409}
    assert len({reply.json()["id"] for reply in replies if reply.status_code == 201}) == 1
    assert {reply.json()["code"] for reply in replies if reply.status_code == 409} <= {"IDEMPOTENCY_IN_PROGRESS"}
    assert post(ada, "k-1").status_code == 201


def killed(monkeypatch, place):
    """Lets the next keyed request die at a place, as a kill would: nothing after it runs."""

    def die(name):
        if name == place:
            raise KeyboardInterrupt

    monkeypatch.setattr(idempotency.crashpoints, "reach", die)
    monkeypatch.setattr(idempotency._Keyed, "_give_up", lambda *_, **__: None)


def send_and_die(monkeypatch, person, key, place):
    with monkeypatch.context() as patch:
        killed(patch, place)
        with pytest.raises(BaseException):  # noqa: B017 - what the test client makes of it is its business
            post(person, key)


def test_after_a_kill_before_the_change_the_retry_runs(services, ada, clock, monkeypatch):
    send_and_die(monkeypatch, ada, "k-1", "idempotency.after-claim")
    assert code(post(ada, "k-1")) == (409, "IDEMPOTENCY_IN_PROGRESS")
    clock.now += CLAIMED
    assert post(ada, "k-1").status_code == 201
    assert count(services, api_tokens, api_tokens.c.name == "robot") == 1


def test_after_a_kill_behind_the_change_the_retry_is_told_and_creates_nothing(services, ada, clock, monkeypatch):
    send_and_die(monkeypatch, ada, "k-1", "idempotency.before-answer")
    clock.now += CLAIMED
    assert code(post(ada, "k-1")) == (409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
    assert count(services, api_tokens, api_tokens.c.name == "robot") == 1


def test_a_request_that_was_taken_over_changes_nothing(services, ada, clock):
    late = idempotency._Keyed(services, "id", "mac")
    with services.database.write() as work:
        assert late._begin(work) is None
    late._is_running = True
    clock.now += CLAIMED
    with services.database.write() as work:
        assert idempotency._Keyed(services, "id", "mac")._begin(work) is None
    token = joining.set(late._join)
    try:
        with pytest.raises(TakenError), services.database.write() as work:
            work.execute(api_tokens.update().values(name="changed"))
    finally:
        joining.reset(token)
    assert count(services, api_tokens, api_tokens.c.name == "changed") == 0


def test_keys_expire_and_are_swept(services, ada, clock):
    first = post(ada, "k-1").json()
    clock.now += KEPT - timedelta(seconds=1)
    assert post(ada, "k-1").json() == first
    clock.now += timedelta(seconds=1)
    assert post(ada, "k-1").json()["id"] != first["id"]
    post(ada, str(uuid.uuid4()))
    clock.now += KEPT
    assert identity_sweep.run(SimpleNamespace(write=services.database.write))["keyed_requests"] == 2
    with services.database.write() as work:
        assert IdempotencyRepository(work).drop_expired() == 0


@ON_SQLITE
def test_every_post_of_the_public_api_says_that_it_takes_keys(ada):
    paths = ada.http.get("/api/openapi.json").json()["paths"]
    posts = {path: item["post"] for path, item in paths.items() if path.startswith("/api/v1/") and "post" in item}
    silent = [path for path, post in posts.items() if HEADER not in {one["name"] for one in post.get("parameters", ())}]
    is_open = {path for path, post in posts.items() if "x-osmosis-open" in post}
    assert len(posts) > 10
    assert set(silent) == is_open


@ON_SQLITE
def test_every_application_of_a_process_describes_itself_alike(services):
    one, other = create_app(services).openapi(), create_app(services).openapi()
    assert one == other
    names = [parameter["name"] for parameter in other["paths"][TOKENS]["post"]["parameters"]]
    assert names.count(HEADER) == 1
