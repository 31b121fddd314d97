"""Sign-in with a real, small OpenID provider on loopback: discovery, code with PKCE, signed id tokens."""

import json
import re
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.tables.identity import users
from osmosis_platform.identity.tokens import issue_token
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

SECRET = "the client's secret"


class Provider(ThreadingHTTPServer):
    """Signs everybody in as `claims`, at once."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.claims = {"sub": "42", "email": "ada@example.com", "email_verified": True, "name": "Ada"}
        self.wrong = {}  # claims that a bad provider, or an attacker, would put
        self.signing_key = None
        self.codes = {}

    def authorize(self, address):
        """What the browser would do there; returns where it is sent back to."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?code={code}&state={query['state']}&iss={self.issuer}"

    def redeem(self, form, authorization):
        query = self.codes.pop(form["code"])
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        assert challenge == query["code_challenge"] and form["redirect_uri"] == query["redirect_uri"]
        assert b64decode(authorization.removeprefix("Basic ")).decode() == f"osmosis:{SECRET}"
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": query["client_id"], "nonce": query["nonce"], "iat": now, "exp": now + 60}
        key = self.signing_key or self.key
        return {
            "access_token": "at",
            "token_type": "Bearer",
            "id_token": jwt.encode({"alg": "RS256", "kid": "one"}, usual | self.claims | self.wrong, key),
        }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        issuer = self.server.issuer
        self.answer(
            {
                "/.well-known/openid-configuration": {
                    "issuer": issuer,
                    "authorization_endpoint": f"{issuer}/authorize",
                    "token_endpoint": f"{issuer}/token",
                    "jwks_uri": f"{issuer}/keys",
                },
                "/keys": {"keys": [self.server.key.as_dict(private=False)]},
            }[self.path]
        )

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {key: values[0] for key, values in parse_qs(body).items()}
        self.answer(self.server.redeem(form, self.headers["authorization"]))

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def shared_provider():
    server = Provider()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def provider(shared_provider):
    yield shared_provider
    shared_provider.claims = {"sub": "42", "email": "ada@example.com", "email_verified": True, "name": "Ada"}
    shared_provider.wrong, shared_provider.signing_key = {}, None


@pytest.fixture
def services(tmp_path, database, provider):
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    settings = Settings(
        data_dir=tmp_path / "data",
        port=8700,
        oidc_issuer=provider.issuer,
        oidc_client_id="osmosis",
        oidc_client_secret_file=secret,
    )
    settings.data_dir.mkdir(mode=0o700)
    return Services(settings, database)


def come(browser, provider, query=""):
    """There and back."""
    there = browser.get(f"/auth/oidc/start?next=/difference{query}")
    assert there.status_code == 303, there.text
    back = urlsplit(provider.authorize(there.headers["location"]))
    return browser.get(f"{back.path}?{back.query}")


def test_a_person_connects_the_provider_and_signs_in_with_it(ada, provider, open_browser):
    assert come(ada, provider, "&connect=1").headers["location"] == "/account?done=connected"
    browser = open_browser()
    assert "Continue with 127.0.0.1" in browser.get("/sign-in").text
    answer = come(browser, provider)
    assert answer.headers["location"] == "/difference"
    assert "an owner here" in browser.get("/difference").text


def caller(services, browser):
    """The API with a token of the person, as their own programs call it."""
    with services.database.write() as work:
        user = UserRepository(work).by_email("ada@example.com")
        token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None).secret
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    return lambda method, path="": browser.request(method, f"/api/v1/account/identities{path}", headers=headers)


@pytest.mark.parametrize("by", ["page", "api"])
def test_a_disconnected_identity_signs_in_no_more(ada, provider, services, open_browser, by):
    come(ada, provider, "&connect=1")
    call = caller(services, open_browser())
    [one] = call("GET").json()["identities"]
    assert one["issuer"] == provider.issuer
    assert call("DELETE", "/oi_other").json()["code"] == "IDENTITY_NOT_FOUND"
    assert f"Disconnect {provider.issuer}" in ada.get("/account").text
    if by == "api":
        assert call("DELETE", f"/{one['id']}").status_code == 204
    else:
        answer = ada.submit(f"/account/identities/{one['id']}/disconnect")
        assert answer.headers["location"] == "/account?done=disconnected"
    assert call("GET").json() == {"identities": []}
    assert come(open_browser(), provider).status_code == 403
    with services.database.read() as work:
        assert AuditRepository(work).page(None)[0].action == "user.disconnect_identity"


def test_the_only_way_in_stays(ada, provider, services, open_browser):
    come(ada, provider, "&connect=1")
    with services.database.write() as work:
        work.execute(users.update().values(password_hash=None))
    call = caller(services, open_browser())
    [one] = call("GET").json()["identities"]
    refused = call("DELETE", f"/{one['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "LAST_SIGN_IN")
    page = ada.submit(f"/account/identities/{one['id']}/disconnect")
    assert (page.status_code, "only way you sign in" in page.text) == (409, True)
    assert come(open_browser(), provider).status_code == 303


def test_an_identity_of_a_provider_that_is_not_used_here_is_no_way_in(ada, provider, services, open_browser):
    come(ada, provider, "&connect=1")
    with services.database.write() as work:
        user = UserRepository(work).by_email("ada@example.com")
        UserRepository(work).link_identity(user.id, "https://former.example", "7")
        work.execute(users.update().values(password_hash=None))
    call = caller(services, open_browser())
    ours, former = call("GET").json()["identities"]
    assert call("DELETE", f"/{ours['id']}").json()["code"] == "LAST_SIGN_IN"
    assert call("DELETE", f"/{former['id']}").status_code == 204


def test_an_account_with_a_password_is_not_taken_over_by_its_address(ada, provider, open_browser):
    browser = open_browser()
    answer = come(browser, provider)
    assert answer.status_code == 403 and "has a password here" in answer.text
    assert browser.get("/").headers["location"] == "/sign-in"


def test_a_new_person_needs_an_invitation(provider, open_browser, invite):
    provider.claims = {"sub": "43", "email": "grace@example.com", "email_verified": True, "name": "Grace"}
    browser = open_browser()
    assert "Ask a member" in come(browser, provider).text
    browser.submit("/invitation", csrf=False, token=invite(email="grace@example.com"))
    assert come(browser, provider).status_code == 303
    assert "Accept as grace@example.com" in browser.get("/invitation").text
    csrf = re.search(r'name="csrf" value="(\w+)"', browser.get("/invitation").text)[1]
    assert browser.post("/invitation/accept", data={"csrf": csrf}).headers["location"] == "/difference"


def test_an_unverified_address_leads_to_no_account(ada, provider, open_browser):
    provider.claims = {"sub": "44", "email": "ada@example.com", "email_verified": False}
    assert "not verified" in come(open_browser(), provider).text


@pytest.mark.parametrize(
    "wrong",
    [{"nonce": "another"}, {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1}, {"azp": "another"}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_token_that_does_not_hold_signs_nobody_in(ada, provider, open_browser, wrong):
    come(ada, provider, "&connect=1")
    provider.wrong = wrong
    answer = come(open_browser(), provider)
    assert answer.status_code == 401 and "does not count" in answer.text


def test_a_token_signed_by_somebody_else_signs_nobody_in(ada, provider, open_browser):
    come(ada, provider, "&connect=1")
    provider.signing_key = RSAKey.generate_key(2048, {"kid": "one"})
    assert "signature does not hold" in come(open_browser(), provider).text


def test_an_answer_counts_only_in_the_browser_that_asked(ada, provider, open_browser):
    come(ada, provider, "&connect=1")
    asked, victim = open_browser(), open_browser()
    back = urlsplit(provider.authorize(asked.get("/auth/oidc/start").headers["location"]))
    assert victim.get(f"{back.path}?{back.query}").status_code == 401
    victim.get("/auth/oidc/start")
    assert "state is another" in victim.get(f"{back.path}?{back.query}").text
    assert asked.get(f"{back.path}?{back.query}").status_code == 303


def test_a_provider_that_is_away_is_said_so(tmp_path, database):
    from fastapi.testclient import TestClient
    from osmosis_platform.api.app import create_app

    (tmp_path / "data").mkdir(exist_ok=True)
    settings = Settings(data_dir=tmp_path / "data", oidc_issuer="http://127.0.0.1:9", oidc_client_id="osmosis")
    client = TestClient(create_app(Services(settings, database)), base_url="http://127.0.0.1:8700")
    answer = client.get("/auth/oidc/start", headers={"accept": "text/html"})
    assert answer.status_code == 503 and "does not answer" in answer.text
