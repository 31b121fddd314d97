import os
from pathlib import Path

import pytest
from osmosis_ai.cli.environment import prepare_environment
from osmosis_ai.client.address import normalise_platform_url
from osmosis_ai.client.credentials import resolve_credential
from osmosis_ai.errors import ConflictError, UnboundTokenError, UsageError, ValidationError
from osmosis_cli import environment, osmosis

VALIDATE = ("dataset", "validate", "d.jsonl")


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("OSMOSIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_nearest_dotenv_fills_what_the_process_lacks(clean: Path):
    (clean / ".env").write_text("A_KEY=from-file\nB_KEY=from-file\nC_KEY='quoted # text'\n")
    os.environ.update({"A_KEY": "from-process", "B_KEY": ""})
    below = clean / "deep" / "er"
    below.mkdir(parents=True)
    os.chdir(below)
    prepare_environment(None, None, lambda *_: None)
    assert [os.environ[name] for name in ("A_KEY", "B_KEY", "C_KEY")] == ["from-process", "from-file", "quoted # text"]


def test_a_named_dotenv_beats_the_nearest(clean: Path):
    (clean / ".env").write_text("A_KEY=nearest\n")
    (clean / "p.env").write_text("A_KEY=named\n")
    prepare_environment("p.env", None, lambda *_: None)
    assert os.environ["A_KEY"] == "named"


def test_the_variable_names_a_dotenv_too(clean: Path):
    (clean / "p.env").write_text("A_KEY=named\n")
    os.environ["OSMOSIS_ENV_FILE"] = str(clean / "p.env")
    prepare_environment(None, None, lambda *_: None)
    assert os.environ["A_KEY"] == "named"


@pytest.mark.parametrize("given", ["none.env", "folder"])
def test_a_named_dotenv_must_be_a_file(clean: Path, given: str):
    (clean / "folder").mkdir()
    with pytest.raises(UsageError, match="--env-file"):
        prepare_environment(given, None, lambda *_: None)


@pytest.mark.parametrize("named", [False, True])
def test_a_dotenv_that_only_lies_here_leads_no_login_elsewhere(clean: Path, named: bool):
    names = ["SSL_CERT_FILE", "PYTHON_KEYRING_BACKEND", "XDG_CONFIG_HOME", "OPENSSL_CONF", "PIP_INDEX_URL"]
    for name in names:
        os.environ.pop(name, None)
    harmless = ["BROWSERBASE_API_KEY", "PATH_TO_MODEL", "XDG_CACHE_DIR_OF_MINE", "UV_INDEX_PRIVATE_PASSWORD"]
    (clean / ".env").write_text("".join(f"{name}=x\n" for name in (*names, *harmless)))
    said: list[str] = []
    prepare_environment(".env" if named else None, None, lambda message, _code: said.append(message))
    assert [name for name in names if name in os.environ] == (names if named else [])
    assert len(said) == (0 if named else len(names)) and all("--env-file" in message for message in said)
    assert [os.environ[name] for name in harmless] == ["x"] * len(harmless)


@pytest.mark.parametrize(("token", "sent"), [("", False), ("OSMOSIS_TOKEN=tok\n", True)])
def test_a_dotenv_that_only_lies_here_binds_only_its_own_token(clean: Path, token: str, sent: bool):
    platform = "OSMOSIS_PLATFORM_URL=https://evil.example\nOSMOSIS_TOKEN_PLATFORM_URL=https://evil.example\n"
    (clean / ".env").write_text(token + platform)
    if not token:
        os.environ["OSMOSIS_TOKEN"] = "tok"
    prepare_environment(None, None, lambda *_: None)
    if sent:
        assert resolve_credential(os.environ).token == "tok"
    else:
        with pytest.raises(UnboundTokenError, match="OSMOSIS_TOKEN_PLATFORM_URL"):
            resolve_credential(os.environ)


def test_a_token_that_is_bound_already_conflicts_with_another_binding(clean: Path):
    (clean / ".env").write_text("OSMOSIS_TOKEN_PLATFORM_URL=https://evil.example\n")
    os.environ |= {"OSMOSIS_TOKEN": "tok", "OSMOSIS_TOKEN_PLATFORM_URL": "https://own.example"}
    with pytest.raises(ConflictError, match="OSMOSIS_TOKEN_PLATFORM_URL"):
        prepare_environment(None, None, lambda *_: None)
    os.environ["OSMOSIS_TOKEN_PLATFORM_URL"] = "https://EVIL.example/"
    said: list[str] = []
    prepare_environment(None, None, lambda message, _code: said.append(message))
    assert said == []


def test_two_auth_profiles_conflict(clean: Path):
    (clean / ".env").write_text("OSMOSIS_TOKEN=bbb\n")
    os.environ["OSMOSIS_TOKEN"] = "aaa"
    with pytest.raises(ConflictError, match="OSMOSIS_TOKEN") as caught:
        prepare_environment(None, None, lambda *_: None)
    assert "aaa" not in str(caught.value) and "bbb" not in str(caught.value)


def test_equal_platforms_in_other_spelling_agree(clean: Path):
    (clean / ".env").write_text("OSMOSIS_PLATFORM_URL=https://a.example\n")
    os.environ["OSMOSIS_PLATFORM_URL"] = "https://A.example:443/"
    prepare_environment(None, None, lambda *_: None)


def test_the_platform_option_beats_both(clean: Path):
    (clean / ".env").write_text("OSMOSIS_PLATFORM_URL=https://b.example\n")
    os.environ["OSMOSIS_PLATFORM_URL"] = "https://a.example"
    prepare_environment(None, "https://c.example", lambda *_: None)
    assert os.environ["OSMOSIS_PLATFORM_URL"] == "https://c.example"


def test_bad_dotenv_lines_are_named_and_bad_bytes_refused(clean: Path):
    said: list[tuple[str, str | None]] = []
    (clean / ".env").write_text("GOOD=1\n'bad line\n")
    prepare_environment(None, None, lambda *warning: said.append(warning))
    assert said and "line 2" in said[0][0]
    (clean / ".env").write_bytes(b"A=\xff\n")
    with pytest.raises(ValidationError, match="UTF-8"):
        prepare_environment(None, None, lambda *_: None)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ("https://A.example/", "https://a.example"),
        ("https://a.example:443", "https://a.example"),
        ("http://localhost:80/x/?q=1", "http://localhost/x"),
        ("platform.example", "https://platform.example"),
        ("localhost:3000", "http://localhost:3000"),
        ("127.0.0.1:9/", "http://127.0.0.1:9"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_platform_urls_have_one_form(given: str, same: str):
    assert normalise_platform_url(given) == same


@pytest.mark.parametrize("given", ["https://a.example:port", "ftp://a.example", "https://", "http://:80"])
def test_malformed_platform_urls_are_refused(given: str):
    with pytest.raises(ValidationError, match="platform URL"):
        normalise_platform_url(given)


def test_plain_http_off_this_machine_is_refused_with_a_warning(tmp_path: Path):
    env = environment(tmp_path, OSMOSIS_PLATFORM_URL="http://platform.example")
    done = osmosis("--json", *VALIDATE, cwd=tmp_path, env=env)
    assert done.status == 1
    assert done.objects[0]["warning"]["code"] == "INSECURE_PLATFORM_URL"
    assert done.error["code"] == "VALIDATION"
    allowed = osmosis("--json", *VALIDATE, cwd=tmp_path, env={**env, "OSMOSIS_ALLOW_INSECURE_PLATFORM_URL": "1"})
    assert "d.jsonl" in allowed.error["message"]
    loopback = osmosis("--json", "--platform", "http://127.0.0.1:9", *VALIDATE, cwd=tmp_path, env=env)
    assert len(loopback.objects) == 1
