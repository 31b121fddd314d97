"""The platform's pages of docs/reference/: settings, commands, error codes and routes, from the code. See reference.py."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import osmosis_platform
from osmosis_platform.api.app import create_app
from osmosis_platform.cli.main import root
from osmosis_platform.errors import ServiceError
from osmosis_platform.services import open_services
from osmosis_platform.settings import SETTINGS_FILE, Settings


def settings(cell: Callable[[str], str]) -> str:
    """Every setting, its variable and its default."""
    rows = []
    for name, field in Settings.model_fields.items():
        variable = field.validation_alias or f"OSMOSIS_PLATFORM_{name.upper()}"
        kind = _kind(field.annotation)
        default = "–" if field.default in (None, "") else f"`{field.default}`"
        rows.append(f"| `{name}` | `{variable}` | {cell(kind)} | {default} | {cell(field.description or '')} |\n")
    about = (
        "A setting is a flag of `osmosis-platform up` where there is one, else the variable, else a line of "
        f"`{SETTINGS_FILE}` in the data directory. Sizes are bytes; times are seconds unless the name says otherwise.\n\n"
    )
    head = "| setting | variable | type | default | meaning |\n| --- | --- | --- | --- | --- |\n"
    return f"# Settings of the platform\n\n{about}{head}{''.join(rows)}"


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    parts = [part for part in get_args(annotation) if part is not type(None)] or [annotation]
    return {"str": "text", "SecretStr": "text", "Path": "path", "int": "integer", "float": "number"}.get(
        parts[0].__name__, "true or false"
    )


def commands(options: Callable[[click.Command, click.Context, str], str]) -> str:
    """One section a command of `osmosis-platform`."""
    text = ["# Commands of osmosis-platform\n\n"]
    for words, command in _walk(root, ("osmosis-platform",)):
        context = click.Context(command, info_name=" ".join(words))
        usage = " ".join([*words, *command.collect_usage_pieces(context)])
        about = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
        text.append(f"## {' '.join(words)}\n\n```\n{usage}\n```\n\n{about}\n\n{options(command, context, '')}")
    return "".join(text).rstrip() + "\n"


def _walk(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group, info_name=words[-1])
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _walk(command, (*words, name))
        else:
            yield (*words, name), command


def errors(cell: Callable[[str], str]) -> str:
    """The stable codes of the platform's answers, from the classes and from where they are raised."""
    rows = set()
    sources = []
    for module in pkgutil.walk_packages(osmosis_platform.__path__, "osmosis_platform."):
        if ".migrations" not in module.name:
            sources.append(inspect.getsource(importlib.import_module(module.name)))
    waiting: list[type[ServiceError]] = [ServiceError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if error is not ServiceError:
            rows.add((error.code, error.status, (inspect.getdoc(error) or "").partition("\n")[0]))
    lines = "".join(f"| `{code}` | {status} | {cell(meaning)} |\n" for code, status, meaning in sorted(rows))
    known = {code for code, _, _ in rows}
    special = sorted({code for text in sources for code in re.findall(r'\bcode="([A-Z][A-Z_]+)"', text)} - known)
    listed = ", ".join(f"`{code}`" for code in special)
    about = "`code` in the body of an answer that is no success, beside `message`, and `field` or `issues` where they help.\n\n"
    more = f"\nMore specific codes stand for one situation each, which their message names: {listed}.\n"
    return f"# Error codes of the platform\n\n{about}| code | status | when |\n| --- | --- | --- |\n{lines}{more}"


def routes(cell: Callable[[str], str]) -> str:
    """Every route of the API, the action that it asks the permission table for, and what it does."""
    with tempfile.TemporaryDirectory() as folder:
        services = open_services(Settings(data_dir=Path(folder) / "data"))
        document: dict[str, Any] = create_app(services).openapi()
        services.close()
    rows = []
    for path, methods in sorted(document["paths"].items()):
        for method, route in methods.items():
            about = (route.get("description") or route.get("summary") or "").partition("\n")[0]
            action = route.get("x-osmosis-action")
            who = f"`{action}`" if action else "everybody" if route.get("x-osmosis-open") else "–"
            rows.append(f"| {method.upper()} | `{path}` | {who} | {cell(about)} |\n")
    about = (
        "The description for machines is at `/api/openapi.json` of a running platform. `/api/cli` is the wire of the "
        "`osmosis` command line, `/api/v1` is for everybody else; both take `Authorization: Bearer <token>`.\n\n"
    )
    head = "| method | path | action | what it does |\n| --- | --- | --- | --- |\n"
    return f"# Routes of the platform\n\n{about}{head}{''.join(rows)}"
