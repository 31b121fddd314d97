import pytest
from osmosis_ai.client import session
from osmosis_ai.client.credentials import Credential
from osmosis_ai.client.scope import GitScope, named_scope
from osmosis_ai.client.session import PlatformClient, segment
from osmosis_ai.errors import ConflictError, NotFoundError, OsmosisError, PlatformError, ValidationError
from stub_api import Answer, StubApi


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    monkeypatch.setattr(session, "_warned", set())
    monkeypatch.setattr(session, "_FIRST_WAIT_S", 0.001)


@pytest.fixture
def stub():
    with StubApi() as serving:
        yield serving


def connect(stub, *, scope=None, warn=lambda *_: None, source="file"):
    return PlatformClient(Credential("tok-secret", stub.url, source), scope, warn)


def failure(stub, answer, **how):
    stub.routes["GET /api/cli/x"] = answer
    with connect(stub, **how) as client, pytest.raises(OsmosisError) as caught:
        client.get("/x")
    return caught.value


def test_a_request_carries_login_version_and_exactly_one_scope(stub, tmp_path):
    stub.routes["GET /api/cli/x"] = {"ok": True}
    for scope, header in (
        (None, None),
        (GitScope("acme/demo", "https://github.com/acme/demo", tmp_path), ("x-osmosis-git", "acme/demo")),
        (named_scope(" lab "), ("x-osmosis-workspace", "lab")),
    ):
        with connect(stub, scope=scope) as client:
            assert client.get("/x", params={"a": 1, "none": None}) == {"ok": True}
        sent = stub.asked[-1]
        scopes = {
            name: value for name, value in sent.headers.items() if name in ("x-osmosis-git", "x-osmosis-workspace")
        }
        assert scopes == ({} if header is None else {header[0]: header[1]})
        assert sent.headers["authorization"] == "Bearer tok-secret"
        assert sent.headers["content-type"] == "application/json"
        assert sent.headers["user-agent"].startswith("osmosis-cli/")
        assert sent.headers["x-osmosis-cli-version"] in sent.headers["user-agent"]
        assert sent.query == {"a": "1"}


def test_a_name_is_one_segment_of_the_path(stub):
    stub.routes["GET /api/cli/models/base/Qwen%2FQwen3-8B"] = {"id": "m"}
    with connect(stub) as client:
        assert client.get(f"/models/base/{segment('Qwen/Qwen3-8B')}") == {"id": "m"}
        for name in ("..", ".", "a?b", "a#b", "a b", "é"):
            with pytest.raises(NotFoundError):
                client.get(f"/datasets/{segment(name)}/x")
            assert stub.asked[-1].path.startswith("/api/cli/datasets/")
            assert stub.asked[-1].path.endswith("/x")


def test_empty_answers_are_empty_objects_and_delete_may_have_a_body(stub):
    stub.routes["DELETE /api/cli/s"] = Answer(status=204)
    stub.routes["POST /api/cli/s"] = Answer()
    with connect(stub) as client:
        assert client.delete("/s", {"name": "A"}) == {}
        assert client.post("/s") == {}
    assert [asked.json for asked in stub.asked] == [{"name": "A"}, {}]


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (Answer({"error": "boom"}, 400), "VALIDATION", ValidationError),
        (Answer({"error": "boom"}, 404), "NOT_FOUND", NotFoundError),
        (Answer({"error": "boom"}, 409), "CONFLICT", ConflictError),
        (Answer({"error": "boom"}, 422), "PLATFORM_ERROR", PlatformError),
        (Answer({"error": "boom"}, 429), "RATE_LIMITED", PlatformError),
        (Answer({"error": "boom"}, 503), "PLATFORM_ERROR", PlatformError),
        (Answer({"error": "boom", "code": "BILLING_REQUIRED"}, 403), "BILLING_REQUIRED", PlatformError),
        (Answer({"error": "no Subscription: boom"}, 403), "SUBSCRIPTION_REQUIRED", PlatformError),
    ],
)
def test_statuses_become_codes_with_the_body_in_the_details(stub, answer, code, kind):
    error = failure(stub, answer)
    assert isinstance(error, kind)
    assert error.error_code == code
    assert "boom" in error.message
    assert error.details["status_code"] == answer.status
    assert error.details["error"] == answer.json["error"]


def test_issues_are_listed_with_what_was_meant(stub):
    issues = ["one", {"key": "training.lr", "message": "too big"}, {"key": "x", "key_correction": "y"}, 5, {}]
    error = failure(stub, Answer({"message": "Bad config", "issues": issues}, 400))
    assert error.message.splitlines() == [
        "Bad config",
        "  - one",
        "  - training.lr: too big",
        "  - x (did you mean 'y'?)",
    ]


@pytest.mark.parametrize("code", ["GIT_SCOPE_REQUIRED", "GIT_SCOPE_HEADER_INVALID", "GIT_REPOSITORY_NOT_CONNECTED",
                                  "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED", "WORKSPACE_SCOPE_HEADER_CONFLICT"])  # fmt: skip
def test_scope_codes_have_words_of_ours(stub, code):
    error = failure(stub, Answer({"code": code, "error": "server words"}, 403))
    assert "server words" not in error.message
    assert error.details["platform_code"] == code


def test_a_deployment_conflict_speaks_of_retrying_not_of_reloading(stub):
    error = failure(stub, Answer({"error": "deployment_conflict", "message": "Please reload the page"}, 409))
    assert "reload" not in error.message
    assert error.details["platform_code"] == "deployment_conflict"
    error = failure(stub, Answer({"code": "deployment_conflict", "message": "Wait for run 5"}, 409))
    assert error.message == "Wait for run 5"


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_refused_login_says_which_token_it_was(stub, source):
    error = failure(stub, Answer({"code": "TOKEN_EXPIRED", "error": "x"}, 401), source=source)
    assert (error.error_code, error.details) == ("AUTH_REQUIRED", {})
    assert ("OSMOSIS_TOKEN" in error.message) is (source == "environment")


def test_what_is_secret_is_cut_out_of_errors_keys_included(stub):
    stub.routes["POST /api/cli/x"] = Answer(
        {
            "error": "VALUE-1-LONG and VALUE-1 and tok-secret at https://s3.example/a?X-Amz-Signature=abc&x=1",
            "VALUE-1": {"nested": ["VALUE-1"]},
            "provided": [{"name": "K", "value": "other"}],
        },
        400,
    )
    with connect(stub) as client, pytest.raises(OsmosisError) as caught:
        client.hide("VALUE-1", "VALUE-1-LONG", "")
        client.post("/x")
    text = caught.value.message + str(caught.value.details) + str(caught.value)
    for secret in ("VALUE-1", "-LONG", "tok-secret", "abc", "other"):
        assert secret not in text
    assert "https://s3.example/a" in text


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b"3", b"null", b"\xff"])
def test_odd_answers_are_errors_of_the_platform(stub, data):
    stub.routes["GET /api/cli/x"] = Answer(data=data)
    with connect(stub) as client:
        if data == b"":
            client.get("/x")
        else:
            with pytest.raises(PlatformError, match="JSON object"):
                client.get("/x")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(data=b"not gzip", headers={"Content-Encoding": "gzip"}),
        Answer(status=302, headers={"Location": "http://[bad"}),
        Answer(status=302, headers={"Location": "/api/cli/x"}),
        Answer(status=302, headers={"Location": "ftp://example.com/x"}),
        Answer(data=b"[" * 200_000),
        Answer(data=b"x" * 1000, cut_after=10),
        Answer(data=b'{"a": 1}', headers={"Content-Type": "application/json; charset=utf-77"}, status=500),
    ],
)
def test_broken_answers_are_errors_of_the_platform(stub, answer):
    assert failure(stub, answer).error_code == "PLATFORM_ERROR"


def test_numbers_that_are_none_become_null(stub):
    stub.routes["GET /api/cli/x"] = Answer(data=b'{"a": NaN, "b": [-Infinity, 1e999, 1.5], "c": 3}')
    with connect(stub) as client:
        assert client.get("/x") == {"a": None, "b": [None, None, 1.5], "c": 3}


def test_arguments_that_are_no_unicode_are_sent_without_a_crash(stub):
    odd = b"\xff\xc3".decode("utf-8", "surrogateescape")
    stub.routes["POST /api/cli/x"] = {}
    with connect(stub) as client:
        for call in (lambda: client.get(f"/{segment(odd)}"), lambda: client.get("/x", params={"cursor": odd})):
            with pytest.raises(NotFoundError):
                call()
        assert client.post("/x", {"name": odd}) == {}
    assert stub.asked[-1].json == {"name": odd}


def test_a_platform_that_is_not_there_is_named():
    client = PlatformClient(Credential("t", "http://127.0.0.1:9", "file"), None, lambda *_: None)
    with client, pytest.raises(PlatformError, match=r"http://127\.0\.0\.1:9"):
        client.get("/x")


def test_connections_are_used_again(stub):
    stub.routes["GET /api/cli/x"] = {}
    peers = set()
    handle = stub.answer
    stub.answer = lambda asked: (peers.add(asked.headers.get("connection")), handle(asked))[1]
    with connect(stub) as client:
        for _ in range(3):
            client.get("/x")
    assert peers == {"keep-alive"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_repeatable_post_is_tried_again_and_others_are_not(stub, status):
    stub.routes["POST /api/cli/x"] = [
        Answer({"error": "no"}, status),
        Answer({"error": "no"}, status),
        Answer({"a": 1}),
    ]
    with connect(stub) as client:
        with pytest.raises(OsmosisError):
            client.post("/x")
        assert len(stub.asked) == 1
        assert client.post("/x", attempts=5) == {"a": 1}
    assert len(stub.asked) == 3


def test_lists_are_walked_to_their_end(stub):
    def page(asked):
        offset, limit = int(asked.query["offset"]), int(asked.query["limit"])
        items = [{"id": str(at)} for at in range(offset, min(120, offset + limit))]
        following = offset + limit if offset + limit < 120 else None
        return {"things": items, "total_count": 120, "has_more": following is not None, "next_offset": following}

    stub.routes["GET /api/cli/things"] = page
    with connect(stub) as client:
        some = client.pages("/things", key="things", limit=7)
        everything = client.pages("/things", key="things", fetch_all=True)
    assert (len(some.items), some.total_count, some.has_more, some.next_offset) == (7, 120, True, 7)
    assert [item.text("id") for item in everything.items] == [str(at) for at in range(120)]
    assert (everything.has_more, everything.next_offset) == (False, None)
    assert len(stub.asked) == 4


@pytest.mark.parametrize("reply", [{"things": None, "next_offset": 0}, {"things": [], "next_offset": 50}, {}])
def test_a_list_that_never_ends_is_not_walked_for_ever(stub, reply):
    stub.routes["GET /api/cli/things"] = reply
    with connect(stub) as client:
        assert client.pages("/things", key="things", fetch_all=True).items == []
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    "reply", [{"things": 3}, {"things": [1]}, {"things": [], "total_count": "x"}, {"things": [], "next_offset": "a"}]
)
def test_malformed_lists_name_the_field(stub, reply):
    stub.routes["GET /api/cli/things"] = reply
    with connect(stub) as client, pytest.raises(PlatformError, match="things"):
        client.pages("/things", key="things")


def test_logs_come_with_the_five_keys(stub):
    lines = [{"timestamp": "t", "level": "info", "message": "m", "details": [1]}, {"details": {"pod": 1}}]
    stub.routes["GET /api/cli/l"] = {"logs": lines, "next_cursor": "c"}
    with connect(stub) as client:
        page = client.logs("/l", limit=5)
    assert page.entries == [
        {"timestamp": "t", "level": "info", "step": "", "message": "m", "details": None},
        {"timestamp": "", "level": "", "step": "", "message": "", "details": {"pod": 1}},
    ]
    assert page.next_cursor == "c"
    assert stub.asked[0].query == {"limit": "5", "direction": "older"}


def test_version_news_are_told_once_for_each_status(stub):
    told = []

    def news(status, message="Hello"):
        return Answer({}, headers={"X-Osmosis-Version-Status": status, "X-Osmosis-Version-Message": message})

    stub.routes["GET /api/cli/x"] = [
        news("current"), news("upgrade_available", " "), news("upgrade_available"), news("upgrade_available"),
        news("deprecated"), news("nonsense"),
    ]  # fmt: skip
    with connect(stub, warn=lambda message, code: told.append((code, message))) as client:
        for _ in range(7):
            client.get("/x")
    assert told == [("UPGRADE_AVAILABLE", "Hello"), ("DEPRECATED", "Hello")]


def test_a_redirect_to_another_host_does_not_take_the_login_along(stub):
    with StubApi({"GET /api/cli/x": {"a": 1}}) as other:
        stub.routes["GET /api/cli/x"] = Answer(status=307, headers={"Location": f"{other.url}/api/cli/x"})
        stub.routes["POST /api/cli/x"] = Answer(status=307, headers={"Location": f"{other.url}/api/cli/x"})
        with connect(stub) as client:
            assert client.get("/x") == {"a": 1}
            with pytest.raises(PlatformError, match="307"):
                client.post("/x")
        assert "authorization" not in other.asked[0].headers
        assert len(other.asked) == 1
