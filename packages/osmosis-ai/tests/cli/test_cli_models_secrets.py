"""Models, secrets, rollouts and pages of runs on a platform, as their commands show and change them."""

import pytest
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

SECRETS = "/api/cli/environment-secrets"
LORA = {
    "id": "l1", "model_name": "run-step-20", "base_model": "Qwen/Qwen3", "reward": 0.5, "checkpoint_step": 20,
    "created_at": "2026-11-01T09:00:00Z", "platform_url": "https://platform.example/acme/models/l1",
}  # fmt: skip
VALUE = "sk-very-hidden-value"


@pytest.fixture
def ws(tmp_path):
    return make_workspace(tmp_path / "ws")


@pytest.fixture
def api():
    with StubApi() as serving:
        yield serving


@pytest.fixture
def env(tmp_path, api):
    return environment(tmp_path, **api.environment())


def test_a_secret_is_typed_unseen_and_sent_as_it_is(ws, api, env):
    api.routes[f"POST {SECRETS}"] = {"id": "s", "name": "A_KEY", "scope": "user"}
    with Terminal("secret", "set", "A_KEY", cwd=ws, env=env) as terminal:
        terminal.expect("Value of A_KEY")
        terminal.send(f"{VALUE}\n")
        assert terminal.finish() == 0
        assert VALUE not in terminal.text and "saved in personal scope" in terminal.text
    assert api.asked[-1].json == {"name": "A_KEY", "value": VALUE, "scope": "user"}


@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_leaving_the_prompt_saves_nothing(ws, api, env, key):
    with Terminal("secret", "set", "A_KEY", cwd=ws, env=env) as terminal:
        terminal.expect("Value of A_KEY")
        terminal.send(key)
        assert terminal.finish() == 0
        assert "Cancelled." in terminal.text
    assert api.asked == []


def test_a_refused_secret_never_shows_its_value(ws, api, env):
    api.routes[f"POST {SECRETS}"] = Answer({"error": f"bad value {VALUE}", "value": VALUE, "hint": [VALUE]}, 400)
    done = osmosis("--json", "secret", "set", "A_KEY", "--env", "SRC", cwd=ws, env=env | {"SRC": VALUE})
    assert done.error["code"] == "VALIDATION"
    assert VALUE not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["A_KEY", "--env", "NOPE"], {}, "not set"),
        (["A_KEY", "--env", "SRC"], {"SRC": ""}, "empty"),
        (["a-key", "--env", "SRC"], {"SRC": "x"}, "Did you mean A_KEY?"),
        (["A_KEY", "--scope", "all", "--env", "SRC"], {"SRC": "x"}, "--scope"),
    ],
)
def test_what_cannot_be_saved_is_refused_unsent(ws, api, env, arguments, variables, told):
    error = osmosis("--json", "secret", "set", *arguments, cwd=ws, env=env | variables).error
    assert error["code"] == "VALIDATION" and told in error["message"]
    assert api.asked == []


def test_a_value_that_is_no_text_is_told(ws, api, env):
    error = osmosis("--json", "secret", "set", "A_KEY", "--env", "SRC", cwd=ws, env=env | {"SRC": "\udcff"}).error
    assert error["code"] == "VALIDATION"
    assert api.asked == []


@pytest.mark.parametrize(
    ("keys", "deleted"), [("y\n", True), ("\n", False), ("n\n", False), ("\x1b", False), ("\x03", False)]
)
def test_deleting_a_secret_asks_and_no_is_the_default(ws, api, env, keys, deleted):
    api.routes[f"GET {SECRETS}"] = {
        "environment_secrets": [{"id": "s", "name": "A_KEY", "scope": "user"}],
        "total_count": 1,
    }
    api.routes[f"DELETE {SECRETS}"] = Answer(status=204)
    with Terminal("secret", "delete", "A_KEY", cwd=ws, env=env) as terminal:
        terminal.expect('Delete personal secret "A_KEY"? This cannot be undone. [y/N]')
        terminal.send(keys)
        assert terminal.finish() == 0
        assert ("deleted from personal scope" if deleted else "Cancelled.") in terminal.text
    assert (api.asked[-1].method == "DELETE") is deleted


def test_secrets_are_looked_for_on_every_page(ws, api, env):
    def page(asked):
        at = int(asked.query["offset"])
        names = ["B", "A_KEY"]
        return {
            "environment_secrets": [{"id": f"s{at}", "name": names[at], "scope": "user"}],
            "total_count": 2,
            "next_offset": 1 if at == 0 else None,
        }

    api.routes[f"GET {SECRETS}"] = page
    api.routes[f"DELETE {SECRETS}"] = Answer(status=204)
    assert osmosis("--json", "secret", "delete", "A_KEY", "--yes", cwd=ws, env=env).status == 0


def test_a_workspace_by_name_needs_no_repository(tmp_path, api, env):
    api.routes[f"GET {SECRETS}"] = {"environment_secrets": [], "total_count": 0}
    done = osmosis("--json", "--workspace", " lab ", "secret", "list", cwd=tmp_path, env=env)
    assert done.json["workspace"] == {"name": "lab"} and "git" not in done.json
    assert api.asked[-1].headers["x-osmosis-workspace"] == "lab" and "x-osmosis-git" not in api.asked[-1].headers


def test_a_deployed_model_comes_with_a_command_to_call_it(ws, api, env):
    api.routes["GET /api/cli/models/run-step-20"] = {
        **LORA, "deployment_status": "active", "inference_model": "Qwen/Qwen3:run-step-20",
    }  # fmt: skip
    env |= {"OSMOSIS_INFERENCE_URL": "http://127.0.0.1:1/infer/"}
    shown = osmosis("model", "info", "run-step-20", cwd=ws, env=env).stdout
    assert "curl -X POST http://127.0.0.1:1/infer/v1/chat/completions" in shown
    assert '"model": "Qwen/Qwen3:run-step-20"' in shown
    assert "https://platform.example/acme/api-keys" in shown


def test_prices_are_shown_when_there_are_some(ws, api, env):
    api.routes["GET /api/cli/models/base/Qwen%2FQwen3"] = {"id": "b", "model_name": "Qwen3"}
    plain = osmosis("--plain", "model", "info", "Qwen/Qwen3", cwd=ws, env=env).stdout
    assert "Pricing" not in plain
    api.routes["GET /api/cli/models/base/Qwen%2FQwen3"] = {
        "id": "b", "model_name": "Qwen3", "parameters": 8190735360, "inference_input_usd_per_million_tokens": 0.125,
    }  # fmt: skip
    plain = osmosis("--plain", "model", "info", "Qwen/Qwen3", cwd=ws, env=env).stdout
    assert "Input: $0.125 / 1M tokens" in plain and "Output: –" in plain
    assert "Parameters: 8.19B (8,190,735,360)" in plain


def test_both_lists_of_models_have_their_own_pages(ws, api, env):
    api.routes["GET /api/cli/models/base"] = {"models": [], "total_count": 0}
    api.routes["GET /api/cli/models/lora"] = {
        "models": [LORA], "total_count": 3, "has_more": True, "next_offset": 1,
        "active_deployments": 2, "max_active_deployments": 5,
    }  # fmt: skip
    found = osmosis("--json", "model", "list", "--limit", "1", cwd=ws, env=env).json
    assert (found["base_models"]["next_offset"], found["lora_models"]["next_offset"]) == (None, 1)
    assert (found["active_deployments"], found["max_active_deployments"]) == (2, 5)
    shown = osmosis("model", "list", cwd=ws, env=env).stdout
    assert "2 of 5 inference deployments used" in shown and "There are no base models" in shown


def test_a_full_quota_is_the_platforms_word(ws, api, env):
    api.routes["POST /api/cli/models/m/deploy"] = Answer({"error": "Quota reached: 5 of 5"}, 409)
    error = osmosis("--json", "model", "deploy", "m", cwd=ws, env=env).error
    assert (error["code"], error["message"]) == ("CONFLICT", "Quota reached: 5 of 5")


def test_rollouts_are_those_of_a_branch(ws, api, env):
    api.routes["GET /api/cli/rollouts"] = {"rollouts": [], "total_count": 0}
    shown = osmosis("rollout", "list", "--branch", "feat/a b", cwd=ws, env=env).stdout
    assert "the branch feat/a b" in shown and "osmosis rollout init" in shown
    assert api.asked[-1].query["branch"] == "feat/a b"


def test_a_run_is_found_whatever_its_kind(ws, api, env):
    api.routes["GET /api/cli/training-runs/calm-fox-2"] = {
        "training_run": {"id": "t", "name": "calm-fox-2", "platform_url": "https://p.example/lab/training/t"}
    }
    done = osmosis("--json", "open", "calm-fox-2", cwd=ws, env=env)
    assert done.json["resource"] | {"git": 0, "workspace_directory": 0} == {
        "kind": "train", "id": "t", "name": "calm-fox-2", "platform_url": "https://p.example/lab/training/t",
        "opened": False, "git": 0, "workspace_directory": 0,
    }  # fmt: skip
    assert osmosis("--plain", "open", "calm-fox-2", cwd=ws, env=env).stdout == "https://p.example/lab/training/t\n"
    assert [one.path for one in api.asked[:2]] == ["/api/cli/eval-runs/calm-fox-2", "/api/cli/training-runs/calm-fox-2"]
    error = osmosis("--json", "open", "calm-fox-2", "--kind", "eval", cwd=ws, env=env).error
    assert error["code"] == "NOT_FOUND" and "osmosis eval list" in error["message"]


def test_a_run_that_lies_here_only_is_told_apart(ws, api, env):
    (ws / ".osmosis/evals/calm-owl-1").mkdir(parents=True)
    (ws / ".osmosis/evals/calm-owl-1/manifest.json").write_text("{}")
    error = osmosis("--json", "open", "calm-owl-1", cwd=ws, env=env).error
    assert error["code"] == "NOT_FOUND" and "osmosis eval upload calm-owl-1" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dataset", "info", "x"], "osmosis dataset list"),
        (["dataset", "download", "x"], "osmosis dataset list"),
        (["model", "deploy", "x"], "osmosis model list"),
        (["model", "info", "x"], "osmosis model list"),
        (["secret", "delete", "X", "--yes"], "osmosis secret list"),
    ],
)
def test_an_unknown_name_says_where_the_names_are(ws, api, env, arguments, told):
    api.routes[f"GET {SECRETS}"] = {"environment_secrets": [], "total_count": 0}
    error = osmosis("--json", *arguments, cwd=ws, env=env).error
    assert error["code"] == "NOT_FOUND" and told in error["message"]


def test_at_a_terminal_the_page_opens_in_the_browser(tmp_path, ws, api, env):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened.new && mv {tmp_path}/opened.new {tmp_path}/opened\n')
    browser.chmod(0o755)
    api.routes["GET /api/cli/eval-runs/e"] = {"eval_run": {"id": "e", "platform_url": "https://p.example/lab/evals/e"}}
    env |= {"BROWSER": str(browser)}
    with Terminal("open", "e", "--print", cwd=ws, env=env) as terminal:
        assert terminal.finish() == 0
    with Terminal("open", "e", cwd=ws, env=env) as terminal:
        assert terminal.finish() == 0
        assert "https://p.example/lab/evals/e" in terminal.text
    for _ in range(100):
        if (tmp_path / "opened").exists():
            break
        __import__("time").sleep(0.05)
    assert (tmp_path / "opened").read_text() == "https://p.example/lab/evals/e\n"


@pytest.mark.parametrize("code", ["GIT_REPOSITORY_NOT_CONNECTED"])
def test_a_repository_that_is_not_connected_is_not_a_missing_run(ws, api, env, code):
    api.routes["GET /api/cli/eval-runs/e"] = Answer({"code": code, "error": "x"}, 404)
    error = osmosis("--json", "open", "e", cwd=ws, env=env | {"PATH": "/usr/bin:/bin"}).error
    assert error["details"]["platform_code"] == code
    assert len([one for one in api.asked if one.path.startswith("/api/cli/")]) == 1
