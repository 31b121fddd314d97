"""Passwords and the first account."""

from dataclasses import replace

import pytest
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.errors import ForbiddenError, InvalidRequestError, TooManyRequestsError, UnauthorizedError
from osmosis_platform.identity.accounts import change_password, create_user, disable_user
from osmosis_platform.identity.passwords import hash_password
from osmosis_platform.identity.setup import finish_setup, is_setup_open, open_setup
from osmosis_platform.identity.sign_in import PER_ADDRESS, TOGETHER, sign_in

PASSWORD = "correct horse battery"


@pytest.fixture
def bob(house):
    house.users["bob"] = house.write(
        lambda work: create_user(work, "bob@example.com", password_hash=hash_password(PASSWORD))
    )
    return house


async def attempt(house, password, email="Bob@Example.com ", ip="192.0.2.1"):
    return await sign_in(house.services, email, password, ip=ip, user_agent="Mozilla\x00/5.0")


async def test_the_password_opens_a_session(bob):
    opened = await attempt(bob, PASSWORD)
    assert opened.secret not in repr(opened)
    session = bob.read(lambda work: SessionRepository(work).of_user(bob.users["bob"].id))[0]
    assert (session.id, session.ip, session.user_agent) == (opened.id, "192.0.2.1", "Mozilla/5.0")
    stored = bob.read(lambda work: UserRepository(work).get(bob.users["bob"].id))
    assert stored.password_hash.startswith("$argon2id$") and stored.password_hash not in repr(stored)


async def test_a_wrong_password_and_an_unknown_address_are_told_alike(bob):
    answers = []
    for email, password in (
        ("bob@example.com", "wrong"),
        ("nobody@example.com", PASSWORD),
        ("ada@example.com", PASSWORD),
    ):
        with pytest.raises(UnauthorizedError) as caught:
            await attempt(bob, password, email)
        answers.append((caught.value.error_code, caught.value.message))
    assert len(set(answers)) == 1
    bob.write(lambda work: disable_user(work, None, bob.users["bob"].id))
    with pytest.raises(UnauthorizedError):
        await attempt(bob, PASSWORD)


async def test_attempts_are_counted_before_passwords_are_tried(bob, monkeypatch):
    monkeypatch.setattr("osmosis_platform.identity.passwords.password_matches", lambda *_: False)  # the slow part
    for _ in range(TOGETHER):
        with pytest.raises(UnauthorizedError):
            await attempt(bob, "wrong")
    with pytest.raises(TooManyRequestsError):
        await attempt(bob, "wrong")
    with pytest.raises(UnauthorizedError):
        await attempt(bob, "wrong", ip="192.0.2.2")  # elsewhere it goes on
    for number in range(PER_ADDRESS - TOGETHER - 2):
        with pytest.raises(UnauthorizedError):
            await attempt(bob, "wrong", ip=f"198.51.100.{number}")
    with pytest.raises(TooManyRequestsError):
        await attempt(bob, "wrong", ip="203.0.113.1")
    monkeypatch.undo()
    bob.clock.turn(minutes=15)
    assert await attempt(bob, PASSWORD)


async def test_a_new_password_signs_other_browsers_out(bob):
    here, _there = await attempt(bob, PASSWORD), await attempt(bob, PASSWORD)
    actor = replace(bob.actor("bob"), session_id=here.id)
    bob.write(lambda work: change_password(work, actor, hash_password("another long one")))
    sessions = bob.read(lambda work: SessionRepository(work).of_user(bob.users["bob"].id))
    assert [session.id for session in sessions] == [here.id]
    with pytest.raises(UnauthorizedError):
        await attempt(bob, PASSWORD)


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_a_password_that_is_too_short_or_long_is_refused(password):
    with pytest.raises(InvalidRequestError) as caught:
        hash_password(password)
    assert password not in str(caught.value)


def test_the_setup_link_makes_the_first_account_once(services, database):
    def finish(token, **facts):
        facts = {"email": "ada@example.com", "name": "Ada", "password_hash": "$argon2id$", "workspace": "lab"} | facts
        with database.write() as work:
            return finish_setup(services, work, token, **facts)

    with database.write() as work:
        old, token = open_setup(work), open_setup(work)
    for refused in (old, "", token[:-1], "\ud800"):
        with pytest.raises(ForbiddenError):
            finish(refused)
    with pytest.raises(InvalidRequestError):
        finish(token, workspace="api")
    with database.read() as work:
        assert is_setup_open(work)
    user, workspace = finish(token)
    assert user.is_administrator and workspace.name == "lab"
    with pytest.raises(ForbiddenError):
        finish(token, email="eve@example.com", workspace="eve")
    with database.write() as work:
        assert open_setup(work) is None and not is_setup_open(work)
