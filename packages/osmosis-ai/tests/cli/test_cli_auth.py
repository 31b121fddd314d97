import json
import os
import stat
import time
from pathlib import Path

import pytest
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

SUPPORT = Path(__file__).parents[4] / "tests/support"
ADA = {"user": {"id": "u1", "email": "ada@example.com", "name": "Ada"}, "expires_at": "2099-01-01T00:00:00Z"}
PRODUCTION = "https://platform.osmosis.ai"


def credentials(home):
    return home / ".config/osmosis/credentials.json"


def stored(home):
    return json.loads(credentials(home).read_text())


def entry(url, token="old-token", **changes):
    return {
        "version": 2,
        "token_type": "Bearer",
        "expires_at": "2099-01-01T00:00:00+00:00",
        "created_at": "2026-01-01T00:00:00+00:00",
        "user": ADA["user"],
        "token_id": "old-id",
        "platform_url": url,
        "token_store": "file",
        "access_token": token,
    } | changes


def write(home, value):
    file = credentials(home)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


@pytest.fixture
def stub():
    with StubApi({"GET /api/cli/verify": {**ADA, "token_id": "new-id"}}) as serving:
        yield serving


@pytest.fixture
def here(tmp_path, stub):
    """Variables that point at the stub with a home of its own and no token."""
    return environment(
        tmp_path,
        OSMOSIS_PLATFORM_URL=stub.url,
        PYTHON_KEYRING_BACKEND="file_keyring.FileKeyring",
        FILE_KEYRING=str(tmp_path / "keyring.json"),
        PYTHONPATH=str(SUPPORT),
    )


NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def test_a_personal_token_goes_into_the_keyring_and_is_found_there(tmp_path, stub, here):
    done = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    assert done.status == 0, done.stderr
    assert done.json["resource"]["token_store"] == "keyring"
    saved = stored(tmp_path)["platforms"][stub.url]
    assert "access_token" not in saved
    assert json.loads((tmp_path / "keyring.json").read_text()) == {f"osmosis-cli/{saved['keyring_account']}": "pat-1"}
    assert saved["keyring_account"].startswith("platform:") and len(saved["keyring_account"].split(":")) == 3
    who = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here)
    assert who.json["data"]["effective_source"] == "keyring"
    assert who.json["data"]["persistent_login"] is True
    assert stub.asked[-1].headers["authorization"] == "Bearer pat-1"


def test_a_token_can_come_through_standard_input_so_that_no_list_of_processes_shows_it(tmp_path, stub, here):
    done = osmosis("--json", "auth", "login", "--token", "-", cwd=tmp_path, env=here, stdin="pat-in\n")
    assert done.json["resource"]["source"] == "token"
    assert stub.asked[-1].headers["authorization"] == "Bearer pat-in"
    assert osmosis("--json", "auth", "login", "--token", "-", cwd=tmp_path, env=here).error["code"] == "VALIDATION"
    with Terminal("auth", "login", "--token", "-", cwd=tmp_path, env=here) as terminal:
        terminal.expect("hidden")
        terminal.send("pat-typed\r")
        assert terminal.finish() == 0
        assert "pat-typed" not in terminal.raw
    assert stub.asked[-2].headers["authorization"] == "Bearer pat-typed"


def test_without_a_keyring_the_file_is_private_and_a_warning_says_so(tmp_path, stub, here):
    done = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here | NO_KEYRING)
    assert [line["warning"]["code"] for line in done.objects] == ["KEYRING_UNAVAILABLE"]
    assert stored(tmp_path)["platforms"][stub.url]["access_token"] == "pat-1"
    assert stat.S_IMODE(credentials(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(credentials(tmp_path).parent.stat().st_mode) == 0o700
    assert os.listdir(credentials(tmp_path).parent) == ["credentials.json"]
    chosen = osmosis(
        "--json", "auth", "login", "--token", "pat-2", cwd=tmp_path, env=here | {"OSMOSIS_TOKEN_STORE": "file"}
    )
    assert chosen.status == 0


@pytest.mark.parametrize("broken", ["set", "get"])
def test_a_keyring_that_does_not_keep_is_no_keyring(tmp_path, here, broken):
    here["FILE_KEYRING_BROKEN"] = broken
    done = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    assert done.json["resource"]["token_store"] == "file"
    here["OSMOSIS_TOKEN_STORE"] = "keyring"
    insisted = osmosis("--json", "auth", "login", "--token", "pat-2", cwd=tmp_path, env=here)
    assert insisted.error["code"] == "KEYRING_UNAVAILABLE"
    assert "pat-1" in credentials(tmp_path).read_text()


def test_the_new_login_is_stored_before_the_old_one_is_taken_back(tmp_path, stub, here):
    write(tmp_path, {"version": 2, "platforms": {stub.url: entry(stub.url), PRODUCTION: entry(PRODUCTION, "prod")}})
    seen = {}

    def revoke(asked):
        seen["token"] = asked.headers["authorization"]
        seen["stored"] = stored(tmp_path)["platforms"][stub.url]["token_id"]
        return Answer(status=204)

    stub.routes["DELETE /api/cli/tokens/old-id"] = revoke
    done = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    assert done.status == 0
    assert seen == {"token": "Bearer old-token", "stored": "new-id"}
    assert stored(tmp_path)["platforms"][PRODUCTION]["access_token"] == "prod"


def test_a_refused_token_leaves_the_login_before(tmp_path, stub, here):
    before = write(tmp_path, {"version": 2, "platforms": {stub.url: entry(stub.url)}}).read_bytes()
    stub.routes["GET /api/cli/verify"] = Answer({"code": "TOKEN_INVALID", "error": "pat-secret is bad"}, 401)
    done = osmosis("--json", "auth", "login", "--token", "pat-secret", cwd=tmp_path, env=here)
    assert done.error["code"] == "AUTH_REQUIRED"
    assert "pat-secret" not in done.stderr
    assert credentials(tmp_path).read_bytes() == before


@pytest.mark.parametrize("token", ["", "two words", "lïne", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused_unsent(tmp_path, stub, here, token):
    done = osmosis("--json", "auth", "login", "--token", token, cwd=tmp_path, env=here)
    assert done.error["code"] == "VALIDATION"
    assert stub.asked == []
    assert not credentials(tmp_path).exists()


@pytest.mark.parametrize("arguments", [[], ["--token", "pat-1"]])
def test_a_token_in_the_environment_disables_logging_in(tmp_path, stub, here, arguments):
    here |= {"OSMOSIS_TOKEN": "t", "OSMOSIS_TOKEN_PLATFORM_URL": stub.url}
    done = osmosis("--json", "auth", "login", *arguments, cwd=tmp_path, env=here)
    assert done.error["code"] == "CONFLICT"
    assert stub.asked == []


@pytest.mark.parametrize("url", ["https://staging.example", "http://127.0.0.1:9"])
def test_an_environment_token_is_sent_to_its_own_platform_only(tmp_path, url):
    env = environment(tmp_path, OSMOSIS_TOKEN="t", OSMOSIS_PLATFORM_URL=url)
    assert osmosis("--json", "auth", "whoami", cwd=tmp_path, env=env).error["code"] == "ENV_TOKEN_PLATFORM_REQUIRED"
    env["OSMOSIS_TOKEN_PLATFORM_URL"] = "https://other.example"
    error = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=env).error
    assert error["code"] == "ENV_TOKEN_PLATFORM_MISMATCH"
    assert error["details"] == {"platform_url": url, "token_platform_url": "https://other.example"}


def test_whoami_names_the_workspace_of_the_repository(tmp_path, stub, here):
    make_workspace(tmp_path / "ws")
    stub.routes["GET /api/cli/verify"] = {
        **ADA,
        "token_id": "t",
        "workspace": {"id": "w", "name": "lab", "role": "owner"},
    }
    here |= stub.environment()
    done = osmosis("--json", "auth", "whoami", cwd=tmp_path / "ws", env=here)
    assert done.json["data"]["workspace"] == {"id": "w", "name": "lab", "role": "owner"}
    assert stub.asked[-1].headers["x-osmosis-git"] == "acme/demo-repo"
    shown = osmosis("auth", "whoami", cwd=tmp_path / "ws", env=here)
    assert "lab" in shown.stdout and "owner" in shown.stdout


def test_whoami_does_without_a_repository_that_the_platform_does_not_know(tmp_path, stub, here):
    make_workspace(tmp_path / "ws")

    def verify(asked):
        known = "x-osmosis-git" not in asked.headers
        return ADA if known else Answer({"code": "GIT_REPOSITORY_NOT_CONNECTED"}, 403)

    stub.routes["GET /api/cli/verify"] = verify
    done = osmosis("--json", "auth", "whoami", cwd=tmp_path / "ws", env=here | stub.environment())
    assert done.json["data"]["workspace"] is None
    assert len(stub.asked) == 2


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({}, "PLATFORM_ERROR"),
        ({"user": []}, "PLATFORM_ERROR"),
        ({"user": {"id": 3, "email": "a"}}, "PLATFORM_ERROR"),
        ({**ADA, "expires_at": "soon"}, "PLATFORM_ERROR"),
        ({**ADA, "expires_at": "2020-01-01T00:00:00Z"}, "PLATFORM_ERROR"),
        ({**ADA, "expires_at": "2099-01-01T00:00:00"}, "PLATFORM_ERROR"),
        ({**ADA, "workspace": "lab"}, "PLATFORM_ERROR"),
        (Answer(data=b"<html>hello</html>"), "PLATFORM_ERROR"),
        (Answer([1, 2]), "PLATFORM_ERROR"),
        (Answer({"error": "x"}, 404), "PLATFORM_ERROR"),
        (Answer(data=b"\xff\xfe", status=502), "PLATFORM_ERROR"),
        (Answer({"error": "slow"}, 429), "RATE_LIMITED"),
        (Answer({"status": "unsupported", "message": None}, 426), "UPGRADE_REQUIRED"),
    ],
)
def test_no_answer_of_the_platform_is_an_internal_error(tmp_path, stub, here, reply, code):
    stub.routes["GET /api/cli/verify"] = reply
    done = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here | stub.environment("tok-secret"))
    assert done.error["code"] == code
    assert done.error["message"]
    assert "tok-secret" not in done.stderr


def test_version_news_are_told_once(tmp_path, stub, here):
    headers = {"X-Osmosis-Version-Status": "deprecated", "X-Osmosis-Version-Message": "Upgrade by May."}
    stub.routes["GET /api/cli/verify"] = Answer(ADA, headers=headers)
    done = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here | stub.environment())
    assert [line["warning"] for line in done.objects] == [{"code": "DEPRECATED", "message": "Upgrade by May."}]


def test_logging_out_takes_the_token_back_and_keeps_other_platforms(tmp_path, stub, here):
    osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    stub.routes["DELETE /api/cli/tokens/new-id"] = Answer(status=204)
    kept = stored(tmp_path)
    kept["platforms"][PRODUCTION] = entry(PRODUCTION)
    write(tmp_path, kept)
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.json["resource"]["revoked"] is True
    assert done.stderr == ""
    assert stub.asked[-1].headers["authorization"] == "Bearer pat-1"
    assert json.loads((tmp_path / "keyring.json").read_text()) == {}
    assert list(stored(tmp_path)["platforms"]) == [PRODUCTION]
    again = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert again.json["status"] == "noop"


def test_logging_out_without_a_network_forgets_the_login_and_says_what_is_left(tmp_path):
    url = "http://127.0.0.1:9"
    write(tmp_path, {"version": 2, "platforms": {url: entry(url)}})
    done = osmosis(
        "--json", "auth", "logout", "--yes", cwd=tmp_path, env=environment(tmp_path, OSMOSIS_PLATFORM_URL=url)
    )
    assert done.json["status"] == "success"
    assert done.json["resource"]["revoked"] is False
    assert [line["warning"]["code"] for line in done.objects] == ["TOKEN_REVOKE_FAILED"]
    assert not credentials(tmp_path).exists()


def test_a_login_without_an_id_is_asked_for_it_and_a_refused_token_counts_as_taken_back(tmp_path, stub, here):
    write(tmp_path, {"version": 2, "platforms": {stub.url: entry(stub.url, token_id=None)}})
    stub.routes["DELETE /api/cli/tokens/new-id"] = Answer(status=401)
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.json["resource"]["revoked"] is True
    assert stub.calls == ["GET /api/cli/verify", "DELETE /api/cli/tokens/new-id"]


def test_a_keyring_that_refuses_to_forget_is_an_error(tmp_path, stub, here):
    osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    stub.routes["DELETE /api/cli/tokens/new-id"] = Answer(status=204)
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here | {"FILE_KEYRING_BROKEN": "delete"})
    assert done.error["code"] == "KEYRING_CLEANUP_FAILED"
    assert stored(tmp_path)["platforms"]


@pytest.mark.parametrize(
    "text", ["{not json", "[]", '{"version": 2, "platforms": []}', '{"version": 2, "platforms": {"": {}}}']
)
def test_damaged_logins_are_set_aside_by_logging_out_or_in_only(tmp_path, stub, here, text):
    file = write(tmp_path, text)
    for command in (["whoami"], ["logout"]):
        done = osmosis("--json", "auth", *command, cwd=tmp_path, env=here)
        assert done.status == 1
        assert file.read_text() == text
    assert stub.asked == []
    (file.parent / "credentials.json.bak").write_text("older")
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.json["status"] == "success"
    assert [line["warning"]["code"] for line in done.objects] == ["CREDENTIALS_METADATA_BACKED_UP"]
    assert (file.parent / "credentials.json.bak").read_text() == "older"
    assert (file.parent / "credentials.json.bak.1").read_text() == text
    assert not file.exists()
    write(tmp_path, text)
    again = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    assert again.status == 0
    assert [line["warning"]["code"] for line in again.objects] == ["CREDENTIALS_METADATA_BACKED_UP"]
    assert (file.parent / "credentials.json.bak.2").read_text() == text


def test_damaged_logins_are_forgotten_on_a_machine_without_a_keyring_too(tmp_path, here):
    file = write(tmp_path, "{not json")
    here |= {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert (done.status, done.json["status"]) == (0, "success")
    codes = [line["warning"]["code"] for line in done.objects]
    assert codes == ["CREDENTIALS_METADATA_BACKED_UP", "KEYRING_UNAVAILABLE"]
    assert not file.exists()


def test_one_damaged_entry_does_not_cost_the_others(tmp_path, stub, here):
    write(tmp_path, {"version": 2, "platforms": {stub.url: {"version": 2}, PRODUCTION: entry(PRODUCTION)}})
    who = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here)
    assert who.error["code"] == "CREDENTIALS_PARSE_FAILED"
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.status == 0
    assert list(stored(tmp_path)["platforms"]) == [PRODUCTION]
    assert [line["warning"]["code"] for line in done.objects] == ["TOKEN_NOT_FOUND"]


def test_a_token_that_vanished_from_the_keyring_means_logged_out(tmp_path, stub, here):
    osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=here)
    (tmp_path / "keyring.json").write_text("{}")
    who = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here)
    warning, error = who.objects
    assert (warning["warning"]["code"], error["error"]["code"]) == ("TOKEN_NOT_FOUND", "AUTH_REQUIRED")
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.json["status"] == "success"
    assert not credentials(tmp_path).exists()


def test_an_unreadable_file_is_said_to_be_one(tmp_path, here):
    credentials(tmp_path).mkdir(parents=True)
    done = osmosis("--json", "auth", "whoami", cwd=tmp_path, env=here)
    assert done.error["code"] == "CREDENTIALS_UNAVAILABLE"
    assert "OSMOSIS_TOKEN" in done.error["message"]


def test_the_old_form_of_the_file_and_of_the_keyring_is_read_for_production(tmp_path, here):
    legacy = {
        key: value
        for key, value in entry(PRODUCTION, token_store="keyring").items()
        if key not in ("access_token", "token_id")
    }
    write(tmp_path, legacy)
    (tmp_path / "keyring.json").write_text(json.dumps({"osmosis-cli/ada@example.com": "legacy-token"}))
    from osmosis_ai.client import logins

    home, os.environ["HOME"] = os.environ["HOME"], str(tmp_path)
    try:
        login = logins.load_login(PRODUCTION)
    finally:
        os.environ["HOME"] = home
    assert login is not None
    assert login.keyring_accounts() == ["default", "ada@example.com"]
    here.pop("OSMOSIS_PLATFORM_URL")
    here["http_proxy"] = here["https_proxy"] = "http://127.0.0.1:9"  # nothing of this test leaves the machine
    done = osmosis("--json", "auth", "logout", "--yes", cwd=tmp_path, env=here)
    assert done.json["status"] == "success", done.stderr
    assert json.loads((tmp_path / "keyring.json").read_text()) == {}
    assert not credentials(tmp_path).exists()


def test_logins_at_the_same_time_all_stay(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with StubApi({"GET /api/cli/verify": {**ADA, "token_id": "t"}}) as stub:
        env = environment(tmp_path, OSMOSIS_TOKEN_STORE="file")
        urls = [f"{stub.url}/mount{number}" for number in range(6)]
        for url in urls:
            stub.routes[f"GET {url.removeprefix(stub.url)}/api/cli/verify"] = {**ADA, "token_id": "t"}

        def log_in(url):
            return osmosis("--json", "--platform", url, "auth", "login", "--token", "pat", cwd=tmp_path, env=env).status

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(log_in, urls)) == [0] * 6
    assert sorted(stored(tmp_path)["platforms"]) == sorted(urls)


class TestDevice:
    def routes(self, stub, *polls):
        stub.routes |= {
            "POST /api/cli/device/authorize": {
                "device_code": "dc",
                "user_code": "WXYZ-1234",
                "verification_uri": f"{stub.url}/device",
                "verification_uri_complete": f"{stub.url}/device?code=WXYZ-1234",
                "expires_in": 60,
                "interval": 0.05,
            },
            "POST /api/cli/device/token": list(polls),
        }

    def test_a_person_allows_the_login_in_the_browser(self, tmp_path, stub, here):
        pending = Answer({"error": "authorization_pending"}, 400)
        self.routes(stub, pending, pending, {"token": "dev-token", "token_id": "dev-id", **ADA})
        browser = tmp_path / "browser"
        browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
        browser.chmod(0o755)
        with Terminal("auth", "login", cwd=tmp_path, env=here | {"BROWSER": str(browser)}) as terminal:
            terminal.expect("WXYZ-1234")
            terminal.expect("Logged in as ada@example.com")
            assert terminal.finish() == 0
            assert "\x1b]52;c;V1hZWi0xMjM0\x07" in terminal.raw  # the code, for the clipboard
            assert "dev-token" not in terminal.raw
        end = time.monotonic() + 10
        while not (tmp_path / "opened").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert (tmp_path / "opened").read_text() == f"{stub.url}/device?code=WXYZ-1234"
        assert "dev-token" in (tmp_path / "keyring.json").read_text()
        assert stub.calls.count("POST /api/cli/device/token") == 3
        assert stub.asked[0].json["deviceName"]
        assert all("authorization" not in asked.headers for asked in stub.asked)

    def test_rich_in_a_pipe_still_shows_the_code(self, tmp_path, stub, here):
        self.routes(stub, {"token": "dev-token", "token_id": "dev-id", **ADA})
        done = osmosis("auth", "login", cwd=tmp_path, env=here)
        assert done.status == 0
        assert "WXYZ-1234" in done.stderr
        assert "Logged in as ada@example.com" in done.stdout

    @pytest.mark.parametrize(
        ("poll", "code"),
        [
            (Answer({"error": "access_denied"}, 400), "AUTH_REQUIRED"),
            (Answer({"error": "expired_token"}, 400), "AUTH_REQUIRED"),
            (Answer({"error": "weird"}, 500), "PLATFORM_ERROR"),
            (Answer({"status": "unsupported", "message": "too old"}, 426), "UPGRADE_REQUIRED"),
            (Answer({"nothing": 1}), "PLATFORM_ERROR"),
        ],
    )
    def test_a_login_that_does_not_come_about_stores_nothing(self, tmp_path, stub, here, poll, code):
        self.routes(stub, poll)
        done = osmosis("auth", "login", cwd=tmp_path, env=here)
        assert done.status == 1
        assert "Error:" in done.stderr
        assert not credentials(tmp_path).exists()

    def test_a_token_that_cannot_be_stored_is_taken_back(self, tmp_path, stub, here):
        self.routes(stub, {"token": "dev-token", "token_id": "dev-id", **ADA, "expires_at": "2001-01-01T00:00:00Z"})
        stub.routes["DELETE /api/cli/tokens/dev-id"] = Answer(status=204)
        done = osmosis("auth", "login", cwd=tmp_path, env=here)
        assert done.status == 1
        assert stub.calls[-1] == "DELETE /api/cli/tokens/dev-id"
        assert stub.asked[-1].headers["authorization"] == "Bearer dev-token"

    def test_ctrl_c_ends_the_waiting(self, tmp_path, stub, here):
        self.routes(stub, Answer({"error": "authorization_pending"}, 400))
        with Terminal("auth", "login", cwd=tmp_path, env=here) as terminal:
            terminal.expect("Waiting")
            terminal.send("\x03")
            assert terminal.finish() == 130


@pytest.mark.parametrize(
    ("keys", "kept"), [("y\r", False), ("n\r", True), ("\r", True), ("\x1b", True), ("\x03", True)]
)
def test_logging_out_asks_and_no_is_the_default(tmp_path, stub, here, keys, kept):
    write(tmp_path, {"version": 2, "platforms": {stub.url: entry(stub.url)}})
    stub.routes["DELETE /api/cli/tokens/old-id"] = Answer(status=204)
    with Terminal("auth", "logout", cwd=tmp_path, env=here) as terminal:
        terminal.expect("[y/N]")
        terminal.send(keys)
        assert terminal.finish() == 0
        assert ("Cancelled." in terminal.text) is kept
    assert credentials(tmp_path).exists() is kept
    assert bool(stub.asked) is not kept
