"""An administrator sees whether the audit log is as it was written: tampering in the database, and cut ends by an export."""

import json

import pytest
import sqlalchemy as sa
from osmosis_platform.cli.main import main
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.tables.audit import audit_entries
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.ops.audit_check import check_chains, check_export
from platform_people import People


@pytest.fixture
def ada(services):
    services.vault.check(services.database)
    ada = People(services).make("ada")
    for number in range(4):
        record(services, ada.workspace_id, number)
        record(services, None, number)
    return ada


def record(services, workspace_id, number):
    with services.database.write() as work:
        AuditRepository(work).record(workspace_id, None, "thing.change", "thing", "th_1", {"number": number})


def exported(ada, tmp_path):
    path = tmp_path / "audit.ndjson"
    path.write_bytes(ada.http.get(
        "/api/v1/workspaces/lab/audit.ndjson", headers={"Authorization": f"Bearer {ada.token}"}
    ).content)  # fmt: skip
    return path


def tamper(services, statement):
    with services.database.write() as work:
        work.execute(statement)


def states(services):
    return {one.workspace or one.chain: one.broken_at for one in check_chains(services.database)}


def of_lab(ada, seq):
    return (audit_entries.c.chain == ada.workspace_id) & (audit_entries.c.seq == seq)


def test_chains_that_nobody_touched_are_whole(services, ada):
    assert states(services) == {"lab": None, "platform": None}


def test_a_changed_entry_shows_in_its_chain_only(services, ada):
    tamper(services, audit_entries.update().where(of_lab(ada, 2)).values(actor_id="us_somebody"))
    assert states(services) == {"lab": 2, "platform": None}


def test_an_entry_that_was_taken_out_shows(services, ada):
    tamper(services, audit_entries.delete().where(of_lab(ada, 3)))
    assert states(services)["lab"] == 3


def test_an_export_shows_entries_that_were_cut_off_the_end(services, ada, tmp_path):
    path = exported(ada, tmp_path)
    assert check_export(services.database, path).broken_at is None
    record(services, ada.workspace_id, 5)  # what came later is no fault
    assert check_export(services.database, path).broken_at is None
    tamper(services, audit_entries.delete().where(audit_entries.c.chain == ada.workspace_id, audit_entries.c.seq > 3))
    assert states(services)["lab"] is None  # a chain alone cannot tell
    assert check_export(services.database, path).broken_at == 4


def test_an_export_shows_a_chain_that_was_written_anew(services, ada, tmp_path):
    path = exported(ada, tmp_path)
    tamper(services, audit_entries.delete().where(audit_entries.c.chain == ada.workspace_id))
    for number in (7, 8, 9, 10):
        record(services, ada.workspace_id, number)
    assert states(services)["lab"] is None
    assert check_export(services.database, path).broken_at == 1


def test_a_changed_export_shows(services, ada, tmp_path):
    path = exported(ada, tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["details"] = {"number": 99}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert check_export(services.database, path).broken_at == 2


@pytest.mark.parametrize("data", [b"", b"nothing\n", b"{}\n", b'{"seq": 1, "at": 3}\n', b"\x1f\x8b\xff\n"])
def test_a_file_that_is_no_export_is_refused(services, ada, tmp_path, data):
    path = tmp_path / "audit.ndjson"
    path.write_bytes(data)
    with pytest.raises(InvalidRequestError) as caught:
        check_export(services.database, path)
    assert caught.value.error_code == "AUDIT_EXPORT"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_command_says_what_is_wrong_and_exits_with_it(services, ada, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", str(services.database.url))
    data_dir = ["--data-dir", str(services.settings.data_dir)]
    path = exported(ada, tmp_path)
    assert main(["audit", "verify", *data_dir]) == 0
    assert main(["audit", "verify", str(path), *data_dir]) == 0
    capsys.readouterr()
    tamper(services, sa.update(audit_entries).where(of_lab(ada, 2)).values(action="nothing.happened"))
    assert main(["audit", "verify", "--json", *data_dir]) == 1
    told = capsys.readouterr()
    assert {one["of"]: one["state"] for one in json.loads(told.out)} == {"lab": "broken at 2", "platform": "ok"}
    assert "lab from entry 2" in told.err
