"""The master key is made once, refused when wrong, and replaced so that a kill at any moment loses nothing."""

import base64
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest
import sqlalchemy as sa
from osmosis_platform.cli.main import main
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.tables.secrets import data_keys, master_keys
from osmosis_platform.ops.first_start import prepare
from osmosis_platform.ops.instance import Instance
from osmosis_platform.ops.rotation import rotate_master_key
from osmosis_platform.secrets.keeping import resolve, set_secret
from osmosis_platform.secrets.master_key import MasterKey, MasterKeyError, encode, load_master_key, write_key
from osmosis_platform.secrets.vault import Vault
from osmosis_platform.services import open_services
from osmosis_platform.settings import Settings
from platform_people import People

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake
PYTHON = [sys.executable, "-c"]


def settings_of(directory, url=None, **facts):
    return Settings(data_dir=directory, database_url=url, **facts)


def key_text(byte=1):
    return encode(bytes([byte]) * 32)


# -- where it comes from


def test_it_is_made_on_the_first_start_for_its_owner_alone(tmp_path):
    first = load_master_key(settings_of(tmp_path))
    file = tmp_path / "master.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert base64.b64decode(file.read_text()) == first.key
    assert load_master_key(settings_of(tmp_path)) == first
    assert [path.name for path in tmp_path.iterdir()] == ["master.key"]


def test_what_a_killed_start_left_is_not_in_the_way(tmp_path):
    """In a container every start has the same process id."""
    (tmp_path / f".master.key.{os.getpid()}.tmp").write_text("half")
    assert len(load_master_key(settings_of(tmp_path)).key) == 32


def test_a_key_file_that_exists_is_never_replaced(tmp_path):
    write_key(tmp_path / "k", bytes(32))
    with pytest.raises(FileExistsError):
        write_key(tmp_path / "k", bytes([1] * 32))
    assert base64.b64decode((tmp_path / "k").read_text()) == bytes(32)
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def test_a_variable_wins_over_a_file_and_no_file_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("OSMOSIS_MASTER_KEY", key_text(7))
    monkeypatch.setenv("OSMOSIS_MASTER_KEY_FILE", str(tmp_path / "none"))
    assert load_master_key(settings_of(tmp_path)) == MasterKey(bytes([7] * 32), "OSMOSIS_MASTER_KEY")
    assert list(tmp_path.iterdir()) == []


def test_a_named_file_that_is_missing_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("OSMOSIS_MASTER_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(MasterKeyError, match=r"none does not exist\. Restore it"):
        load_master_key(settings_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "short", encode(bytes(31)), encode(bytes(33)), "=" * 44, "\u00e9" * 44, "a" * 5000]
)
def test_a_malformed_key_is_refused_without_being_shown(tmp_path, text):
    (tmp_path / "master.key").write_text(text, encoding="utf-8")
    with pytest.raises(MasterKeyError, match=r"master\.key") as caught:
        load_master_key(settings_of(tmp_path))
    assert len(text) < 3 or text not in str(caught.value)


def test_processes_that_start_together_agree_on_one_key(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from osmosis_platform.secrets.master_key import load_master_key\n"
        "from osmosis_platform.settings import Settings\n"
        "settings = Settings(data_dir=pathlib.Path(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(load_master_key(settings).id)\n"
    )
    started = [
        subprocess.Popen([*PYTHON, code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    ids = {process.communicate(timeout=30)[0].strip() for process in started}
    assert ids == {load_master_key(settings_of(tmp_path)).id}
    assert [path.name for path in tmp_path.iterdir()] == ["master.key"]


def test_of_two_keys_that_come_first_together_one_counts(database):
    """Two machines with a key each on one new database: the second is refused, and the first goes on."""
    vaults = [Vault(MasterKey(bytes([number]) * 32, f"key {number}")) for number in (1, 2)]
    barrier, refused = threading.Barrier(2), []

    def start(vault):
        barrier.wait()
        try:
            vault.check(database)
        except MasterKeyError:
            refused.append(vault)

    for _ in range(4):
        threads = [threading.Thread(target=start, args=(vault,)) for vault in vaults]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        with database.write() as work:
            assert work.execute(sa.select(sa.func.count()).select_from(master_keys)).scalar_one() == 1
            work.execute(master_keys.delete())
        refused.clear()


# -- replacing it


@pytest.fixture
def platform(tmp_path, database_url):
    """Settings of a stopped platform that holds a secret, and who it belongs to."""
    settings = settings_of(tmp_path / "data", database_url.replace("postgresql+psycopg:", "postgresql:"))
    prepare(settings, None)
    services = open_services(settings)
    ada = People(services).make("ada")
    with services.database.write() as work:
        set_secret(services.vault, work, ada.workspace_id, ada.actor, scope="user", name="KEY", value="a value")
    services.close()
    return settings, ada


def value_of(settings, ada):
    services = open_services(settings)
    try:
        services.vault.check(services.database)
        with services.database.read() as work:
            return resolve(services.vault, work, ada.workspace_id, ada.actor.user_id, ["KEY"]).values["KEY"]
    finally:
        services.close()


def killed_rotation(settings, place):
    code = (
        "import sys, pathlib\n"
        "from osmosis_platform.ops.rotation import rotate_master_key\n"
        "from osmosis_platform.settings import Settings\n"
        "rotate_master_key(Settings(data_dir=pathlib.Path(sys.argv[1])))\n"
    )
    env = os.environ | {"OSMOSIS_CRASH_AT": place}
    env["OSMOSIS_PLATFORM_DATABASE_URL"] = settings.database_url.get_secret_value()
    done = subprocess.run([*PYTHON, code, settings.data_dir], env=env, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def test_values_stay_readable_and_the_old_key_opens_nothing(platform):
    settings, ada = platform
    old = load_master_key(settings)
    count, path = rotate_master_key(settings)
    new = load_master_key(settings)
    assert (count, path) == (1, settings.data_dir / "master.key")
    assert new.id != old.id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert value_of(settings, ada) == "a value"
    services = open_services(settings)
    with pytest.raises(MasterKeyError):
        Vault(old).check(services.database)
    with services.database.read() as work:
        assert set(work.execute(sa.select(data_keys.c.master_key_id)).scalars()) == {new.id}
        rows = work.execute(sa.select(master_keys.c.id, master_keys.c.retired_at)).all()
        assert {row.id for row in rows if row.retired_at is None} == {new.id}
        [entry, *_] = AuditRepository(work).page(None)
    services.close()
    assert (entry.action, entry.resource_id) == ("keys.rotate", new.id)
    assert encode(new.key) not in str(entry)


@pytest.mark.parametrize(
    ("place", "then"), [("keys.after-file", "start"), ("keys.after-rows", "start"), ("keys.after-rows", "rotate")]
)
def test_a_killed_rotation_is_finished(platform, place, then):
    settings, ada = platform
    old = load_master_key(settings)
    killed_rotation(settings, place)
    if then == "start":
        prepare(settings, None)
        assert (load_master_key(settings).id == old.id) == (place == "keys.after-file")
    else:
        rotate_master_key(settings)
        assert load_master_key(settings).id != old.id
    assert not (settings.data_dir / "master.key.next").exists()
    assert value_of(settings, ada) == "a value"


@pytest.mark.parametrize("place", ["keys.after-file", "keys.after-rows"])
def test_commands_of_administrators_work_beside_a_killed_rotation(platform, place, tmp_path, monkeypatch, capsys):
    settings, ada = platform
    killed_rotation(settings, place)
    files = sorted(path.name for path in settings.data_dir.glob("master.key*"))
    monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", settings.database_url.get_secret_value())
    for words in (
        ["user", "list"],
        ["workspace", "list"],
        ["workspace", "add", "later", "--owner", "ada@example.test"],
        ["token", "create", "ada@example.test"],
        ["doctor"],
        ["backup", str(tmp_path / "b.tar")],
    ):
        status = main([*words, "--data-dir", str(settings.data_dir)])
        said = capsys.readouterr()
        assert status == 0, (words, said)
    in_use = "master.key.next" if place == "keys.after-rows" else "master.key"
    assert f"keep a copy of {settings.data_dir / in_use}" in said.out
    assert value_of(settings, ada) == "a value"
    assert (
        sorted(path.name for path in settings.data_dir.glob("master.key*")) == files
    )  # nobody finishes it but its owner
    prepare(settings, None)
    assert value_of(settings, ada) == "a value"
    assert not (settings.data_dir / "master.key.next").exists()


@ON_SQLITE
def test_a_key_read_just_before_a_rotation_ended_is_read_again(platform):
    settings, _ada = platform
    services = open_services(settings)
    assert services.vault.master_key_id == load_master_key(settings).id
    rotate_master_key(settings)
    services.vault.check(services.database)
    assert services.vault.master_key_id == load_master_key(settings).id
    services.close()


@ON_SQLITE
def test_a_rotation_under_a_running_platform_is_refused(platform, capsys):
    settings, _ada = platform
    before = (settings.data_dir / "master.key").read_text()
    instance = Instance(settings)
    instance.acquire()
    try:
        assert main(["keys", "rotate", "--data-dir", str(settings.data_dir)]) == 1
    finally:
        instance.release()
    assert "already runs" in capsys.readouterr().err
    assert (settings.data_dir / "master.key").read_text() == before


@ON_SQLITE
def test_a_new_key_file_that_exists_is_refused(platform, tmp_path, monkeypatch, capsys):
    settings, ada = platform
    (tmp_path / "taken").write_text("mine")
    monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", settings.database_url.get_secret_value())
    arguments = ["keys", "rotate", "--new-key-file", str(tmp_path / "taken"), "--data-dir", str(settings.data_dir)]
    assert main(arguments) == 1
    assert "Nothing was changed" in capsys.readouterr().err
    arguments[3] = str(tmp_path / "no" / "such" / "directory")
    assert main(arguments) == 1
    assert "Nothing was changed" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"
    assert value_of(settings, ada) == "a value"


@ON_SQLITE
def test_a_key_of_a_variable_is_replaced_through_a_new_file(platform, tmp_path):
    settings, ada = platform
    url = settings.database_url.get_secret_value()
    variable = (settings.data_dir / "master.key").read_text()
    by_variable = settings_of(settings.data_dir, url, OSMOSIS_MASTER_KEY=variable)
    with pytest.raises(Exception, match="--new-key-file"):
        rotate_master_key(by_variable)
    rotate_master_key(by_variable, tmp_path / "new")
    now = settings_of(settings.data_dir, url, OSMOSIS_MASTER_KEY=(tmp_path / "new").read_text())
    assert value_of(now, ada) == "a value"
    with pytest.raises(MasterKeyError):
        value_of(by_variable, ada)
