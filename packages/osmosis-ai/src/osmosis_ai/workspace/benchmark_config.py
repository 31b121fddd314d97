"""The benchmark file: any TOML file, parsed once into a `BenchmarkConfig` that cannot be wrong.

Owns: `[tasks]`, `[[agents]]`, `[execution]`, `[verifier]` and which name may be a secret and a literal variable at once
(none). Whether the benchmark, its tasks and harnesses exist, and every value of `[execution]`, is the platform's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.workspace.config_check import ConfigCheck, name_problem, shown, suggestion
from osmosis_ai.workspace.toml_file import read_toml

MAX_AGENTS = 8
MAX_SECRET_NAMES = 16
CURSOR_HARNESS, CURSOR_SECRET = "cursor-cli", "CURSOR_API_KEY"
DEFAULT_ATTEMPTS = 1
DEFAULT_CONCURRENCY = 4
_SECTIONS = ("experiment", "tasks", "agents", "execution", "verifier", "secrets", "env")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a benchmark file, for its check and for the reference.

    Attributes:
        section: Where it stands; `agents.model` of one type is `agents.model (type)`.
        key: Its name there.
        kind: What it may be, in words.
        doc: One sentence for the reference.
    """

    section: str
    key: str
    kind: str
    doc: str


KEYS: tuple[Key, ...] = (
    Key("experiment", "benchmark", "string, required", "Key, exact name or id of a benchmark of the workspace."),
    Key("tasks", "task_names", "list of strings", "These tasks only."),
    Key("tasks", "categories", "list of strings", "The tasks of these categories only."),
    Key("tasks", "task_set", '`"parity"`', "The tasks whose result stands for the whole."),
    Key("agents", "harness", "string", "The scaffold around the model; absent is the benchmark's own."),
    Key("agents", "harness_api_key_secret", "name of a secret", "Only for `cursor-cli`, which reads `CURSOR_API_KEY`."),
    Key("agents", "model", "table, required", "See the types of models."),
    Key("agents", "env", "table of strings", "Literal variables of this agent; they win over `[env]`."),
    Key("agents.model (provider)", "model", "string, required", "Such as `openai/gpt-5`."),
    Key("agents.model (provider)", "api_key_secret", "name of a secret, required", "The provider's key."),
    Key("agents.model (endpoint)", "base_url", "string, required", "Of an OpenAI-compatible service."),
    Key("agents.model (endpoint)", "model", "string, required", "As the service calls it."),
    Key("agents.model (endpoint)", "api_key_secret", "name of a secret, required", "The service's key."),
    Key("agents.model (endpoint)", "extra_headers", "table of strings", "Sent along; never an Authorization header."),
    Key("agents.model (hosted)", "base_model", "string, required", "A base model of the platform."),
    Key("agents.model (hosted)", "lora_model_name", "string, required", "A deployed LoRA model of it."),
    Key("execution", "attempts_per_task", "integer, default 1", "Attempts of each agent at each task."),
    Key("execution", "max_concurrent_attempts", "integer, default 4", "Attempts at a time."),
    Key("execution", "timeout_multiplier", "number", "Stretches the limits of the tasks."),
    Key("execution", "max_retries", "integer", "Tries after failures that are nobody's fault."),
    Key("execution", "pass_threshold", "number", "A reward at or above it passes; the benchmark's own by default."),
    Key("execution", "judge_model", "string", "Only where the benchmark asks for a judge."),
    Key("execution", "judge_api_key_secret", "name of a secret", "The judge's key."),
    Key("verifier", "required", "up to 16 names of secrets", "Needed by the tasks' verifiers; they must be stored."),
    Key("secrets", "required", "up to 16 names of secrets", "The only names whose values may be given for one run."),
    Key("env", "<NAME>", "string", "Literal variables of every agent."),
)
"""Every key there is. Values of `[execution]` are the platform's to judge."""


def _known(section: str) -> tuple[str, ...]:
    return tuple(key.key for key in KEYS if key.section == section)


_MODEL_TYPES = ("provider", "endpoint", "hosted")
_RUNNER_SECRETS = ("DAYTONA_API_KEY", "DAYTONA_API_URL")
_MINI_SWE_HARNESS, _MINI_SWE_VARIABLE = "mini-swe-agent", "MSWEA_API_KEY"


@dataclass(frozen=True, slots=True)
class BenchmarkAgent:
    """One entrant of a benchmark run.

    Attributes:
        model: `type` and the keys of that type, as the file has them.
        harness: The scaffold that drives the model; None is the benchmark's own.
        harness_api_key_secret: Secret that the harness itself needs.
        env: Literal variables of this agent only; they win over the file's `[env]`.
    """

    model: Mapping[str, Any]
    harness: str | None = None
    harness_api_key_secret: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_name(self) -> str:
        """What the model is called in a summary."""
        return str(self.model.get("model") or self.model.get("base_model"))

    @property
    def secret_name(self) -> str | None:
        """The secret that its model's key comes from; a hosted model has none."""
        return self.model.get("api_key_secret")


@dataclass(frozen=True, slots=True)
class BenchmarkConfig:
    """One benchmark run as the file describes it: only what it says, no defaults filled in.

    Attributes:
        path: The file, absolute.
        benchmark: Key, exact name or id of a benchmark of the workspace.
        agents: 1 to 8 entrants.
        tasks: The one selector of `[tasks]`; empty is the whole benchmark.
        execution: Keys of `[execution]` that are there; the platform knows their ranges.
        verifier_secrets: Names in `[verifier].required`.
        secret_names: Names in `[secrets].required`: the only ones whose values may be given for one run.
        env: Literal variables of every agent.
    """

    path: Path
    benchmark: str
    agents: tuple[BenchmarkAgent, ...]
    tasks: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    verifier_secrets: tuple[str, ...] = ()
    secret_names: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def referenced_secrets(self) -> tuple[str, ...]:
        """Every secret the run needs, once each, in the order models, harnesses, judge, verifier, own names."""
        names = [agent.secret_name for agent in self.agents]
        names += [agent.harness_api_key_secret for agent in self.agents]
        names += [self.execution.get("judge_api_key_secret"), *self.verifier_secrets, *self.secret_names]
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def misses_parity(self) -> bool:
        """Whether this is Humanity's Last Exam in full, where the parity tasks are the usual choice."""
        return self.benchmark.strip().lower() == "hle" and self.tasks.get("task_set") != "parity"


def load_benchmark_config(path: Path) -> BenchmarkConfig:
    """Read and check a benchmark file.

    Args:
        path: The file; relative paths start at the current directory.

    Raises:
        UsageError: The path is a directory.
        ValidationError: Not readable, not TOML, or any rule is broken (`InvalidConfigError`, all findings at once).
            Positions of lists count from 0 in keys and agents from 1 in messages.
    """
    check = ConfigCheck(read_toml(Path.cwd() / path), Path.cwd(), "Invalid benchmark config", strict=True)
    check.sections(_SECTIONS)
    benchmark = _benchmark(check)
    tasks = _tasks(check)
    execution = _execution(check)
    verifier = _verifier(check)
    env = check.env()
    secrets = check.secrets(env, required=False, names_required=False, most=MAX_SECRET_NAMES)
    agents = _agents(check)
    _collisions(check, env, agents, execution, verifier, secrets)
    if check.issues:
        check.refuse()
    return BenchmarkConfig(
        path=check.file.path,
        benchmark=benchmark,
        agents=tuple(agent for agent in agents if agent is not None),
        tasks=tasks,
        execution=execution,
        verifier_secrets=verifier,
        secret_names=secrets,
        env=env,
    )


def _benchmark(check: ConfigCheck) -> str:
    table = check.table("experiment", required=True)
    if table is None:
        return ""
    check.unknown("experiment", table, _known("experiment"))
    if "benchmark" not in table:
        check.report("experiment.benchmark", "is missing; name a benchmark of the workspace (osmosis benchmark list)")
    return check.text("experiment.benchmark", table.get("benchmark")) or ""


def _tasks(check: ConfigCheck) -> Mapping[str, Any]:
    table = check.table("tasks") or {}
    check.unknown("tasks", table, _known("tasks"))
    for key in ("task_names", "categories"):
        for position, name in enumerate(_strings(check, f"tasks.{key}", table.get(key))):
            if not name.strip():
                check.report(f"tasks.{key}.{position}", "must not be blank")
    if "task_set" in table and table["task_set"] != "parity":
        check.report("tasks.task_set", f'must be "parity", got {shown(table["task_set"])}; leave it out for all tasks')
    if len(table) > 1:
        check.report("tasks", f"{' and '.join(table)} exclude each other; keep one selector")
    return table


def _strings(check: ConfigCheck, key: str, value: Any) -> list[str]:
    """The strings of a list; what is no list, and what is no string in it, is reported."""
    if value is None:
        return []
    if not isinstance(value, list):
        check.report(key, f"must be a list of strings, got {shown(value)}")
        return []
    for position, name in enumerate(value):
        if not isinstance(name, str):
            check.report(f"{key}.{position}", f"must be a string, got {shown(name)}")
    return [name for name in value if isinstance(name, str)]


def _execution(check: ConfigCheck) -> Mapping[str, Any]:
    table = check.table("execution") or {}
    check.unknown(
        "execution", table, _known("execution"), {"verifier_secrets": "; list them under [verifier] required"}
    )
    _secret(check, "execution.judge_api_key_secret", table.get("judge_api_key_secret"))
    return table


def _verifier(check: ConfigCheck) -> tuple[str, ...]:
    table = check.table("verifier") or {}
    check.unknown("verifier", table, _known("verifier"))
    names = _strings(check, "verifier.required", table.get("required"))
    if len(names) > MAX_SECRET_NAMES:
        check.report("verifier.required", f"holds at most {MAX_SECRET_NAMES} names, got {len(names)}")
    for name in names:
        if problem := name_problem(name):
            check.report("verifier.required", problem, about="meaning")
    return tuple(dict.fromkeys(names))


def _agents(check: ConfigCheck) -> list[BenchmarkAgent | None]:
    """One entry for each agent of the file; None for one that is no table."""
    value = check.file.data.get("agents")
    if value is None:
        check.report("agents", "is missing; write at least one [[agents]] table with an [agents.model]", about="shape")
        return []
    if isinstance(value, list) and not all(isinstance(agent, dict) for agent in value):
        for position, agent in enumerate(value):
            if not isinstance(agent, dict):
                check.report(f"agents.{position}", f"must be a table, got {shown(agent)}: write [[agents]]")
        return []
    if not isinstance(value, list):
        check.report("agents", "must be an array of tables: [[agents]] with two brackets", about="shape")
        return []
    if not 1 <= len(value) <= MAX_AGENTS:
        check.report("agents", f"there must be 1 to {MAX_AGENTS} agents, got {len(value)}")
    return [_agent(check, f"agents.{position}", agent) for position, agent in enumerate(value)]


def _agent(check: ConfigCheck, key: str, table: Mapping[str, Any]) -> BenchmarkAgent | None:
    check.unknown(key, table, _known("agents"))
    harness = check.text(f"{key}.harness", table.get("harness"))
    secret = _secret(check, f"{key}.harness_api_key_secret", table.get("harness_api_key_secret"))
    env = {}
    own = table.get("env", {})
    if not isinstance(own, dict):
        check.report(f"{key}.env", f"must be a table, got {shown(own)}")
    else:
        env = check.variables(f"{key}.env", own)
    if "model" not in table:
        check.report(f"{key}.model", "is missing; write an [agents.model] table under this agent")
        return BenchmarkAgent({}, harness, secret, env)
    model = table["model"]
    if not isinstance(model, dict):
        check.report(f"{key}.model", f"must be a table, got {shown(model)}")
        model = {}
    else:
        _model(check, f"{key}.model", model)
    return BenchmarkAgent(model, harness, secret, env)


def _model(check: ConfigCheck, key: str, model: Mapping[str, Any]) -> None:
    kind = model.get("type")
    if not isinstance(kind, str) or kind not in _MODEL_TYPES:
        got = f", got {shown(kind)}" if kind is not None else ""
        near = suggestion(kind, _MODEL_TYPES) if isinstance(kind, str) else ""
        check.report(key, f"needs a type: {', '.join(_MODEL_TYPES)}{got}{near}")
        return
    known = _known(f"agents.model ({kind})")
    required = [found.key for found in KEYS if found.section == f"agents.model ({kind})" and "required" in found.kind]
    at = key.split(".")
    hints = {"api_key_secret": "; a hosted model needs no key of a provider"} if kind == "hosted" else {}
    for name in model:
        if name not in ("type", *known):
            near = hints.get(name) or suggestion(name, known)
            check.report(f"{key}.{kind}.{name}", f"is not a recognised key of a {kind} model{near}", at=[*at, name])
    for name in required:
        if name not in model:
            check.report(f"{key}.{kind}.{name}", "is missing", at=at)
        elif name == "api_key_secret":
            _secret(check, f"{key}.{kind}.{name}", model[name], at=[*at, name])
        else:
            check.text(f"{key}.{kind}.{name}", model[name], at=[*at, name])
    headers = model.get("extra_headers", {}) if kind == "endpoint" else {}
    if not isinstance(headers, dict):
        check.report(f"{key}.{kind}.extra_headers", f"must be a table, got {shown(headers)}", at=[*at, "extra_headers"])
        return
    for name, value in headers.items():
        header = f"{key}.{kind}.extra_headers"
        if not isinstance(value, str):
            check.report(f"{header}.{name}", f"must be a string, got {shown(value)}", at=[*at, "extra_headers", name])
        elif name.strip().lower() == "authorization":
            problem = f"must not hold {name}; the key comes from api_key_secret"
            check.report(header, problem, at=[*at, "extra_headers"])


def _secret(check: ConfigCheck, key: str, value: Any, *, at: list[str] | None = None) -> str | None:
    """A secret's name, reported when it is none."""
    if value is None:
        return None
    if not isinstance(value, str):
        check.report(key, f"must be a string, got {shown(value)}", at=at)
    elif problem := name_problem(value):
        check.report(key, problem, at=at, about="meaning")
    return value if isinstance(value, str) else None


def _collisions(
    check: ConfigCheck,
    env: Mapping[str, str],
    agents: list[BenchmarkAgent | None],
    execution: Mapping[str, Any],
    verifier: tuple[str, ...],
    secrets: tuple[str, ...],
) -> None:
    """Report secrets that are also literal variables, and harness keys that no harness reads."""
    for position, agent in enumerate(agents):
        if agent is not None:
            for key, problem in _agent_problems(position + 1, agent, env):
                check.report(f"agents.{position}{key}", problem, about="meaning")
    judge = execution.get("judge_api_key_secret")
    for name, key, what in [
        (judge, "execution.judge_api_key_secret", "the judge's secret"),
        *((name, "verifier.required", "a secret of the verifier") for name in verifier),
    ]:
        if isinstance(name, str) and (where := _literal_anywhere(name, env, agents)):
            problem = f"{name} is {what} and also a literal variable in {where}; remove it there"
            check.report(key, problem, about="meaning")
    for name in secrets:
        if name not in env and (where := _literal_anywhere(name, env, agents)):  # those in [env] are reported already
            problem = f"{name} is also a literal variable in {where}; every variable has exactly one source"
            check.report("secrets.required", problem, about="meaning")


def _literal_anywhere(name: str, env: Mapping[str, str], agents: list[BenchmarkAgent | None]) -> str | None:
    if name in env:
        return "[env]"
    return next(
        (f"[agents.env] of agent {n}" for n, agent in enumerate(agents, 1) if agent and name in agent.env), None
    )


def _agent_problems(number: int, agent: BenchmarkAgent, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Key below the agent, and problem."""

    def literal(name: str) -> str | None:
        return f"[agents.env] of agent {number}" if name in agent.env else "[env]" if name in env else None

    secret, harness = agent.secret_name, agent.harness
    if isinstance(secret, str):
        key = f".model.{agent.model.get('type')}.api_key_secret"
        if secret in _RUNNER_SECRETS:
            yield key, f"agent {number} uses {secret}, which the runner keeps for itself; store the key as another name"
        elif where := literal(secret):
            yield key, f"{secret} is agent {number}'s secret and also a literal variable in {where}; remove it there"
    if harness == CURSOR_HARNESS:
        if agent.harness_api_key_secret is None:
            message = f'agent {number}: {CURSOR_HARNESS} needs {CURSOR_SECRET}; write "{CURSOR_SECRET}"'
            yield ".harness_api_key_secret", message
        elif agent.harness_api_key_secret != CURSOR_SECRET:
            given = agent.harness_api_key_secret
            message = (
                f"agent {number}: {CURSOR_HARNESS} reads {CURSOR_SECRET}, got {given}; store the key under that name"
            )
            yield ".harness_api_key_secret", message
        if where := literal(CURSOR_SECRET):
            yield ".harness", f"agent {number}: {CURSOR_HARNESS} sets {CURSOR_SECRET} itself; remove it from {where}"
    elif agent.harness_api_key_secret is not None:
        named = harness or "the benchmark's own scaffold"
        message = f"agent {number}: {named} does not use harness_api_key_secret; remove it"
        yield ".harness_api_key_secret", message
    hosted = agent.model.get("type") == "hosted"
    if harness == _MINI_SWE_HARNESS and not hosted and (where := literal(_MINI_SWE_VARIABLE)):
        message = (
            f"agent {number}: {_MINI_SWE_HARNESS} gets its model's key as {_MINI_SWE_VARIABLE}; remove it from {where}"
        )
        yield ".harness", message
