import json
import subprocess

import pytest
from osmosis_ai.cli.agent_prompt import agent_prompt
from osmosis_ai.cli.cloning import clone_urls
from osmosis_ai.cli.tree import TREE
from osmosis_ai.client.workspaces import is_clone_of
from osmosis_ai.errors import PlatformError
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

LAB = {"id": "ws_1", "name": "lab", "connected_repo": {"repo_full_name": "Acme/Demo-Repo"}}
OTHER = {"id": "ws_2", "name": "other", "connected_repo": None}
READY = {"repo": {"connected": True, "full_name": "Acme/Demo-Repo"}, "billing_ready": True, "completed": False}
ADA = {"user": {"id": "u1", "email": "ada@example.com", "name": "Ada"}, "expires_at": "2099-01-01T00:00:00Z"}


@pytest.fixture
def stub():
    routes = {
        "GET /api/cli/verify": ADA,
        "GET /api/cli/workspaces": {"workspaces": [LAB]},
        "GET /api/cli/quickstart": READY,
        "POST /api/cli/quickstart": {"completed": True},
    }
    with StubApi(routes) as serving:
        yield serving


@pytest.fixture
def here(tmp_path, stub):
    """Logged in; git finds the repository of GitHub's address in a folder of this test."""
    origin = tmp_path / "origin"
    subprocess.run(["git", "init", "-q", "-b", "main", str(origin)], check=True)
    author = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "-C", str(origin), *author, "commit", "-q", "--allow-empty", "-m", "c"], check=True)
    (tmp_path / "gitconfig").write_text(f'[url "{origin}"]\n\tinsteadOf = https://github.com/Acme/Demo-Repo.git\n')
    (tmp_path / "empty").mkdir()
    return environment(tmp_path, GIT_CONFIG_GLOBAL=str(tmp_path / "gitconfig"), **stub.environment())


def test_a_first_run_clones_and_ends_with_a_text_for_an_agent(tmp_path, stub, here):
    with Terminal("quickstart", cwd=tmp_path / "empty", env=here) as terminal:
        terminal.expect("Clone into [./Demo-Repo]:")
        terminal.send("\r")
        terminal.expect("Clone over")
        terminal.send("\r")
        terminal.expect("What do you want to do first?")
        terminal.send("\x1b[B\r")
        terminal.expect("One sentence:")
        terminal.send("add two numbers\r")
        assert terminal.finish() == 0, terminal.text
        text = terminal.text
    for done in ("Logged in", "Workspace lab", "Repository Acme/Demo-Repo", "Clone at", "Billing is set up"):
        assert f"✓ {done}" in text
    assert "The task: add two numbers" in text
    assert "\x1b]52;c;" in terminal.raw
    assert (tmp_path / "empty/Demo-Repo/.git").is_dir()
    assert stub.asked[-1].json == {"organizationId": "ws_1", "intent": "eval"}
    assert all(not {"x-osmosis-git", "x-osmosis-workspace"} & set(asked.headers) for asked in stub.asked)
    remembered = json.loads((tmp_path / ".config/osmosis/workspace-directories.json").read_text())
    assert remembered["platforms"] == {stub.url: {"ws_1": str((tmp_path / "empty/Demo-Repo").resolve())}}


def test_a_second_run_only_reports_and_asks_for_the_goal(tmp_path, stub, here):
    clone = make_workspace(tmp_path / "clone")
    stub.routes["GET /api/cli/workspaces"] = {"workspaces": [OTHER, LAB]}
    with Terminal("quickstart", cwd=clone / "data", env=here) as terminal:  # in the clone: no workspace is asked for
        terminal.expect("What do you want to do first?")
        terminal.send("4")
        assert terminal.finish() == 0
        assert "https://docs.osmosis.ai" in terminal.text
    assert stub.asked[-1].json["intent"] == "explore"
    with Terminal("quickstart", "-w", "LAB", cwd=tmp_path / "empty", env=here) as terminal:  # elsewhere: remembered
        terminal.expect("What do you want to do first?")
        assert f"Clone at {clone.resolve()}" in terminal.text.replace("\n", "")
        terminal.send("3")
        assert terminal.finish() == 0


def test_elsewhere_the_workspace_is_asked_for(tmp_path, stub, here):
    stub.routes["GET /api/cli/workspaces"] = {"workspaces": [OTHER, LAB]}
    with Terminal("quickstart", cwd=tmp_path / "empty", env=here) as terminal:
        terminal.expect("Which workspace?")
        terminal.send("\x1b[A\r")  # up from the first is the last
        terminal.expect("Clone into")
        assert "✓ Workspace lab" in terminal.text
        terminal.send("\x1b")
        assert terminal.finish() == 130
        assert "Cancelled." in terminal.text
    assert "POST /api/cli/quickstart" not in stub.calls


@pytest.mark.parametrize("keys", ["\x1b", "\x03", "\x04"])
def test_leaving_a_menu_cancels_with_130(tmp_path, stub, here, keys):
    make_workspace(tmp_path / "clone")
    with Terminal("quickstart", cwd=tmp_path / "clone", env=here) as terminal:
        terminal.expect("What do you want to do first?")
        terminal.send(keys)
        assert terminal.finish() == 130


def test_a_dumb_terminal_gets_numbers(tmp_path, stub, here):
    make_workspace(tmp_path / "clone")
    with Terminal("quickstart", cwd=tmp_path / "clone", env=here | {"TERM": "dumb"}) as terminal:
        terminal.expect("Number [1]:")
        terminal.send("9\r")
        terminal.expect("from 1 to 4")
        terminal.send("4\r")
        assert terminal.finish() == 0
        assert "\x1b" not in terminal.raw


def test_places_that_will_not_do_are_asked_again(tmp_path, stub, here):
    (tmp_path / "empty/full").mkdir()
    (tmp_path / "empty/full/x").touch()
    (tmp_path / "empty/file").touch()
    subprocess.run(["git", "init", "-q", str(tmp_path / "empty/repo")], check=True)
    with Terminal("quickstart", cwd=tmp_path / "empty", env=here) as terminal:
        terminal.expect("Clone into")
        for given, said in (("full", "is not empty"), ("file", "is a file"), ("~nobody-here/x", "no such user")):
            terminal.send(f"{given}\r")
            terminal.expect(said)
        terminal.send("repo/inner\r")
        terminal.expect("inside another repository")
        terminal.send("n\r")
        terminal.send("-odd name\r")
        terminal.expect("Clone over")
        terminal.send("1")
        terminal.expect("What do you want")
        terminal.send("\x03")
        assert terminal.finish() == 130
    assert (tmp_path / "empty/-odd name/.git").is_dir()


def test_a_clone_that_fails_is_an_error_and_nothing_is_recorded(tmp_path, stub, here):
    (tmp_path / "gitconfig").write_text('[url "/nowhere/"]\n\tinsteadOf = https://github.com/\n')
    with Terminal("quickstart", cwd=tmp_path / "empty", env=here) as terminal:
        terminal.expect("Clone into")
        terminal.send("\r")
        terminal.expect("Clone over")
        terminal.send("\r")
        assert terminal.finish() == 1
        assert "git could not clone" in terminal.text
    assert "POST /api/cli/quickstart" not in stub.calls


def test_missing_billing_waits_for_enter_and_is_looked_at_again(tmp_path, stub, here):
    make_workspace(tmp_path / "clone")
    stub.routes["GET /api/cli/quickstart"] = [{**READY, "billing_ready": False}, READY]
    stub.routes["POST /api/cli/quickstart"] = Answer({"error": "later"}, 503)
    with Terminal("quickstart", cwd=tmp_path / "clone", env=here) as terminal:
        terminal.expect("/lab/billing")
        terminal.expect("Press Enter")
        terminal.send("\r")
        terminal.expect("✓ Billing is set up")
        terminal.expect("What do you want")
        terminal.send("4")
        assert terminal.finish() == 0
        assert "did not record" in terminal.text


def test_a_repository_is_waited_for(tmp_path, stub, here):
    make_workspace(tmp_path / "clone")
    unconnected = {"repo": {"connected": False, "full_name": None}, "billing_ready": True}
    stub.routes["GET /api/cli/quickstart"] = [unconnected, READY]
    with Terminal("quickstart", cwd=tmp_path / "clone", env=here) as terminal:
        terminal.expect("/lab/integrations/git")
        terminal.expect("What do you want", timeout=30)
        terminal.send("4")
        assert terminal.finish() == 0


def test_a_refused_saved_login_is_made_anew_once(tmp_path, stub):
    make_workspace(tmp_path / "clone")
    env = environment(tmp_path, OSMOSIS_PLATFORM_URL=stub.url, OSMOSIS_TOKEN_STORE="file")
    assert osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=env).status == 0
    stub.routes["GET /api/cli/workspaces"] = lambda asked: (
        {"workspaces": [LAB]}
        if asked.headers["authorization"] == "Bearer dev-token"
        else Answer({"code": "TOKEN_REVOKED"}, 401)
    )
    begun = {
        "device_code": "d",
        "user_code": "WXYZ-1234",
        "verification_uri": stub.url,
        "expires_in": 60,
        "interval": 1,
    }
    stub.routes["POST /api/cli/device/authorize"] = begun
    stub.routes["POST /api/cli/device/token"] = {"token": "dev-token", "token_id": "dev", **ADA}
    with Terminal("quickstart", cwd=tmp_path / "clone", env=env) as terminal:
        terminal.expect("WXYZ-1234")
        terminal.expect("What do you want")
        terminal.send("4")
        assert terminal.finish() == 0


def test_no_workspace_and_an_unknown_one_say_what_there_is(tmp_path, stub, here):
    with Terminal("quickstart", "--workspace", "nope", cwd=tmp_path, env=here) as terminal:
        assert terminal.finish() == 1
        assert "There is: lab." in terminal.text
    stub.routes["GET /api/cli/workspaces"] = {"workspaces": []}
    with Terminal("quickstart", cwd=tmp_path, env=here) as terminal:  # this platform makes them on its pages only
        terminal.expect("Name of a new workspace:")
        terminal.send("lab\r")
        assert terminal.finish() == 1
        assert f"Create one at {stub.url}" in terminal.text


def test_an_account_without_a_workspace_makes_one(tmp_path, stub, here):
    make_workspace(tmp_path / "clone")
    stub.routes["GET /api/cli/workspaces"] = {"workspaces": []}
    stub.routes["POST /api/cli/workspaces"] = [
        Answer({"message": "The name is taken; choose another."}, 409),
        Answer(LAB, 201),
    ]
    with Terminal("quickstart", cwd=tmp_path / "clone", env=here) as terminal:
        terminal.expect("Name of a new workspace:")
        terminal.send("api\r")
        terminal.expect("The name is taken")
        terminal.send("lab\r")
        terminal.expect("What do you want")
        terminal.send("4")
        assert terminal.finish() == 0
        assert "✓ Workspace lab" in terminal.text
    named = [
        asked.json["name"] for asked in stub.asked if (asked.method, asked.path) == ("POST", "/api/cli/workspaces")
    ]
    assert named == ["api", "lab"]


@pytest.mark.parametrize("arguments", [["--json"], ["--plain"], []])
def test_nobody_is_asked_where_nobody_answers(tmp_path, stub, here, arguments):
    done = osmosis(*arguments, "quickstart", cwd=tmp_path, env=here)
    assert done.status == 1
    assert "https://docs.osmosis.ai/platform/onboarding#manual-setup" in done.stderr
    assert stub.asked == []


def test_repositories_of_other_hosts_are_cloned_from_there():
    assert clone_urls("lab/lab", "http://127.0.0.1:8080/git/lab/lab.git") == [
        ("HTTPS", "http://127.0.0.1:8080/git/lab/lab.git")
    ]
    assert clone_urls("t/x", "ssh://git@git.example.com/t/x.git") == [("SSH", "ssh://git@git.example.com/t/x.git")]
    for bad in ("ext::sh -c id", "file:///etc", "--upload-pack=id", "http://git.example.com/t/x", "https://h/../x"):
        with pytest.raises(PlatformError):
            clone_urls("t/x", bad)
    for bad in ("", "lab", "-x/y", "a/b/../c", "a/b c", "ext::sh -c x/y", "a b/c/d"):
        with pytest.raises(PlatformError):
            clone_urls(bad)


@pytest.mark.parametrize(
    ("identity", "clone_url", "same"),
    [
        ("lab/app", None, True),
        ("git.example/lab/app", None, False),
        ("127.0.0.1:8700/git/lab/app", "http://127.0.0.1:8700/git/lab/app.git", True),
        ("localhost:8700/git/lab/app", "http://127.0.0.1:8700/git/lab/app.git", True),
        ("lab/app", "http://127.0.0.1:8700/git/lab/app.git", True),
        ("git.example/lab/app", "https://git.example/Lab/App.git", True),
        ("git.other/lab/app", "https://git.example/lab/app.git", False),
        ("127.0.0.1:8700/git/other/app", "http://127.0.0.1:8700/git/lab/app.git", False),
    ],
)
def test_a_clone_is_known_by_any_name_of_its_host(identity, clone_url, same):
    assert is_clone_of(identity, "Lab/App", clone_url) == same


@pytest.mark.parametrize("intent", ["train", "eval", "benchmark"])
def test_the_text_for_agents_names_only_commands_that_exist(tmp_path, intent):
    import re

    text = agent_prompt(intent, "add numbers", "lab", tmp_path)
    commands = re.findall(r"`osmosis ([a-z ]+?)(?: [A-Z-].*?)?`", text)
    assert commands
    for command in commands:
        entries = TREE
        for word in command.split():
            if not entries:
                break
            assert word in entries, command
            entries = entries[word].entries


def test_workspaces_are_listed_with_their_repositories(tmp_path, stub, here):
    stub.routes["GET /api/cli/workspaces"] = {
        "workspaces": [{**LAB, "role": "owner", "has_billing_setup": True}, OTHER]
    }
    done = osmosis("--json", "workspace", "list", cwd=tmp_path, env=here)
    assert [(one["name"], one["repository"], one["role"]) for one in done.json["items"]] == [
        ("lab", "Acme/Demo-Repo", "owner"),
        ("other", None, None),
    ]
    assert (
        osmosis("--plain", "workspace", "list", cwd=tmp_path, env=here).stdout.splitlines()[0].startswith("lab\towner")
    )
    stub.routes["GET /api/cli/workspaces"] = {"workspaces": [{"name": 3}]}
    assert osmosis("--json", "workspace", "list", cwd=tmp_path, env=here).error["code"] == "PLATFORM_ERROR"
