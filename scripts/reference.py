"""Writes docs/reference/ from the code: commands, keys of config files, error codes, models. A test fails when they are stale.

.venv/bin/python scripts/reference.py
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click
import osmosis_ai
import osmosis_trainer
import platform_reference
from osmosis_ai.cli.root import CommandGroup, make_root
from osmosis_ai.errors import OsmosisError
from osmosis_ai.gateway.prices import shipped_prices
from osmosis_ai.gateway.providers import LITELLM_ONLY, OPENAI_COMPATIBLE
from osmosis_ai.workspace import benchmark_config, eval_config, training_config
from osmosis_trainer.loop.config import training_options

REFERENCE = Path(__file__).resolve().parents[1] / "docs/reference"
_MADE = "<!-- Made by scripts/reference.py; do not edit. -->\n\n"
_EXPERIMENT = {
    "rollout": ("experiment.rollout", "string, required"),
    "entrypoint": ("experiment.entrypoint", "string, required"),
    "model_path": ("experiment.model_path", "string, required"),
    "dataset": ("experiment.dataset", "string, required"),
    "branch": ("experiment.branch", "string"),
    "commit_sha": ("experiment.commit_sha", "string"),
}
_NOT_FOR_ERRORS = (".cli.", ".integrations.", ".template", ".bootstrap", ".torch")
_KEYS = {  # attribute of EvalConfig -> section and key of the file, its type
    **_EXPERIMENT,
    "limit": ("evaluation.limit", "integer ≥ 1"),
    "n": ("evaluation.n", "integer ≥ 1, default 1"),
    "batch_size": ("evaluation.batch_size", "integer ≥ 1"),
    "pass_threshold": ("evaluation.pass_threshold", "number ≥ 0, default 1.0"),
    "agent_timeout_s": ("evaluation.agent_workflow_timeout_s", "number > 0"),
    "grader_timeout_s": ("evaluation.grader_timeout_s", "number > 0"),
    "secret_names": ("secrets.required", "list of names, required"),
    "env": ("env.<NAME>", "string"),
    "advanced": ("advanced", "table"),
}


def pages() -> dict[str, str]:
    """Every page of the reference by file name."""
    return {
        "commands.md": commands(),
        "eval-config.md": eval_keys(),
        "training-config.md": training_keys(),
        "benchmark-config.md": benchmark_keys(),
        "errors.md": errors(),
        "models.md": models(),
        "platform-settings.md": _MADE + platform_reference.settings(_cell),
        "platform-commands.md": _MADE + platform_reference.commands(_options),
        "platform-errors.md": _MADE + platform_reference.errors(_cell),
        "platform-api.md": _MADE + platform_reference.routes(_cell),
    }


def commands() -> str:
    """One section a command: usage, what it does, its options."""
    root = make_root()
    text = [
        _MADE,
        "# Commands\n\n",
        _options(root, click.Context(root, info_name="osmosis"), "Options of every command"),
    ]
    for words, command in _walk(root, ("osmosis",)):
        context = click.Context(command, info_name=" ".join(words))
        usage = " ".join([*words, *command.collect_usage_pieces(context)])
        about, _, rest = inspect.cleandoc(command.help or "").partition("\b")
        text += [
            f"## {' '.join(words)}\n\n```\n{usage}\n```\n\n",
            re.sub(r"(?<!\n)\n(?!\n)", " ", about).strip(),
            "\n\n",
        ]
        text.append(_options(command, context, ""))
        if rest:
            title, _, examples = rest.strip().partition("\n")
            text.append(f"{title.strip()}\n\n```bash\n{inspect.cleandoc(examples)}\n```\n\n")
    return "".join(text).rstrip() + "\n"


def _walk(group: CommandGroup, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name=words[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, CommandGroup):
            yield from _walk(command, (*words, name))
        else:
            yield (*words, name), command


def _options(command: click.Command, context: click.Context, title: str) -> str:
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        f"| `{names}` | {_cell(what)} |\n" for names, what in filter(None, records) if what and "--help" not in names
    ]
    if not rows:
        return ""
    return (f"{title}:\n\n" if title else "") + "| option | meaning |\n| --- | --- |\n" + "".join(rows) + "\n"


def training_keys() -> str:
    """The keys of `configs/training/<name>.toml`, from the trainer's options and the attributes of TrainingFile."""
    described = _described(training_config.TrainingFile)
    text = [
        _MADE,
        "# The training file: configs/training/&lt;name&gt;.toml\n\n| key | type | meaning |\n| --- | --- | --- |\n",
    ]
    for attribute, (key, kind) in _EXPERIMENT.items():
        text.append(f"| `{key}` | {kind} | {_cell(described[attribute])} |\n")
    text.append(f"| `secrets.required` | list of names | {_cell(described['secret_names'])} |\n")
    text.append(f"| `env.<NAME>` | string | {_cell(described['env'])} |\n")
    options = training_options()
    for section in dict.fromkeys(option.section for option in options):
        text.append(f"\n## [{section}]\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n")
        for option in options:
            if option.section == section:
                default = "–" if option.default in (None, "") else f"`{str(option.default).lower()}`"
                text.append(f"| `{option.key}` | {_cell(option.allowed)} | {default} | {_cell(option.doc)} |\n")
    text.append(
        "\n`[secrets]` may be left out. A name is either in `[env]` or in `secrets.required`, never in both. `branch` "
        "and `commit_sha` exclude each other. Other tables of `[advanced]` are forwarded as they are and have no effect "
        "on a local run.\n"
    )
    return "".join(text)


def _described(model: type) -> dict[str, str]:
    """The sentence of each attribute in a class's docstring."""
    return dict(re.findall(r"^    (\w+): (.+)$", inspect.getdoc(model) or "", re.MULTILINE))


def eval_keys() -> str:
    """The keys of `configs/eval/<name>.toml`, from the attributes of EvalConfig."""
    described = _described(eval_config.EvalConfig)
    text = [_MADE, "# The eval file: configs/eval/&lt;name&gt;.toml\n\n| key | type | meaning |\n| --- | --- | --- |\n"]
    for attribute, (key, kind) in _KEYS.items():
        text.append(f"| `{key}` | {kind} | {_cell(described[attribute])} |\n")
    text.append(
        "\n`[secrets]` must be there (`required = []` when nothing is needed). A name is either in `[env]` or in "
        "`secrets.required`, never in both. `branch` and `commit_sha` exclude each other.\n"
    )
    return "".join(text)


def benchmark_keys() -> str:
    """The keys of a benchmark file, from the table that its check uses."""
    text = [_MADE, "# The benchmark file: configs/benchmark/&lt;name&gt;.toml\n"]
    for section in dict.fromkeys(key.section for key in benchmark_config.KEYS):
        heading = "[[agents]]" if section == "agents" else f"[{section.partition(' ')[0]}]"
        kind = section.partition(" ")[2].strip("()")
        of_type = f', type = "{kind}"' if kind else ""
        text.append(f"\n## {heading}{of_type}\n\n| key | value | meaning |\n| --- | --- | --- |\n")
        for key in benchmark_config.KEYS:
            if key.section == section:
                text.append(f"| `{key.key}` | {_cell(key.kind)} | {_cell(key.doc)} |\n")
    text.append(
        f"\nThere are 1 to {benchmark_config.MAX_AGENTS} agents. Selectors of `[tasks]` exclude each other; without one "
        "the whole benchmark is run. A name is either a secret or a literal variable of an agent, never both. Every "
        "secret but those of `[secrets]` must be stored on the platform.\n"
    )
    return "".join(text)


def errors() -> str:
    """The stable codes of errors, from the classes."""
    for package in (osmosis_ai, osmosis_trainer):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part in module.name for part in _NOT_FOR_ERRORS):
                importlib.import_module(module.name)
    rows = {
        (error.code, (inspect.getdoc(error) or "").partition("\n")[0], error.exit_status)
        for error in _errors(OsmosisError)
    }
    lines = "".join(f"| `{code}` | {_cell(meaning)} | {status} |\n" for code, meaning, status in sorted(rows))
    about = "`error.code` in the JSON error envelope; `INTERNAL` is a fault of ours, `OSMOSIS_DEBUG=1` shows where.\n\n"
    return _MADE + f"# Error codes\n\n{about}| code | when | exit status |\n| --- | --- | --- |\n{lines}"


def models() -> str:
    """The providers by prefix, the ones behind LiteLLM, and the price table."""
    text = [_MADE, "# Models\n\nA `model_path` is `provider/model`. These providers are called over plain HTTP:\n\n"]
    text.append("| provider | base URL | base variable | key variable |\n| --- | --- | --- | --- |\n")
    for provider in sorted(OPENAI_COMPATIBLE.values(), key=lambda row: row.prefix):
        keys = " or ".join(f"`{name}`" for name in provider.key_variables)
        bases = " or ".join(f"`{name}`" for name in provider.base_variables)
        base = provider.base or "yours"
        text.append(
            f"| `{provider.prefix}/` | {base} | {bases} | {keys}{'' if provider.key_needed else ' (optional)'} |\n"
        )
    behind = ", ".join(f"`{name}`" for name in sorted(LITELLM_ONLY))
    text.append(f"\n## Through LiteLLM\n\nThese need the extra `rubric` or `eval`: {behind}.\n")
    table = shipped_prices()
    text.append(f"\n## Prices\n\nUSD per million tokens as of {table.as_of}. Any other model has no known cost.\n\n")
    text.append("| model | input | cached input | output | up to prompt tokens |\n| --- | --- | --- | --- | --- |\n")
    for name, price in table.items():
        cached = price.input if price.cached_input is None else price.cached_input
        text.append(
            f"| `{name}` | {price.input:g} | {cached:g} | {price.output:g} | {price.max_prompt_tokens or ''} |\n"
        )
    return "".join(text)


def _errors(error: type[OsmosisError]) -> Iterator[type[OsmosisError]]:
    if error is not OsmosisError:
        yield error
    for child in error.__subclasses__():
        if child.__module__.startswith(("osmosis_ai.", "osmosis_trainer.")):
            yield from _errors(child)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def main() -> None:
    """Write the pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
