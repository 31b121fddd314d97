"""Device logins, as RFC 8628 and the published client have them."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_platform.db.repositories.device_logins import DeviceLoginRepository
from osmosis_platform.errors import MissingError, TooManyRequestsError
from osmosis_platform.identity.accounts import disable_user
from osmosis_platform.identity.device import (
    ALPHABET,
    RedeemedLogin,
    begin_login,
    decide_login,
    find_login,
    new_user_code,
    poll_login,
    read_user_code,
    show_user_code,
)


def begin(client, name="laptop-3"):
    answer = client.post("/api/cli/device/authorize", json={"deviceName": name})
    assert answer.status_code == 200
    return answer.json()


def poll(client, login):
    answer = client.post("/api/cli/device/token", json={"device_code": login["device_code"]})
    return answer.status_code, answer.json().get("error"), answer.json()


async def decide(house, login, approve=True, ip=None):
    found = await find_login(house.services, login["user_code"], ip=ip)
    house.write(lambda work: decide_login(work, house.actor("ada"), found.id, approve=approve))
    return found


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(ALPHABET), min_size=8, max_size=8), st.booleans(), st.sampled_from(["", " ", "-", " - "])
)
def test_a_user_code_is_read_however_it_is_typed(letters, lower, between):
    code = "".join(letters)
    typed = f" {code[:4]}{between}{code[4:]} "
    assert read_user_code(typed.lower() if lower else typed) == code
    assert read_user_code(show_user_code(code)) == code


@settings(max_examples=100)
@given(st.text(max_size=30))
def test_what_is_no_user_code_is_none(text):
    code = read_user_code(text)
    assert code is None or (len(code) == 8 and set(code) <= set(ALPHABET))


def test_user_codes_have_no_letters_that_look_alike_or_make_words():
    assert not set("AEIOUY0123456789") & set(ALPHABET)
    assert len({new_user_code() for _ in range(200)}) == 200


async def test_a_device_waits_is_approved_and_gets_one_token(house, client):
    login = begin(client)
    assert login["verification_uri_complete"] == f"{login['verification_uri']}?code={login['user_code']}"
    assert (login["expires_in"], login["interval"]) == (600, 5)
    assert poll(client, login)[:2] == (400, "authorization_pending")
    found = await decide(house, login)
    assert found.device_name == "laptop-3" and found.ip
    status, _, body = poll(client, login)
    assert status == 200 and body["user"]["email"] == "ada@example.com"
    verified = client.get("/api/cli/verify", headers={"Authorization": f"Bearer {body['token']}"}).json()
    assert (verified["token_id"], verified["expires_at"]) == (body["token_id"], body["expires_at"])
    assert poll(client, login)[:2] == (400, "expired_token")  # a code is used once


async def test_a_denied_device_is_told(house, client):
    login = begin(client)
    await decide(house, login, approve=False)
    assert poll(client, login)[:2] == (400, "access_denied")
    with pytest.raises(MissingError):
        await decide(house, login)


async def test_a_login_is_over_after_ten_minutes(house, client):
    login = begin(client)
    house.clock.turn(minutes=10)
    assert poll(client, login)[:2] == (400, "expired_token")
    with pytest.raises(MissingError):
        await find_login(house.services, login["user_code"])


def test_an_unknown_code_is_told_as_an_old_one(client):
    for code in ("dc_9f", "", "osm_dlc_" + "x" * 50):
        assert poll(client, {"device_code": code})[:2] == (400, "expired_token")


def test_polls_that_come_early_are_slowed_and_never_429(house, client):
    login = begin(client)
    assert poll(client, login)[1] == "authorization_pending"  # the first one at once
    assert [poll(client, login)[1] for _ in range(40)] == ["slow_down"] * 40
    house.clock.turn(seconds=30)  # as long as the client ever waits
    assert poll(client, login)[1] == "authorization_pending"
    house.clock.turn(seconds=10)
    assert poll(client, login)[1] == "slow_down"


def test_polls_in_the_interval_go_on_for_ten_minutes(house, client):
    login = begin(client)
    for _ in range(20):
        assert poll(client, login)[1] == "authorization_pending"
        house.clock.turn(seconds=4.5)  # a little early, as networks have it


async def test_five_wrong_codes_close_the_door_for_a_minute_to_that_place_alone(house, client):
    login = begin(client)
    for _ in range(5):
        with pytest.raises(MissingError):
            await find_login(house.services, "BBBB-BBBB", ip="192.0.2.1")
    with pytest.raises(TooManyRequestsError):
        await find_login(house.services, login["user_code"], ip="192.0.2.1")
    assert await find_login(house.services, login["user_code"], ip="192.0.2.2")
    house.clock.turn(minutes=1)
    assert await find_login(house.services, login["user_code"], ip="192.0.2.1")


async def test_an_approved_login_of_somebody_disabled_meanwhile_gives_nothing(house, client):
    login = begin(client)
    await decide(house, login)
    house.write(lambda work: disable_user(work, None, house.users["ada"].id))
    assert poll(client, login)[:2] == (400, "access_denied")


def test_many_begun_logins_from_one_place_are_refused(client):
    answers = [client.post("/api/cli/device/authorize", json={"deviceName": "x"}).status_code for _ in range(31)]
    assert answers == [200] * 30 + [429]


def test_a_hostile_device_name_is_shown_harmlessly(house):
    login = house.write(lambda work: begin_login(work, "\x1b[31mme\n\u202e" + "x" * 500))
    code = read_user_code(login.user_code)
    name = house.read(lambda work: DeviceLoginRepository(work).by_user_code(code)).device_name
    assert name.isprintable() and len(name) == 100


def test_two_polls_at_once_get_one_token(house):
    login = house.write(lambda work: begin_login(work, "x"))
    code = read_user_code(login.user_code)
    row = house.read(lambda work: DeviceLoginRepository(work).by_user_code(code))
    house.write(lambda work: decide_login(work, house.actor("ada"), row.id, approve=True))
    answers, start = [], threading.Barrier(4)

    def race():
        start.wait()
        answers.append(house.write(lambda work: poll_login(work, login.device_code, token_days=1)))

    threads = [threading.Thread(target=race) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sum(isinstance(answer, RedeemedLogin) for answer in answers) == 1
    assert answers.count("expired_token") == 3
