"""Both clients from nothing to a clone: they log in, Git gets that login, in every shell, on every machine, and over TLS."""

import json

import pytest
from client_machine import ROWS, Machine, both_clients, platforms_of
from osmosis_cli import OSMOSIS, environment


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    with platforms_of(tmp_path_factory.mktemp) as start:
        yield start


@pytest.fixture
def client(setup):
    return setup[1]


@pytest.fixture
def platform(setup, platforms):
    return platforms(setup[0])


@pytest.fixture
def machine(client, platform, tmp_path):
    machine = Machine(client, platform, tmp_path)
    machine.make_clone()
    return machine


@pytest.mark.parametrize("setup", both_clients("sqlite-files"))
def test_the_wizard_logs_in_and_its_clone_works_in_every_shell(client, platform, tmp_path):
    """Ours needs the platform's URL alone; the published client what `client-env` prints. Neither has a token before."""
    is_ours = client == OSMOSIS
    env = {"OSMOSIS_PLATFORM_URL": platform.url} if is_ours else platform.environ(with_token=False)
    machine = Machine(client, platform, tmp_path, env)
    machine.take_wizard()
    assert (machine.clone / "rollouts/lookup-local-loop/main.py").is_file()
    [workspace] = platform.get("/api/cli/workspaces")["workspaces"]
    assert platform.get("/api/cli/quickstart", organizationId=workspace["id"])["completed"] is True
    stored = json.loads((tmp_path / ".config/osmosis/credentials.json").read_text())["platforms"][platform.url]
    assert stored["access_token"] not in (machine.clone / ".git/config").read_text()

    if not is_ours:
        platform.administer("client-env", "--clone", str(machine.clone))
        platform.administer("client-env", "--clone", str(machine.clone))  # again changes nothing
    machine.env = {**environment(tmp_path), "OSMOSIS_PLATFORM_URL": platform.url}  # a new shell
    assert machine.run("auth", "whoami")["data"]["workspace"]["name"] == platform.workspace
    branch = machine.push_a_rollout()
    machine.git("fetch", "-q", "origin", branch)
    assert machine.run("rollout", "list", "--branch", branch)["items"]


@pytest.mark.parametrize("setup", both_clients("tls")[1:])
def test_the_lines_for_another_machine_need_nothing_of_ours_there(client, platform, tmp_path):
    """Here over TLS, with a certificate that nobody trusts before."""
    certificate = platform.data_dir.parent / "cert.pem"
    env = platform.environ("--portable", "--ca-file", str(certificate), with_token=False)
    assert ".venv" not in json.dumps(env)
    machine = Machine(client, platform, tmp_path, env)
    machine.take_wizard()
    branch = machine.push_a_rollout()
    assert machine.run("rollout", "list", "--branch", branch)["items"]


@pytest.mark.parametrize("setup", both_clients("tls"))
def test_over_tls_a_certificate_of_ones_own_is_trusted_and_checked(machine):
    assert machine.platform.url.startswith("https://")
    assert machine.run("auth", "whoami")["data"]["workspace"]["role"] == "owner"
    branch = machine.push_a_rollout()
    assert machine.run("rollout", "list", "--branch", branch)["items"]
    file = machine.clone / "data/tls.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS * 10))
    machine.run("dataset", "upload", str(file), "--yes", "--overwrite")
    machine.platform.settle()
    machine.run("dataset", "download", "tls", "-o", str(machine.home / "back.jsonl"))
    assert (machine.home / "back.jsonl").read_bytes() == file.read_bytes()
    for index in range(int(machine.env["GIT_CONFIG_COUNT"])):
        if machine.env[f"GIT_CONFIG_KEY_{index}"].endswith(".proxySSLCAInfo"):
            machine.env[f"GIT_CONFIG_VALUE_{index}"] = "/dev/null"
    with pytest.raises(AssertionError, match="certificate"):
        machine.git("fetch")
