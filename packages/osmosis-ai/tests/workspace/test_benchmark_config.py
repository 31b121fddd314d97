from pathlib import Path

import pytest
from osmosis_ai.errors import UsageError, ValidationError
from osmosis_ai.workspace.benchmark_config import BenchmarkConfig, load_benchmark_config
from osmosis_ai.workspace.config_check import InvalidConfigError

PROVIDER = '[agents.model]\ntype = "provider"\nmodel = "openai/gpt-5"\napi_key_secret = "OPENAI_API_KEY"\n'
HOSTED = '[agents.model]\ntype = "hosted"\nbase_model = "q"\nlora_model_name = "l"\n'
HEAD = '[experiment]\nbenchmark = "tb"\n'
GOOD = f"{HEAD}[[agents]]\n{PROVIDER}"


def load(folder: Path, text: str) -> BenchmarkConfig:
    path = folder / "b.toml"
    path.write_text(text)
    return load_benchmark_config(path)


def issues(folder: Path, text: str) -> dict[str, tuple[str, int | None]]:
    with pytest.raises(InvalidConfigError) as caught:
        load(folder, text)
    assert caught.value.details.get("error", "Invalid benchmark config") == "Invalid benchmark config"
    for issue in caught.value.findings:
        assert f"  - {issue['key']}: {issue['message']}" in caught.value.message
    return {issue["key"]: (issue["message"], issue.get("line")) for issue in caught.value.findings}


def test_a_minimal_file_says_nothing_but_its_benchmark_and_agent(tmp_path: Path):
    config = load(tmp_path, GOOD)
    assert (config.benchmark, config.tasks, config.execution, config.env) == ("tb", {}, {}, {})
    (agent,) = config.agents
    assert (agent.harness, agent.model_name, agent.secret_name) == (None, "openai/gpt-5", "OPENAI_API_KEY")
    assert config.referenced_secrets == ("OPENAI_API_KEY",)
    assert not config.misses_parity


def test_every_key_arrives_and_secrets_come_in_order_once_each(tmp_path: Path):
    config = load(
        tmp_path,
        f'{HEAD}[tasks]\ntask_names = ["a", "b"]\n[execution]\nattempts_per_task = 2\njudge_api_key_secret = "J"\n'
        '[verifier]\nrequired = ["V", "J"]\n[secrets]\nrequired = ["RUN"]\n[env]\nLEVEL = "1"\n'
        '[[agents]]\nharness = "cursor-cli"\nharness_api_key_secret = "CURSOR_API_KEY"\n[agents.model]\n'
        'type = "endpoint"\nbase_url = "https://x"\nmodel = "m"\napi_key_secret = "K"\nextra_headers = {X = "1"}\n'
        f'[agents.env]\nLEVEL = "2"\n[[agents]]\nharness = "mini-swe-agent"\n{HOSTED}[agents.env]\nMSWEA_API_KEY = "x"\n',
    )
    assert config.tasks == {"task_names": ["a", "b"]}
    assert config.execution == {"attempts_per_task": 2, "judge_api_key_secret": "J"}
    assert config.referenced_secrets == ("K", "CURSOR_API_KEY", "J", "V", "RUN")
    assert [agent.env for agent in config.agents] == [{"LEVEL": "2"}, {"MSWEA_API_KEY": "x"}]


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("", "experiment", "missing [experiment]"),
        (f"[experiment]\n[[agents]]\n{PROVIDER}", "experiment.benchmark", "is missing"),
        (f"[experiment]\nbenchmark = 1\n[[agents]]\n{PROVIDER}", "experiment.benchmark", "must be a string, got 1"),
        (f"{HEAD}dataset = 'x'\n[[agents]]\n{PROVIDER}", "experiment.dataset", "not a recognised key"),
        (HEAD, "agents", "[agents.model]"),
        (f"{HEAD}[agents]\nharness = 'x'\n", "agents", "two brackets"),
        (f"agents = []\n{HEAD}", "agents", "1 to 8 agents, got 0"),
        (HEAD + f"[[agents]]\n{PROVIDER}" * 9, "agents", "1 to 8 agents, got 9"),
        (f"{GOOD}[task]\n", "task", "did you mean [tasks]?"),
        (f"{HEAD}[tasks]\ntask_set = 'full'\n[[agents]]\n{PROVIDER}", "tasks.task_set", 'must be "parity"'),
        (f"{HEAD}[tasks]\ntask_names = ['a', ' ']\n[[agents]]\n{PROVIDER}", "tasks.task_names.1", "blank"),
        (f"{HEAD}[tasks]\ncategories = ['a', 1]\n[[agents]]\n{PROVIDER}", "tasks.categories.1", "must be a string"),
        (f"{HEAD}[tasks]\ncategories = ['a']\ntask_set = 'parity'\n[[agents]]\n{PROVIDER}", "tasks", "one selector"),
        (f"{HEAD}[[agents]]\nharness = 'codex'\n", "agents.0.model", "is missing"),
        (f"{HEAD}[[agents]]\n[agents.model]\nmodel = 'x'\n", "agents.0.model", "provider, endpoint, hosted"),
        (f"{HEAD}[[agents]]\n[agents.model]\ntype = 'provder'\n", "agents.0.model", "did you mean provider?"),
        (f"{GOOD}base_url = 'https://x'\n", "agents.0.model.provider.base_url", "of a provider model"),
        (f"{HEAD}[[agents]]\n{HOSTED}api_key_secret = 'K'\n", "agents.0.model.hosted.api_key_secret", "no key"),
        (f"{HEAD}[execution]\nconcurrency = 4\n[[agents]]\n{PROVIDER}", "execution.concurrency", "not a recognised"),
        (
            f"{HEAD}[execution]\nverifier_secrets = []\n[[agents]]\n{PROVIDER}",
            "execution.verifier_secrets",
            "[verifier]",
        ),
        (f"{GOOD}[agents.env]\nlower = '1'\n", "agents.0.env.lower", "not a variable name"),
        (f"{GOOD}[agents.env]\n_OSMOSIS_X = '1'\n", "agents.0.env._OSMOSIS_X", "reserved"),
    ],
)
def test_a_finding_names_its_key(tmp_path: Path, text: str, key: str, said: str):
    found = issues(tmp_path, text)
    assert said in found[key][0]


def test_seventeen_names_are_too_many(tmp_path: Path):
    names = [f"K{number}" for number in range(17)]
    for section in ("verifier", "secrets"):
        found = issues(tmp_path, f"{HEAD}[{section}]\nrequired = {names}\n[[agents]]\n{PROVIDER}")
        assert "at most 16 names, got 17" in found[f"{section}.required"][0]


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        (
            f"{HEAD}[env]\nOPENAI_API_KEY = 'x'\n[[agents]]\n{PROVIDER}",
            "agents.0.model.provider.api_key_secret",
            "[env]",
        ),
        (f"{GOOD}[agents.env]\nOPENAI_API_KEY = 'x'\n", "agents.0.model.provider.api_key_secret", "of agent 1"),
        (
            f"{HEAD}[execution]\njudge_api_key_secret = 'J'\n[[agents]]\n{PROVIDER}[[agents]]\n{HOSTED}[agents.env]\nJ = 'x'\n",
            "execution.judge_api_key_secret",
            "of agent 2",
        ),
        (f"{HEAD}[verifier]\nrequired = ['V']\n[env]\nV = 'x'\n[[agents]]\n{PROVIDER}", "verifier.required", "V is"),
        (f"{HEAD}[secrets]\nrequired = ['R']\n[env]\nR = 'x'\n[[agents]]\n{PROVIDER}", "secrets.required", "[env]"),
        (
            f"{HEAD}[secrets]\nrequired = ['R']\n[[agents]]\n{PROVIDER}[agents.env]\nR = 'x'\n",
            "secrets.required",
            "agent 1",
        ),
        (
            f"{HEAD}[[agents]]\nharness = 'cursor-cli'\n{PROVIDER}",
            "agents.0.harness_api_key_secret",
            "needs CURSOR_API_KEY",
        ),
        (
            f"{HEAD}[[agents]]\nharness = 'cursor-cli'\nharness_api_key_secret = 'OTHER'\n{PROVIDER}",
            "agents.0.harness_api_key_secret",
            "got OTHER",
        ),
        (
            f"{HEAD}[[agents]]\nharness = 'codex'\nharness_api_key_secret = 'X'\n{PROVIDER}",
            "agents.0.harness_api_key_secret",
            "codex does not use",
        ),
        (
            f"{HEAD}[[agents]]\nharness_api_key_secret = 'X'\n{PROVIDER}",
            "agents.0.harness_api_key_secret",
            "own scaffold",
        ),
        (
            f"{HEAD}[env]\nMSWEA_API_KEY = 'x'\n[[agents]]\nharness = 'mini-swe-agent'\n{PROVIDER}",
            "agents.0.harness",
            "MSWEA_API_KEY",
        ),
        (
            f"{HEAD}[[agents]]\n{PROVIDER.replace('OPENAI_API_KEY', 'DAYTONA_API_KEY')}",
            "agents.0.model.provider.api_key_secret",
            "runner",
        ),
    ],
)
def test_a_name_has_one_source(tmp_path: Path, text: str, key: str, said: str):
    assert said in issues(tmp_path, text)[key][0]


def test_a_secret_of_one_agent_may_be_a_variable_of_another(tmp_path: Path):
    config = load(tmp_path, f"{GOOD}[[agents]]\n{HOSTED}[agents.env]\nOPENAI_API_KEY = 'x'\n")
    assert len(config.agents) == 2


def test_findings_of_the_second_agent_have_its_lines(tmp_path: Path):
    text = f"{GOOD}[[agents]]\nharnes = 'codex'\n{HOSTED}extra = 1\n"
    found = issues(tmp_path, text)
    lines = text.split("\n")
    assert lines[(found["agents.1.harnes"][1] or 0) - 1] == "harnes = 'codex'"
    assert lines[(found["agents.1.model.hosted.extra"][1] or 0) - 1] == "extra = 1"


def test_the_whole_of_hle_is_told_apart(tmp_path: Path):
    assert load(tmp_path, GOOD.replace('"tb"', '" HLE "')).misses_parity
    parity = "[tasks]\ntask_set = 'parity'\n"
    assert not load(tmp_path, GOOD.replace('"tb"\n', f'"hle"\n{parity}')).misses_parity


def test_what_is_no_file_is_told(tmp_path: Path):
    with pytest.raises(UsageError):
        load_benchmark_config(tmp_path)
    with pytest.raises(ValidationError, match="not found"):
        load_benchmark_config(tmp_path / "none.toml")
