"""What is sealed opens at its place and nowhere else, on both databases."""

import dataclasses
import itertools

import pytest
import sqlalchemy as sa
from osmosis_platform.db.repositories.data_keys import DataKeyRepository
from osmosis_platform.db.tables.secrets import data_keys, master_keys, secrets
from osmosis_platform.domain.permissions import Role
from osmosis_platform.secrets.keeping import resolve, set_secret
from osmosis_platform.secrets.master_key import MasterKey
from osmosis_platform.secrets.vault import MasterKeyError, Vault
from platform_people import People

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake
PLACE = {"scope": "workspace", "owner": "", "name": "KEY", "version": "1"}


@pytest.fixture
def vault(services):
    services.vault.check(services.database)
    return services.vault


def test_a_value_opens_at_its_place_only(vault, database):
    with database.write() as work:
        sealed = vault.seal(work, "ws_a", b"a value", PLACE)
        assert vault.unseal(work, "ws_a", sealed, PLACE) == b"a value"
        for name, other in {"scope": "user", "owner": "us_b", "name": "KEY2", "version": "2"}.items():
            with pytest.raises(MasterKeyError, match="moved") as caught:
                vault.unseal(work, "ws_a", sealed, PLACE | {name: other})
            assert caught.value.error_code == "UNSEAL_FAILED"
        with pytest.raises(MasterKeyError, match="does not exist"):
            vault.unseal(work, "ws_b", sealed, PLACE)


@ON_SQLITE
def test_a_flipped_bit_anywhere_is_noticed(vault, database):
    def flip(data, at):
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    with database.write() as work:
        sealed = vault.seal(work, "ws_a", b"ab", PLACE)
        assert len(sealed.ciphertext) == 2 + 16
        for field in ("nonce", "ciphertext"):
            data = getattr(sealed, field)
            for at in range(len(data)):
                with pytest.raises(MasterKeyError):
                    vault.unseal(work, "ws_a", dataclasses.replace(sealed, **{field: flip(data, at)}), PLACE)
        for cut in (sealed.ciphertext[:-1], sealed.ciphertext[:3], b""):
            with pytest.raises(MasterKeyError):
                vault.unseal(work, "ws_a", dataclasses.replace(sealed, ciphertext=cut), PLACE)


def test_equal_values_look_different_and_a_workspace_has_one_key(vault, database):
    with database.write() as work:
        one, two = (vault.seal(work, "ws_a", b"same", PLACE) for _ in range(2))
        other = vault.seal(work, "ws_b", b"same", PLACE)
    assert one.data_key_id == two.data_key_id != other.data_key_id
    assert one.nonce != two.nonce
    assert one.ciphertext != two.ciphertext


def test_a_retired_key_still_opens_and_no_longer_seals(vault, database):
    with database.write() as work:
        old = vault.seal(work, "ws_a", b"old", PLACE)
        DataKeyRepository(work).retire("ws_a")
        new = vault.seal(work, "ws_a", b"new", PLACE)
        assert new.data_key_id != old.data_key_id
        assert vault.unseal(work, "ws_a", old, PLACE) == b"old"


def test_rows_that_are_swapped_in_the_database_do_not_open(services, vault, database):
    people = People(services)
    ada, bob = people.make("ada"), people.make("bob", Role.MEMBER)
    with database.write() as work:
        for person, scope, name in [(ada, "workspace", "ONE"), (ada, "workspace", "TWO"), (ada, "user", "ONE"),
                                    (bob, "user", "ONE")]:  # fmt: skip
            set_secret(vault, work, ada.workspace_id, person.actor, scope=scope, name=name, value="v")
        rows = work.execute(sa.select(secrets).order_by(secrets.c.id)).all()
    for mine, theirs in itertools.permutations(rows, 2):
        with database.write() as work:
            where = secrets.c.id == mine.id
            moved = {"ciphertext": theirs.ciphertext, "nonce": theirs.nonce, "data_key_id": theirs.data_key_id}
            work.execute(secrets.update().where(where).values(**moved))
            reader = bob if mine.owner_id == bob.actor.user_id else ada
            provided = {} if mine.scope == "user" else {"ONE": "x"} if mine.name == "TWO" else {}
            if mine.scope == "workspace" and mine.name == "ONE":
                work.execute(secrets.delete().where(secrets.c.scope == "user"))
            with pytest.raises(MasterKeyError):
                resolve(vault, work, ada.workspace_id, reader.actor.user_id, [mine.name], provided)
            work.execute(secrets.delete())
            for row in rows:
                work.execute(secrets.insert().values(**row._asdict()))


def test_an_earlier_version_put_back_does_not_open(services, vault, database):
    ada = People(services).make("ada")
    with database.write() as work:
        set_secret(vault, work, ada.workspace_id, ada.actor, scope="workspace", name="KEY", value="leaked")
        before = work.execute(sa.select(secrets.c.ciphertext, secrets.c.nonce)).one()
        set_secret(vault, work, ada.workspace_id, ada.actor, scope="workspace", name="KEY", value="renewed")
        work.execute(secrets.update().values(ciphertext=before.ciphertext, nonce=before.nonce))
        with pytest.raises(MasterKeyError):
            resolve(vault, work, ada.workspace_id, ada.actor.user_id, ["KEY"])


def test_a_data_key_moved_to_another_workspace_does_not_open(vault, database, services):
    with database.write() as work:
        sealed = vault.seal(work, "ws_a", b"v", PLACE)
        work.execute(data_keys.update().values(workspace_id="ws_b"))
    fresh = Vault(MasterKey(vault._master.key, "the same"))
    with database.write() as work:
        for call in (lambda: fresh.unseal(work, "ws_b", sealed, PLACE), lambda: fresh.seal(work, "ws_b", b"", PLACE)):
            with pytest.raises(MasterKeyError) as caught:
                call()
            assert caught.value.error_code == "UNSEAL_FAILED"


def test_another_master_key_is_refused_and_opens_nothing(vault, database):
    with database.write() as work:
        sealed = vault.seal(work, "ws_a", b"v", PLACE)
    wrong = Vault(MasterKey(bytes(32), "/etc/wrong.key"))
    with pytest.raises(MasterKeyError, match=r"/etc/wrong\.key.*restore") as caught:
        wrong.check(database)
    assert (caught.value.status, caught.value.error_code) == (503, "MASTER_KEY")
    with database.write() as work:
        for call in (lambda: wrong.unseal(work, "ws_a", sealed, PLACE), lambda: wrong.seal(work, "ws_a", b"", PLACE)):
            with pytest.raises(MasterKeyError):
                call()
    vault.check(database)
    with database.read() as work:
        assert work.execute(sa.select(sa.func.count()).select_from(master_keys)).scalar_one() == 1


@ON_SQLITE
def test_derived_keys_differ_by_purpose_and_master_key(vault):
    other = Vault(MasterKey(bytes(32), "other"))
    keys = [vault.derive("object-urls"), vault.derive("cookies"), other.derive("cookies")]
    assert len(set(keys)) == 3
    assert {len(key) for key in keys} == {32}
    assert vault.derive("cookies") == keys[1]


@ON_SQLITE
def test_no_key_is_in_a_repr(vault):
    assert "key=" not in repr(vault._master)
    assert repr(vault._master.key)[2:-1] not in repr(vault._master)


def test_who_seals_first_notes_the_master_key_and_another_is_refused(services, database):
    with database.write() as work:
        sealed = services.vault.seal(work, "ws_a", b"a value", PLACE)
        assert services.vault.unseal(work, "ws_a", sealed, PLACE) == b"a value"
    foreign = Vault(MasterKey(b"f" * 32, "elsewhere"))
    with pytest.raises(MasterKeyError, match="not the one"), database.write() as work:
        foreign.seal(work, "ws_b", b"a value", PLACE)
