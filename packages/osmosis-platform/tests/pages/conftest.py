"""A browser without a screen: a client that keeps cookies and sends our forms back as a page showed them."""

import itertools
import re

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.identity.setup import open_setup

HTML = {"accept": "text/html,application/xhtml+xml", "user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0"}
PASSWORD = "a few easy words"


_count = itertools.count()


class Browser(TestClient):
    def csrf(self, path="/account"):
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.get(path).text)
        return found[1] if found else None

    def submit(self, path, *, csrf=True, **fields):
        if csrf:
            fields["csrf"] = self.csrf()
        return self.post(path, data=fields)


@pytest.fixture
def database_url(request, tmp_path):
    """SQLite, unless a test asks for both: pages hold no SQL of their own."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path / 'platform.sqlite3'}"
    return request.getfixturevalue("postgres").create_database(f"pages_{next(_count)}")


@pytest.fixture
def app(services):
    return create_app(services)


@pytest.fixture
def open_browser(app):
    def make():
        return Browser(app, base_url="http://127.0.0.1:8700", headers=HTML, follow_redirects=False)

    return make


@pytest.fixture
def setup_token(services):
    with services.database.write() as work:
        return open_setup(work)


@pytest.fixture
def ada(open_browser, setup_token):
    """The owner of the workspace `difference`, signed in."""
    browser = open_browser()
    answer = browser.submit(
        "/setup", csrf=False, token=setup_token, email="Ada@Example.com", name="Ada", password=PASSWORD,
        workspace="difference",
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    return browser


@pytest.fixture
def invite(ada):
    def make(role="member", email=""):
        shown = ada.submit("/difference/invitations", role=role, email=email)
        return re.search(r"/invitation#(osm_inv_\w+)", shown.text)[1]

    return make


@pytest.fixture
def grace(open_browser, invite):
    """A member of it, signed in."""
    browser = open_browser()
    browser.submit("/invitation", csrf=False, token=invite())
    browser.submit("/invitation/accept", csrf=False, email="grace@example.com", name="Grace", password=PASSWORD)
    return browser
