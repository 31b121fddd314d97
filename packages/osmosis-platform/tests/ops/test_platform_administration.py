"""Administrators at the machine: people's rights, settings in the file, limits, prices, accounts; for eyes and programs."""

import io
import json
import socket
import stat

import pytest
from osmosis_platform.cli.main import COMMANDS, main
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.ops.settings_file import names
from osmosis_platform.services import open_services
from osmosis_platform.settings import Settings
from osmosis_platform.usage.metering import record


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name in names():
        monkeypatch.delenv(f"OSMOSIS_PLATFORM_{name.upper()}", raising=False)
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(directory, capsys, monkeypatch):
    def call(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main([*words, "--data-dir", str(directory)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


@pytest.fixture
def lab(run):
    assert run("migrate")[0] == 0
    assert run("user", "add", "ada@example.test", "--no-password")[0] == 0
    assert run("workspace", "add", "lab", "--owner", "ada@example.test")[0] == 0


def open_platform(directory):
    return open_services(Settings(data_dir=directory))


# -- people


def test_a_person_is_made_administrator_and_no_longer(lab, run, directory):
    def is_administrator():
        services = open_platform(directory)
        with services.database.read() as work:
            found = UserRepository(work).by_email("ada@example.test").is_administrator
        services.close()
        return found

    assert run("user", "make-admin", "ADA@example.test")[0] == 0
    assert is_administrator()
    status, _, error = run("user", "revoke-admin", "ada@example.test")
    assert (status, is_administrator()) == (0, False)
    assert "Nobody administers" in error
    assert "NOT_FOUND" in run("user", "make-admin", "bob@example.test")[2]
    run("user", "disable", "ada@example.test")
    status, _, error = run("user", "make-admin", "ada@example.test")
    assert (status, "user enable" in error) == (1, True)


# -- settings


def test_settings_are_set_together_kept_beside_other_lines_and_taken_out_again(run, directory):
    file = directory / "platform.toml"
    file.write_text('# mine\nhost = "127.0.0.1"  # loopback\n\n[later]\nx = 1\n')
    assert run("settings", "set", "token_days", "30", "require_billing", "yes", "s3_prefix", 'a"b\\c')[0] == 0
    text = file.read_text()
    assert text.startswith('# mine\nhost = "127.0.0.1"  # loopback\n')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    read = Settings(data_dir=directory)
    assert (read.token_days, read.require_billing, read.s3_prefix) == (30, True, 'a"b\\c')
    shown = {one["setting"]: one for one in json.loads(run("settings", "show", "--json")[1])}
    assert list(shown) == names()
    assert (shown["token_days"]["value"], shown["token_days"]["from"]) == (30, "platform.toml")
    assert run("settings", "unset", "token_days", "require_billing", "s3_prefix")[0] == 0
    assert file.read_text() == '# mine\nhost = "127.0.0.1"  # loopback\n\n[later]\nx = 1\n'


def test_a_variable_stands_before_the_file_and_it_is_said(run, monkeypatch):
    monkeypatch.setenv("OSMOSIS_PLATFORM_TOKEN_DAYS", "5")
    assert "OSMOSIS_PLATFORM_TOKEN_DAYS" in run("settings", "set", "token_days", "30")[2]
    assert "OSMOSIS_PLATFORM_TOKEN_DAYS" in run("settings", "show", "token_days")[1]


def test_secrets_come_by_standard_input_and_are_never_shown(run, directory):
    status, _, error = run("settings", "set", "metrics_token", "sesame")
    assert (status, "sesame" in error) == (2, False)
    assert not (directory / "platform.toml").exists()
    status, out, _ = run("settings", "set", "metrics_token", "-", stdin="sesame\n")
    assert (status, "sesame" in out) == (0, False)
    assert Settings(data_dir=directory).metrics_token.get_secret_value() == "sesame"
    assert "sesame" not in run("settings", "show")[1] + run("settings", "show", "--json")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["toke_days", "3"], "Did you mean token_days"),
        (["token_days", "0"], "greater than or equal to 1"),
        (["token_days", "soon"], "valid integer"),
        (["tls_cert", "cert.pem"], "belong together"),
        (["blob_store", "s3"], "needs s3_bucket"),
        (["master_key", "-"], "OSMOSIS_MASTER_KEY"),
        (["data_dir", "/elsewhere"], "--data-dir"),
        (["public_url", ""], "cannot be empty"),
        (["token_days"], "Give a value after each name"),
    ],
)
def test_a_setting_that_would_not_start_is_refused_and_nothing_is_changed(run, directory, words, said):
    status, _, error = run("settings", "set", *words)
    assert status in (1, 2)
    assert said in error
    assert not (directory / "platform.toml").exists()


def test_what_others_need_is_not_taken_out_alone(run):
    assert run("settings", "set", "s3_bucket", "b", "blob_store", "s3")[0] == 0
    assert "needs s3_bucket" in run("settings", "unset", "s3_bucket")[2]
    assert run("settings", "unset", "s3_bucket", "blob_store")[0] == 0


@pytest.mark.parametrize("text", ["token_days = \n", "token_days = 3\ntoken_days = 4\n", "\xff"])
def test_a_file_that_is_no_toml_is_named_by_every_command(run, directory, text):
    (directory / "platform.toml").write_bytes(text.encode("latin-1"))
    for words in (["user", "list"], ["settings", "show"], ["settings", "set", "workers", "2"], ["doctor"]):
        status, _, error = run(*words)
        assert (status in (1, 2), "platform.toml" in error, "Traceback" in error) == (True, True, False)
    assert (directory / "platform.toml").read_bytes() == text.encode("latin-1")


def test_a_broken_pair_in_the_file_can_be_mended_by_the_command(run, directory):
    (directory / "platform.toml").write_text('tls_cert = "c.pem"\n')
    assert "belong together" in run("user", "list")[2]
    assert run("settings", "unset", "tls_cert")[0] == 0
    assert run("settings", "show")[0] == 0


def test_a_line_that_spans_others_is_left_to_its_author(run, directory):
    text = 'trusted_proxies = """\n10.0.0.1"""\n'
    (directory / "platform.toml").write_text(text)
    assert "edit it yourself" in run("settings", "set", "trusted_proxies", "10.0.0.2")[2]
    assert (directory / "platform.toml").read_text() == text


def test_the_check_up_names_lines_and_variables_without_effect(run, directory, monkeypatch):
    (directory / "platform.toml").write_text("workrs = 2\n")
    monkeypatch.setenv("OSMOSIS_PLATFORM_WORKRES", "2")
    [found] = [one for one in json.loads(run("doctor", "--json")[1]) if one["what"] == "settings"]
    assert found["state"] == "weak"
    assert "workrs" in found["text"] and "OSMOSIS_PLATFORM_WORKRES" in found["text"]


# -- limits, prices, accounts


def test_limits_hold_for_all_or_for_one(lab, run):
    assert run("quota", "set", "datasets.bytes", "1000")[0] == 0
    assert run("quota", "set", "datasets.bytes", "5", "--workspace", "LAB")[0] == 0

    def limit(*words):
        return {one["name"]: one for one in json.loads(run("quota", "list", "--json", *words)[1])}["datasets.bytes"]

    assert limit()["limit"] == 1000
    assert (limit("--workspace", "lab")["limit"], limit("--workspace", "lab")["set_for"]) == (5, "lab")
    assert run("quota", "unset", "datasets.bytes", "--workspace", "lab")[0] == 0
    assert (limit("--workspace", "lab")["limit"], limit("--workspace", "lab")["set_for"]) == (1000, "all")
    assert "There are: datasets.bytes" in run("quota", "set", "datasets.rows", "5")[2]
    assert "NOT_FOUND" in run("quota", "set", "datasets.bytes", "5", "--workspace", "nowhere")[2]


def test_use_is_priced_from_the_moment_a_price_is_set(lab, run, directory):
    def use(seconds):
        services = open_platform(directory)
        with services.database.write() as work:
            record(work, workspace_id, "job.cpu_seconds", seconds, "s")
        services.close()

    workspace_id = json.loads(run("workspace", "list", "--json")[1])[0]["id"]
    use(10)
    assert json.loads(run("usage", "--json")[1])[0]["cost_usd"] is None
    assert run("price", "set", "job.cpu_seconds", "0.5")[0] == 0
    use(2)
    [row] = json.loads(run("usage", "--json", "--workspace", "lab")[1])
    assert (row["workspace"], row["quantity"], row["records"], row["cost_usd"]) == ("lab", 12.0, 2, 1.0)
    assert json.loads(run("price", "list", "--json")[1]) == [{"kind": "job.cpu_seconds", "usd": 0.5}]
    assert run("price", "unset", "job.cpu_seconds")[0] == 0
    assert json.loads(run("price", "list", "--json")[1]) == []
    for words in (["job", "1"], ["job.cpu_seconds", "nan"], ["job.cpu_seconds", "inf"]):
        assert run("price", "set", *words)[0] == 1
    run("workspace", "delete", "lab", "--confirm", "lab")
    run("workspace", "purge", "lab", "--confirm", "lab")
    assert json.loads(run("usage", "--json")[1])[0]["workspace"] == workspace_id


# -- workspaces


def test_a_workspace_is_deleted_brought_back_and_removed_by_its_name_written_out(lab, run):
    assert "Nothing was changed" in run("workspace", "delete", "lab")[2]
    assert "Nothing was changed" in run("workspace", "delete", "lab", "--confirm", "Lab")[2]
    assert "workspace recover lab" in run("workspace", "delete", "lab", "--confirm", "lab")[1]
    assert json.loads(run("workspace", "list", "--json")[1]) == []
    [gone] = json.loads(run("workspace", "list", "--deleted", "--json")[1])
    assert gone["name"] == "lab"
    assert run("workspace", "add", "lab", "--owner", "ada@example.test")[0] == 0
    assert "NAME_TAKEN" in run("workspace", "recover", gone["id"])[2]
    assert run("workspace", "recover", gone["id"], "--as", "lab-again")[0] == 0
    assert "NOT_FOUND" in run("workspace", "purge", "lab-again", "--confirm", "lab-again")[2]
    run("workspace", "delete", "lab-again", "--confirm", "lab-again")
    assert run("workspace", "purge", "lab-again", "--confirm", "lab-again")[0] == 0
    assert [one["name"] for one in json.loads(run("workspace", "list", "--json")[1])] == ["lab"]


def test_a_name_of_somebody_does_not_break_the_lines_of_a_table(lab, run, directory):
    services = open_platform(directory)
    with services.database.write() as work:
        ada = UserRepository(work).by_email("ada@example.test")
        UserRepository(work).set_name(ada.id, "Ada\n\x1b[31mroot@example.test")
    services.close()
    out = run("user", "list")[1]
    assert len(out.splitlines()) == 2
    assert "\x1b" not in out


# -- what a newcomer does wrong


@pytest.mark.parametrize(
    "url", ["mysql://u:sesame@h/n", "not a url", "postgresql://u:sesame@h:port/n", "postgresql://u:sesame@h", "x://"]
)
@pytest.mark.parametrize("words", [["user", "list"], ["up", "--port", "0"], ["doctor"], ["migrate"]])
def test_a_database_url_that_is_none_is_said_without_its_password(run, monkeypatch, url, words):
    monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", url)
    status, out, error = run(*words)
    assert (status, "postgresql://user:password@host" in error) == (2, True)
    assert "sesame" not in out + error


def test_a_database_that_is_away_is_named_with_the_reason(run, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        monkeypatch.setenv("OSMOSIS_PLATFORM_DATABASE_URL", f"postgresql://u:sesame@127.0.0.1:{port}/n")
        for words in (["user", "list"], ["migrate"], ["up", "--port", "0"], ["doctor"]):
            status, out, error = run(*words)
            said = out + error
            assert (status, f":{port}/n" in said, "refused" in said) == (1, True, True), words
            assert "sesame" not in said and "Traceback" not in said


def test_a_rotation_makes_no_platform(run, directory, capsys):
    directory.rmdir()
    status, _, error = run("keys", "rotate")
    assert (status, "osmosis-platform up" in error) == (1, True)
    assert not directory.exists()


def test_a_directory_that_cannot_be_made_is_said(run, directory, tmp_path):
    directory.rmdir()
    directory.write_text("a file")
    for words in (["migrate"], ["up", "--port", "0"], ["restore", str(tmp_path / "b.tar")]):
        status, _, error = run(*words)
        assert (status, str(directory) in error, "Traceback" in error) == (1, True, False), words


def test_without_a_terminal_a_password_is_asked_for_by_pipe_only(lab, run):
    status, _, error = run("user", "add", "bob@example.test")
    assert (status, "--password-stdin" in error) == (2, True)
    assert run("user", "add", "bob@example.test", "--password-stdin", stdin="a long password\n")[0] == 0
    assert "at least 10" in run("user", "add", "eve@example.test", "--password-stdin", stdin="short\n")[2]


@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_tells_every_command_whole(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert "..." not in said.replace("]...", ""), name
        assert all(len(line) <= int(columns) for line in said.splitlines()), name
