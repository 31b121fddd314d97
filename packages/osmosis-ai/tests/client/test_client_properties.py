import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.client import logins
from osmosis_ai.client.address import is_private_in_transit, normalise_platform_url
from osmosis_ai.client.logins import Login, User
from osmosis_ai.client.redaction import redact_text, redact_value
from osmosis_ai.client.scope import named_scope
from osmosis_ai.client.session import segment
from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.redaction import MARK
from osmosis_ai.workspace.repository import parse_origin

LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
HOST = st.one_of(
    st.lists(LABEL, min_size=1, max_size=3).map(".".join).filter(lambda host: not host.replace(".", "").isdigit()),
    st.sampled_from(["127.0.0.1", "[::1]", "localhost", "10.0.0.7"]),
)
OWNER = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,20}", fullmatch=True)
REPOSITORY = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: not name.endswith(".git")
)


@given(
    HOST, st.none() | st.integers(1, 65535), st.sampled_from(["", "http://", "HTTPS://"]), st.lists(LABEL, max_size=2)
)
def test_a_platform_has_one_address_however_it_is_written(host, port, scheme, path):
    written = f"{scheme}{host}{f':{port}' if port else ''}{''.join('/' + part for part in path)}"
    once = normalise_platform_url(written)
    assert normalise_platform_url(once) == once
    assert normalise_platform_url(f"  {written}/?q=1#f ") == once
    assert normalise_platform_url(written.replace(host, host.upper(), 1)) == once
    assert not once.endswith("/")
    if not scheme:
        local = host in ("127.0.0.1", "[::1]", "localhost")
        assert once.startswith("http://" if local else "https://")
        assert is_private_in_transit(once)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_validation_error(text):
    try:
        once = normalise_platform_url(text)
    except ValidationError:
        return
    assert normalise_platform_url(once) == once


@given(OWNER, REPOSITORY, st.sampled_from(["", ".git"]), st.booleans())
def test_a_repository_has_one_identity_in_every_form_of_its_url(owner, repository, suffix, upper):
    host = "GitHub.com" if upper else "github.com"
    for url in (
        f"https://{host}/{owner}/{repository}{suffix}",
        f"https://user:pass@{host}/{owner}/{repository}{suffix}/",
        f"ssh://git@{host}/{owner}/{repository}{suffix}",
        f"ssh://git@{host}:22/{owner}/{repository}{suffix}",
        f"git://{host}/{owner}/{repository}{suffix}",
        f"git@{host}:{owner}/{repository}{suffix}",
        f"git@{host}:/{owner}/{repository}{suffix}",
    ):
        for any_host in (False, True):
            origin = parse_origin(url, any_host=any_host)
            assert origin.identity == f"{owner}/{repository}".lower()
            assert "pass" not in origin.remote_url or "pass" in owner + repository


@given(HOST.filter(lambda host: host != "github.com"), st.lists(REPOSITORY, min_size=1, max_size=3))
def test_a_repository_elsewhere_is_named_with_its_host_where_that_will_do(host, path):
    url = f"https://{host}/{'/'.join(path)}.git"
    assert parse_origin(url, any_host=True).identity == f"{host}/{'/'.join(path)}".lower()
    with pytest.raises(ValidationError, match="github"):
        parse_origin(url)


@given(st.text(max_size=60))
def test_any_text_is_an_origin_or_a_validation_error(text):
    for any_host in (False, True):
        try:
            origin = parse_origin(text, any_host=any_host)
        except ValidationError:
            continue
        assert origin.identity == origin.identity.lower()
        assert not set(origin.identity) & set(" \t\r\n\x00@?#")


@contextmanager
def a_home():
    before = os.environ["HOME"]
    with TemporaryDirectory() as home:
        os.environ["HOME"] = home
        try:
            yield Path(home)
        finally:
            os.environ["HOME"] = before


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
MOMENT = st.integers(0, 8_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC))


@settings(max_examples=40)
@given(
    st.dictionaries(
        HOST.map(normalise_platform_url),
        st.tuples(TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, MOMENT, TEXT),
        max_size=4,
    )
)
def test_logins_come_back_as_they_were_stored(entries):
    with a_home():
        saved = {}
        for url, (user, email, name, token_id, moment, token) in entries.items():
            login = Login(url, User(user, email, name), moment, "file", token_id=token_id)
            saved[url] = logins.save_login(login, token, "file")
        for url, login in saved.items():
            found = logins.load_login(url)
            assert found == login
            assert found.read_token() == entries[url][-1]
            assert "access_token" not in repr(found)
        for url in saved:
            logins.remove_login(url)
            assert logins.load_login(url) is None
        assert not logins.credentials_path().exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["version", "platforms", "user", "id", "email", "expires_at", "https://a.example", "x"]), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=80)
@given(
    JSON
    | st.dictionaries(st.just("platforms"), st.dictionaries(st.just("https://a.example"), JSON)).map(
        lambda value: value | {"version": 2}
    )
)
def test_whatever_the_file_of_logins_holds_reading_it_answers_in_our_words(value):
    with a_home():
        logins.config_directory().mkdir(parents=True)
        text = json.dumps(value)
        logins.credentials_path().write_text(text)
        try:
            logins.load_login("https://a.example")
        except OsmosisError as error:
            assert error.error_code in ("CREDENTIALS_PARSE_FAILED", "CREDENTIALS_VERSION_CHANGED")
        assert logins.credentials_path().read_text() == text


@given(st.text(max_size=30))
def test_a_workspace_name_can_stand_in_a_header_or_is_refused(name):
    try:
        scope = named_scope(name)
    except ValidationError:
        return
    (value,) = scope.headers().values()
    assert value == value.strip() == name.strip()
    assert not set(value.encode("latin-1")) & {*range(32), 127}


@given(st.text(min_size=1, max_size=30).filter(str.strip))
def test_a_segment_holds_no_separator(name):
    quoted = segment(name)
    assert not set(quoted) & set("/?#\\ ")
    assert quoted not in (".", "..")


@given(st.lists(st.text("abcXYZ-", min_size=1, max_size=6), max_size=4), st.text("abcXYZ- ", max_size=40))
def test_no_secret_survives_redaction(secrets, text):
    shown = redact_text(text, secrets).replace(MARK, "\0")
    assert not any(secret in shown for secret in secrets if len(secret) >= 4)
    assert not any(
        secret in str(redact_value([{text: text}], secrets)).replace(MARK, "\0")
        for secret in secrets
        if len(secret) >= 4
    )
