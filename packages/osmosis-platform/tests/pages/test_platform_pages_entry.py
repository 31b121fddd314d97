import re

PASSWORD = "a few easy words"


def test_set_up_makes_the_account_and_signs_in(open_browser, setup_token):
    browser = open_browser()
    answer = browser.submit(
        "/setup", csrf=False, token=setup_token, email="ada@example.com", name="", password=PASSWORD, workspace="lab"
    )
    assert answer.headers["location"] == "/lab"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "secure" not in cookie
    assert "git clone http://127.0.0.1:8700/git/lab/lab.git" in browser.get("/lab").text
    assert "Set-up is done" in open_browser().get("/setup").text


def test_set_up_needs_its_token_and_names_the_wrong_field(open_browser, setup_token):
    browser = open_browser()
    form = {"email": "ada@example.com", "name": "", "password": PASSWORD, "workspace": "lab"}
    refused = browser.submit("/setup", csrf=False, token="osm_set_guess", **form)
    assert refused.status_code == 403 and "does not count" in refused.text
    refused = browser.submit("/setup", csrf=False, token=setup_token, **form | {"workspace": "settings"})
    assert refused.status_code == 400 and 'id="workspace-note"' in refused.text
    assert 'value="ada@example.com"' in refused.text and PASSWORD not in refused.text
    assert browser.submit("/setup", csrf=False, token=setup_token, **form).status_code == 303


def test_cookies_are_secure_where_the_platform_is_https(tmp_path, database):
    from fastapi.testclient import TestClient
    from osmosis_platform.api.app import create_app
    from osmosis_platform.identity.setup import open_setup
    from osmosis_platform.services import Services
    from osmosis_platform.settings import Settings

    (tmp_path / "data").mkdir()
    services = Services(Settings(data_dir=tmp_path / "data", public_url="https://osmosis.example"), database)
    with database.write() as work:
        token = open_setup(work)
    browser = TestClient(create_app(services), base_url="https://osmosis.example", follow_redirects=False)
    form = {"token": token, "email": "a@b.example", "name": "", "password": PASSWORD, "workspace": "lab"}
    assert "secure" in browser.post("/setup", data=form).headers["set-cookie"].lower()


def test_sign_in_and_out(ada, open_browser):
    browser = open_browser()
    assert browser.get("/difference/members").headers["location"] == "/sign-in?next=/difference/members"
    wrong = browser.submit("/sign-in", csrf=False, email="ada@example.com", password="another one", next="/")
    assert wrong.status_code == 401 and "is wrong" in wrong.text
    right = browser.submit(
        "/sign-in", csrf=False, email="ada@example.com", password=PASSWORD, next="/difference/members"
    )
    assert right.headers["location"] == "/difference/members"
    assert browser.submit("/sign-out").headers["location"] == "/sign-in?signed-out"
    assert browser.get("/").headers["location"] == "/sign-in"


def test_sign_in_leads_nowhere_else(ada, open_browser):
    for address in ("https://evil.example", "//evil.example", "/\\evil.example", "/a b", "javascript:0"):
        answer = open_browser().submit("/sign-in", csrf=False, email="ada@example.com", password=PASSWORD, next=address)
        assert answer.headers["location"] == "/"


def test_a_form_of_another_site_changes_nothing(ada):
    csrf = ada.csrf()
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = ada.post("/workspaces", data={"name": "stolen", "csrf": csrf}, headers=headers)
        assert answer.status_code == 403 and "not one of this platform" in answer.text
    assert ada.submit("/workspaces", csrf=False, name="stolen").status_code == 403
    assert "stolen" not in ada.get("/").text


def test_a_cookie_alone_does_not_write_through_the_api(ada):
    assert ada.post("/api/v1/workspaces", json={"name": "stolen"}).json()["code"] == "CSRF"
    made = ada.post("/api/v1/workspaces", json={"name": "mine"}, headers={"X-Osmosis-CSRF": ada.csrf()})
    assert made.status_code == 201 and made.json()["role"] == "owner"


def test_a_new_person_comes_in_by_an_invitation_once(open_browser, invite):
    secret = invite(role="viewer")
    browser = open_browser()
    assert (
        browser.submit("/invitation", csrf=False, token=f"http://127.0.0.1:8700/invitation#{secret}").status_code == 303
    )
    assert "as a viewer" in browser.get("/invitation").text
    answer = browser.submit("/invitation/accept", csrf=False, email="grace@example.com", name="", password=PASSWORD)
    assert answer.headers["location"] == "/difference"
    assert "a viewer here" in browser.get("/difference").text
    assert open_browser().submit("/invitation", csrf=False, token=secret).status_code == 404


def test_a_signed_in_person_accepts_with_one_click(grace, ada):
    ada.submit("/workspaces", name="second")
    shown = ada.submit("/second/invitations", role="admin", email="grace@example.com")
    grace.submit("/invitation", csrf=False, token=re.search(r"#(osm_inv_\w+)", shown.text)[1])
    assert "Accept as grace@example.com" in grace.get("/invitation").text
    assert grace.submit("/invitation/accept").headers["location"] == "/second"


def test_a_device_is_let_in_by_its_code(ada):
    begun = ada.post("/api/cli/device/authorize", json={"deviceName": "<script>laptop"}).json()
    page = ada.get(f"/device?code={begun['user_code'].lower()}").text
    assert "&lt;script&gt;laptop" in page and begun["user_code"] in page and "testclient" in page
    unseen = ada.submit("/device", code=begun["user_code"], decision="approve")
    assert unseen.status_code == 400 and "Compare the code" in unseen.text and begun["user_code"] in unseen.text
    shown = ada.submit("/device", code=begun["user_code"], decision="approve", compared="yes")
    assert "The device is signed in" in shown.text
    token = ada.post("/api/cli/device/token", json={"device_code": begun["device_code"]})
    assert token.status_code == 200, token.text
    assert ada.get(f"/device?code={begun['user_code']}").status_code == 404


def test_a_device_is_refused(ada):
    begun = ada.post("/api/cli/device/authorize", json={"deviceName": "laptop"}).json()
    assert "refused" in ada.submit("/device", code=begun["user_code"], decision="deny").text
    answer = ada.post("/api/cli/device/token", json={"device_code": begun["device_code"]})
    assert answer.status_code == 400 and answer.json()["error"] == "access_denied"
