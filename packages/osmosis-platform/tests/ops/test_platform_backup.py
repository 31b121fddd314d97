"""What is restored is what was backed up, on the same kind of database and on the other, and nothing damaged is taken."""

import hashlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest
from osmosis_platform.cli.main import main
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.errors import InvalidRequestError, TakenError
from osmosis_platform.events.log import LogLine, append_lines
from osmosis_platform.identity.accounts import create_user, create_workspace
from osmosis_platform.identity.tokens import actor_of
from osmosis_platform.ops.backup import back_up, backed_up_tables, table_lines
from osmosis_platform.ops.first_start import prepare
from osmosis_platform.ops.restore import BackupDamagedError, restore
from osmosis_platform.secrets.keeping import resolve, set_secret
from osmosis_platform.secrets.redacting import OWN
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

_count = itertools.count()
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # the archive is at stake, not the SQL


@pytest.fixture
def platform(services):
    """A platform with a person, a workspace and its repository, a secret, an object and log lines."""
    services.vault.check(services.database)
    with services.database.write() as work:
        user = create_user(work, "ada@example.test", name="Ada", password_hash="$argon2id$")
        workspace = create_workspace(services, work, user, "lab")
        append_lines(work, workspace.id, "ds_1", [LogLine("info", "walk", "a line", {"n": 1})], redactor=OWN)
        set_secret(services.vault, work, workspace.id, actor_of(user), scope="workspace", name="KEY", value="a value")
    services.blobs.put(f"{workspace.id}/datasets/ds_1", [b"rows" * 10_000])
    return services, user, workspace


def empty_services(tmp_path, database_url, master_key):
    directory = tmp_path / f"other-{next(_count)}"
    directory.mkdir(mode=0o700)
    shutil.copy(master_key, directory / "master.key")
    return Services(Settings(data_dir=directory), Database(database_url))


def rows_of(services):
    with services.database.read() as work:
        return {table.name: list(table_lines(work, table)) for table in backed_up_tables()}


def refs_of(services):
    found = {}
    for path in (services.settings.data_dir / "repositories").glob("re_*.git"):
        found[path.name] = subprocess.check_output(["git", "--git-dir", path, "for-each-ref"], text=True)
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_everything_comes_back_on_either_database(platform, tmp_path, postgres, kind):
    services, user, workspace = platform
    backup = tmp_path / "backup.tar"
    facts = back_up(services, backup)
    assert (facts["repositories"], facts["blobs"]) == (1, 1)
    assert backup.stat().st_mode & 0o777 == 0o600
    url = f"sqlite:///{tmp_path / 'other.sqlite3'}"
    if kind == "postgresql":
        url = postgres.create_database(f"restored_{next(_count)}_{services.database.dialect}")
    other = empty_services(tmp_path, url, services.settings.data_dir / "master.key")
    restore(other, backup)
    assert rows_of(other) == rows_of(services)
    assert refs_of(other) == refs_of(services)
    assert b"".join(other.blobs.open(f"{workspace.id}/datasets/ds_1")) == b"rows" * 10_000
    with other.database.read() as work:
        assert resolve(other.vault, work, workspace.id, user.id, ["KEY"]).values == {"KEY": "a value"}
    other.close()


def test_no_secret_and_no_key_is_in_a_backup(platform, tmp_path):
    services = platform[0]
    back_up(services, tmp_path / "backup.tar")
    data = (tmp_path / "backup.tar").read_bytes()
    assert b"a value" not in data
    assert (services.settings.data_dir / "master.key").read_bytes().strip() not in data


def test_a_backup_never_replaces_a_file(platform, tmp_path):
    (tmp_path / "backup.tar").write_text("older")
    with pytest.raises(TakenError, match="exists"):
        back_up(platform[0], tmp_path / "backup.tar")
    assert (tmp_path / "backup.tar").read_text() == "older"


def test_a_platform_that_is_in_use_is_not_restored_over(platform, tmp_path):
    back_up(platform[0], tmp_path / "backup.tar")
    with pytest.raises(TakenError, match="in use"):
        restore(platform[0], tmp_path / "backup.tar")


@pytest.mark.parametrize("damage", ["cut", "byte", "member", "device", "empty"])
def test_a_damaged_backup_changes_nothing(platform, tmp_path, damage):
    services = platform[0]
    backup = tmp_path / "backup.tar"
    back_up(services, backup)
    data = bytearray(backup.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "byte":
        data[data.index(b"rowsrows") + 5] ^= 1
    elif damage == "empty":
        data = bytearray()
    backup.write_bytes(data)
    if damage in ("member", "device"):
        with tarfile.open(backup, "a") as archive:
            entry = tarfile.TarInfo("../outside")
            if damage == "device":
                entry.type = tarfile.SYMTYPE
                entry.linkname = "/etc/passwd"
            archive.addfile(entry, io.BytesIO())
    other = empty_services(
        tmp_path, f"sqlite:///{tmp_path / 'other.sqlite3'}", services.settings.data_dir / "master.key"
    )
    with pytest.raises(BackupDamagedError):
        restore(other, backup)
    assert schema.current(other.database) is None
    assert not (other.settings.data_dir / "repositories").exists()
    other.close()


def test_another_master_key_is_refused_before_anything_is_written(platform, tmp_path):
    services = platform[0]
    back_up(services, tmp_path / "backup.tar")
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    other = Services(Settings(data_dir=directory), Database(f"sqlite:///{tmp_path / 'other.sqlite3'}"))
    with pytest.raises(InvalidRequestError, match="master key"):
        restore(other, tmp_path / "backup.tar")
    assert schema.current(other.database) is None
    other.close()


def bare_services(tmp_path):
    """A place to restore to, without a key."""
    directory = tmp_path / f"bare-{next(_count)}"
    directory.mkdir(mode=0o700)
    return Services(Settings(data_dir=directory), Database(f"sqlite:///{directory / 'platform.sqlite3'}"))


def is_untouched(services):
    rows = schema.current(services.database) is not None and any(rows_of(services).values())
    return not rows and {path.name for path in services.settings.data_dir.iterdir()} <= {
        "objects", "staging", "platform.sqlite3", "platform.sqlite3-wal", "platform.sqlite3-shm",
    }  # fmt: skip


@ON_SQLITE
@pytest.mark.parametrize("passphrase", [None, b"correct horse battery"])
def test_a_backup_may_carry_its_key(platform, tmp_path, passphrase):
    services, user, workspace = platform
    back_up(services, tmp_path / "backup.tar", with_key=True, passphrase=passphrase)
    key = (services.settings.data_dir / "master.key").read_bytes()
    assert (key.strip() in (tmp_path / "backup.tar").read_bytes()) == (passphrase is None)
    other = bare_services(tmp_path)
    if passphrase is not None:
        for wrong in (None, b"another passphrase"):
            with pytest.raises(InvalidRequestError, match="passphrase") as caught:
                restore(other, tmp_path / "backup.tar", passphrase=wrong)
            assert caught.value.error_code == "PASSPHRASE"
            assert is_untouched(other)
    restore(other, tmp_path / "backup.tar", passphrase=passphrase)
    assert (other.settings.data_dir / "master.key").read_bytes() == key
    assert (other.settings.data_dir / "master.key").stat().st_mode & 0o777 == 0o600
    with other.database.read() as work:
        assert resolve(other.vault, work, workspace.id, user.id, ["KEY"]).values == {"KEY": "a value"}
    other.close()


@ON_SQLITE
def test_without_any_key_none_is_made_up(platform, tmp_path):
    back_up(platform[0], tmp_path / "backup.tar")
    other = bare_services(tmp_path)
    with pytest.raises(InvalidRequestError, match="is not in it"):
        restore(other, tmp_path / "backup.tar")
    assert is_untouched(other)
    other.close()


def rewritten(backup, target, change):
    """A backup that whoever means harm made of another: every digest is right."""
    files = {}
    with tarfile.open(backup) as archive:
        for member in archive:
            files[member.name] = archive.extractfile(member).read()
    manifest = json.loads(files.pop("manifest.json"))
    members = change(files, manifest) or [(tarfile.TarInfo(name), data) for name, data in files.items()]
    with tarfile.open(target, "w") as archive:
        for entry, data in members:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        manifest["files"] = {
            entry.name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for entry, data in members
        }
        if manifest.pop("break", None):
            manifest["files"] = []
        entry, data = tarfile.TarInfo("manifest.json"), json.dumps(manifest).encode()
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def with_file(name, data):
    return lambda files, manifest: files.update({name: data})


def with_row(table, **values):
    def change(files, manifest):
        name = f"tables/{table}.ndjson"
        row = json.loads(files[name].splitlines()[0]) | values
        files[name] = json.dumps(row).encode() + b"\n"

    return change


HOSTILE = {
    "a name outside": with_file("../outside", b"x"),
    "an object outside": with_file("blobs/../../outside", b"x"),
    "a repository outside": with_file("repositories/../x.bundle", b"x"),
    "an unknown table": with_file("tables/sqlite_master.ndjson", b"{}\n"),
    "a bundle that is none": with_file(f"repositories/re_{'0' * 26}.bundle", b"no bundle"),
    "a line that is no row": with_file("tables/users.ndjson", b"[1]\n"),
    "a line that is no JSON": with_file("tables/users.ndjson", b"{\n"),
    "a row of nothing": with_file("tables/users.ndjson", b"{}\n"),
    "a time that is none": with_row("users", created_at="soon"),
    "bytes that are none": with_row("secrets", nonce="*"),
    "a person who is not there": with_row("memberships", user_id="us_nobody"),
    "a column that is not there": with_row("users", is_god=True),
    "a deep value": with_file("tables/users.ndjson", b"[" * 100_000 + b"\n"),
    "a missing table": lambda files, manifest: files.pop("tables/users.ndjson") and None,
    "no list of files": lambda files, manifest: manifest.update({"break": True}),
    "no key id": lambda files, manifest: manifest.update(master_key_id=None),
    "another schema": lambda files, manifest: manifest.update(schema="9" * 1000),
    "a name twice": lambda files, manifest: [(tarfile.TarInfo("tables/users.ndjson"), b"")] * 2,
    "a parcel that is none": with_file("master-key.json", b"[]"),
    "a parcel at any price": with_file(
        "master-key.json", json.dumps({"form": "scrypt-aes256gcm", "n": 1 << 40, "r": 8, "p": 1}).encode()
    ),
    "a parcel of another key": with_file(
        "master-key.json", json.dumps({"form": "plain", "id": "x", "key": "A" * 43 + "="}).encode()
    ),
}


@ON_SQLITE
def test_a_backup_made_to_harm_is_refused_and_changes_nothing(platform, tmp_path):
    back_up(platform[0], tmp_path / "backup.tar", with_key=True)
    for name, change in HOSTILE.items():
        rewritten(tmp_path / "backup.tar", tmp_path / "hostile.tar", change)
        other = bare_services(tmp_path)
        with pytest.raises(InvalidRequestError) as caught:
            restore(other, tmp_path / "hostile.tar")
        assert caught.value.error_code == "BACKUP_DAMAGED", name
        assert is_untouched(other), name
        other.close()
    assert not (tmp_path / "outside").exists()


def test_a_compressed_or_sparse_file_is_no_backup(tmp_path):
    other = bare_services(tmp_path)
    with tarfile.open(tmp_path / "bomb.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("manifest.json"), io.BytesIO())
    sparse = tarfile.TarInfo("blobs/ws/datasets/huge")
    sparse.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(1 << 60), "GNU.sparse.map": "0,0"}
    with tarfile.open(tmp_path / "sparse.tar", "w") as archive:
        archive.addfile(sparse, io.BytesIO())
    for name in ("bomb.tar", "sparse.tar"):
        with pytest.raises(BackupDamagedError):
            restore(other, tmp_path / name)
    for name in ("none.tar", "."):
        with pytest.raises(InvalidRequestError) as caught:
            restore(other, tmp_path / name)
        assert caught.value.error_code == "BACKUP"
    other.close()


@ON_SQLITE
def test_a_killed_restore_starts_nothing_and_is_run_again(platform, tmp_path):
    back_up(platform[0], tmp_path / "backup.tar", with_key=True)
    directory = tmp_path / "killed"
    where = ["--data-dir", str(directory)]
    command = [sys.executable, "-m", "osmosis_platform.cli.main", "restore", str(tmp_path / "backup.tar"), *where]
    environment = os.environ | {"OSMOSIS_CRASH_AT": "restore.before-commit"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    with pytest.raises(TakenError, match="interrupted"):
        prepare(Settings(data_dir=directory), None)
    assert subprocess.run(command, check=False).returncode == 0
    prepare(Settings(data_dir=directory), None)
    other = Services(Settings(data_dir=directory), Database(f"sqlite:///{directory / 'platform.sqlite3'}"))
    assert refs_of(other) == refs_of(platform[0])
    other.close()


@ON_SQLITE
def test_the_command_says_loudly_that_a_backup_opens_every_secret(platform, tmp_path, capsys, monkeypatch):
    services = platform[0]
    monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", services.database.url.render_as_string(hide_password=False))
    where = ("--data-dir", services.settings.data_dir)
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "phrase").write_text("correct horse battery\n")
    assert "not in it" in run(capsys, "backup", tmp_path / "a.tar", *where)[1]
    assert "WARNING" in run(capsys, "backup", tmp_path / "b.tar", "--include-plain-key", *where)[2]
    assert (
        "12 characters"
        in run(capsys, "backup", tmp_path / "c.tar", "--key-passphrase-file", tmp_path / "short", *where)[2]
    )
    both = ("--key-passphrase-file", tmp_path / "phrase", "--include-plain-key")
    assert run(capsys, "backup", tmp_path / "c.tar", *both, *where)[0] == 2
    assert "encrypted" in run(capsys, "backup", tmp_path / "d.tar", *both[:2], *where)[1]
    monkeypatch.delenv("OSMOSIS_PLATFORM_DATABASE_URL")
    other = ("--data-dir", tmp_path / "restored")
    assert "--key-passphrase-file" in run(capsys, "restore", tmp_path / "d.tar", *other)[2]
    assert run(capsys, "restore", tmp_path / "d.tar", *both[:2], *other)[0] == 0


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_commands_of_an_administrator(tmp_path, capsys):
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    where = ("--data-dir", directory)
    assert run(capsys, "migrate", *where)[1].startswith("The database went from empty")
    assert run(capsys, "user", "add", "Ada@example.test", "--no-password", "--administrator", *where)[0] == 0
    status, _, error = run(capsys, "user", "add", "ada@example.test", "--no-password", *where)
    assert (status, "already" in error) == (1, True)
    assert run(capsys, "workspace", "add", "lab", "--owner", "ada@example.test", *where)[0] == 0
    assert run(capsys, "user", "add", "bob@example.test", "--no-password", *where)[0] == 0
    assert run(capsys, "workspace", "add-member", "lab", "bob@example.test", "--role", "viewer", *where)[0] == 0
    listed = run(capsys, "workspace", "members", "lab", *where)[1]
    assert [line.split()[2] for line in listed.splitlines()[1:]] == ["owner", "viewer"]
    status, _, error = run(capsys, "workspace", "add-member", "lab", "ada@example.test", "--role", "viewer", *where)
    assert (status, "LAST_OWNER" in error) == (1, True)
    secret = run(capsys, "token", "create", "bob@example.test", "--scope", "datasets:read", "--days", "3", *where)
    assert secret[0] == 0, secret
    token_id = run(capsys, "token", "list", "bob@example.test", *where)[1].splitlines()[1].split()[0]
    assert run(capsys, "token", "revoke", "bob@example.test", token_id, *where)[0] == 0
    assert run(capsys, "token", "revoke", "bob@example.test", token_id, *where)[0] == 1
    assert run(capsys, "user", "disable", "bob@example.test", *where)[0] == 0
    assert "disabled" in run(capsys, "user", "list", *where)[1]
    before = (directory / "master.key").read_text()
    assert run(capsys, "keys", "rotate", *where)[0] == 0
    assert (directory / "master.key").read_text() != before
    assert run(capsys, "doctor", *where)[0] == 0
    status, out, _ = run(capsys, "backup", tmp_path / "b.tar", *where)
    assert (status, "repositories: 1" in out) == (0, True)
    with tarfile.open(tmp_path / "b.tar") as archive:
        manifest = archive.extractfile("manifest.json")
        assert json.load(manifest)["repositories"] == 1
    assert run(capsys, "restore", tmp_path / "b.tar", *where)[0] == 1
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(directory / "master.key", other)
    assert run(capsys, "restore", tmp_path / "b.tar", "--data-dir", other)[0] == 0
    assert run(capsys, "workspace", "list", "--data-dir", other)[1] == run(capsys, "workspace", "list", *where)[1]
    assert run(capsys, "user", "list", "--data-dir", tmp_path / "nowhere")[0] == 1
