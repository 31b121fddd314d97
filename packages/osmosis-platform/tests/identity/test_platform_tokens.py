"""Tokens: how they look, when they count, and that their end is at once."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.errors import InvalidRequestError, UnauthorizedError
from osmosis_platform.identity.accounts import disable_user
from osmosis_platform.identity.secret_tokens import digest, new_secret, parse_secret
from osmosis_platform.identity.tokens import authenticate_token, parse_token
from osmosis_platform.ids import new_id

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"


def refusal(house, text):
    with pytest.raises(UnauthorizedError) as caught:
        house.read(lambda work: authenticate_token(work, text))
    return caught.value.error_code


@settings(max_examples=60)
@given(st.sampled_from(["pat", "dev", "run"]), st.data())
def test_one_wrong_character_makes_it_no_token(kind, data):
    token_id = new_id("to")
    text = new_secret(kind, token_id.removeprefix("to_"))
    assert parse_token(text) == token_id
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(DIGITS).filter(lambda digit: digit != text[place]))
    assert parse_token(text[:place] + other + text[place + 1 :]) is None
    assert parse_token(text[:place]) is None


@settings(max_examples=100)
@given(st.text(max_size=120))
def test_any_text_is_read_without_a_fault(text):
    assert parse_token(text) is None
    assert parse_secret(text) is None
    assert len(digest(text)) == 64


def test_secrets_of_other_kinds_are_no_tokens():
    assert parse_token(new_secret("inv")) is None
    assert parse_token(new_secret("inv", new_id("in").removeprefix("in_"))) is None


def test_a_token_tells_whose_it_is_and_nothing_shows_its_text(house):
    issued = house.token("ada", scopes=["datasets:read", "datasets:read"])
    assert issued.secret.startswith("osm_pat_") and issued.secret not in repr(issued)
    actor = house.read(lambda work: authenticate_token(work, issued.secret, ip="192.0.2.1")).actor
    assert (actor.user_id, actor.token_id, actor.ip) == (house.users["ada"].id, issued.id, "192.0.2.1")
    assert actor.scopes == {"datasets:read"}
    stored, _ = house.read(lambda work: TokenRepository(work).find(issued.id))
    assert stored.sha256 == digest(issued.secret) and stored.sha256 not in repr(stored)


def test_an_end_a_revocation_and_a_disabled_owner_each_have_their_code(house):
    ends = house.token("ada", expires_at=house.clock() + timedelta(hours=1))
    revoked, kept = house.token("ada"), house.token("ada")
    house.write(lambda work: TokenRepository(work).revoke(house.users["ada"].id, revoked.id))
    assert refusal(house, revoked.secret) == "TOKEN_REVOKED"
    house.clock.turn(minutes=59)
    house.read(lambda work: authenticate_token(work, ends.secret))
    house.clock.turn(minutes=1)
    assert refusal(house, ends.secret) == "TOKEN_EXPIRED"
    assert refusal(house, "osm_pat_x") == refusal(house, "") == "TOKEN_INVALID"
    assert refusal(house, new_secret("pat", kept.id.removeprefix("to_"))) == "TOKEN_INVALID"
    house.write(lambda work: disable_user(work, None, house.users["ada"].id))
    assert refusal(house, kept.secret) == "TOKEN_REVOKED"


def test_the_last_use_is_noted_once_a_minute(house, client):
    headers, token = (
        house.headers("ada"),
        house.read(lambda work: TokenRepository(work).of_user(house.users["ada"].id))[0],
    )

    def used():
        assert client.get("/api/cli/verify", headers=headers).status_code == 200
        return house.read(lambda work: TokenRepository(work).find(token.id))[0].last_used_at

    first = used()
    assert first == house.clock()
    house.clock.turn(seconds=59)
    assert used() == first
    house.clock.turn(seconds=1)
    assert used() == house.clock()


NONSENSE = [
    ({"scopes": ["datasets:eat"]}, "scopes"),
    ({"scopes": []}, "scopes"),
    ({"name": " "}, "name"),
    ({"name": "x" * 101}, "name"),
    ({"name": "a\x1b[31mb"}, "name"),
]


def test_a_token_that_makes_no_sense_is_refused(house):
    for facts, field in NONSENSE:
        with pytest.raises(InvalidRequestError) as caught:
            house.token("ada", **facts)
        assert caught.value.field == field, facts


def test_a_token_that_is_over_already_is_refused(house):
    with pytest.raises(InvalidRequestError, match="over already"):
        house.token("ada", expires_at=house.clock())


def test_logout_ends_the_token_at_hand_at_once(house, client):
    issued = house.token("ada")
    headers = {"Authorization": f"Bearer {issued.secret}"}
    assert client.get("/api/cli/verify", headers=headers).status_code == 200
    assert client.delete(f"/api/cli/tokens/{issued.id}", headers=headers).status_code == 200
    answer = client.delete(f"/api/cli/tokens/{issued.id}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "TOKEN_REVOKED")


def test_a_token_ends_another_of_its_owner_only_with_the_scope_and_never_a_strangers(house, client):
    house.person("bob")
    other, strange, weak = house.token("ada"), house.token("bob"), house.headers("ada", scopes=["datasets:read"])
    assert client.delete(f"/api/cli/tokens/{other.id}", headers=weak).json()["code"] == "TOKEN_SCOPE_MISSING"
    strong = house.headers("ada", scopes=["tokens:write"])
    assert client.delete(f"/api/cli/tokens/{strange.id}", headers=strong).status_code == 404
    assert client.delete(f"/api/cli/tokens/{other.id}", headers=strong).status_code == 200
    assert house.read(lambda work: TokenRepository(work).find(strange.id))[0].revoked_at is None


def test_an_address_is_one_persons_whatever_its_case(house):
    with pytest.raises(Exception, match="already"):
        house.person("ADA")
    assert house.read(lambda work: UserRepository(work).count()) == 1


def test_a_token_for_one_workspace_sees_and_ends_those_for_it_alone(house, client):
    place = house.workspace.id
    mine, other = house.headers("ada", workspace_id=place), house.token("ada", workspace_id=place)
    everywhere = house.token("ada")
    listed = client.get("/api/v1/tokens", headers=mine).json()["tokens"]
    assert {one["workspace_id"] for one in listed} == {place} and len(listed) == 2
    for path in ("/api/cli/tokens/", "/api/v1/tokens/"):
        answer = client.delete(path + everywhere.id, headers=mine)
        assert (answer.status_code, answer.json()["code"]) == (404, "TOKEN_NOT_FOUND")
    assert client.delete(f"/api/v1/tokens/{other.id}", headers=mine).status_code == 204
    assert client.get("/api/v1/account", headers={"Authorization": f"Bearer {everywhere.secret}"}).status_code == 200


def test_a_narrow_token_does_not_show_where_its_owner_is_signed_in(house, client):
    assert (
        client.get("/api/v1/account/sessions", headers=house.headers("ada", scopes=["account:read"])).status_code == 200
    )
    for facts in ({"scopes": ["datasets:read"]}, {"workspace_id": house.workspace.id}):
        assert client.get("/api/v1/account/sessions", headers=house.headers("ada", **facts)).status_code == 403
