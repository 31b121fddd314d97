"""TOML files, configs and files of variables: what was written comes back, and any other text is told in our words."""

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.cli.environment import prepare_environment
from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.workspace.benchmark_config import load_benchmark_config
from osmosis_ai.workspace.config_check import InvalidConfigError
from osmosis_ai.workspace.eval_config import load_eval_config
from osmosis_ai.workspace.secrets import parse_secrets
from osmosis_ai.workspace.toml_file import read_toml
from osmosis_ai.workspace.training_config import load_training_config

KEY = st.sampled_from(["a", "b-1", "C_2", "dotted.name", 'quo"te', "ü", "#x", "[y]", " "])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f\x85\u2028\u2029"), max_size=12)
SCALAR = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
TABLES = st.dictionaries(KEY, st.dictionaries(KEY, VALUE, max_size=4), max_size=4)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


def literal(value: Any, layout: Callable[[str], str]) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return quoted(value) if all(ord(character) < 0x10000 for character in value) else f"'''\n{value}'''"
        case list():
            return layout("[") + "".join(f"{literal(item, layout)}," + layout("") for item in value) + "]"
        case float():
            return repr(value)
    return str(value)


@contextmanager
def a_file(content: bytes, name: str = "c.toml") -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        yield path


@settings(max_examples=60)
@given(TABLES, st.booleans(), st.booleans())
def test_a_file_is_read_back_and_every_key_is_found_on_its_line(tables, spread, comments):
    lines: list[str] = []
    places: dict[tuple[str, ...], int] = {}
    for table, values in tables.items():
        lines += ["# [no.table]", ""] if comments else []
        lines.append(f"[{quoted(table)}]")
        places[(table,)] = len(lines)
        for key, value in values.items():
            places[(table, key)] = len(lines) + 1
            written = literal(value, (lambda text: f"{text} # ']\n") if spread else str)
            lines += f"{quoted(key)} = {written}".split("\n")
    text = "\n".join(lines)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a text that this writer cannot put down
    with a_file(text.encode()) as path:
        read = read_toml(path)
    assert read.data == expected
    plain = {keys: line for keys, line in places.items() if not set("".join(keys)) & set("\\\"'.ü")}
    assert {keys: read.line_of(*keys) for keys in plain} == plain


@given(st.binary(max_size=40) | st.text("[]='\"\\\n#a.1{},", max_size=40).map(str.encode))
def test_any_bytes_are_toml_or_an_error_that_names_the_file(content):
    with a_file(content) as path:
        try:
            read = read_toml(path)
        except ValidationError as error:
            assert "c.toml" in error.message
            return
    assert all(line >= 1 for line in read.lines.values())


SECTION = st.sampled_from(
    ["experiment", "evaluation", "training", "sampling", "checkpoints", "advanced", "env", "secrets", "tasks", "execution",
     "verifier", "agents", "evaluatoin"]
)  # fmt: skip
WORD = st.sampled_from(
    ["rollout", "entrypoint", "model_path", "dataset", "branch", "commit_sha", "limit", "n", "pass_threshold", "required",
     "benchmark", "lr", "total_epochs", "rollout_batch_size", "harness", "model", "task_names", "task_set", "PATH", "x",
     "attempts_per_task", "eval_interval"]
)  # fmt: skip
LIKELY = (
    st.sampled_from(["alpha", "main.py", "../x", "/etc", "<your-x>", "", "OPENAI_API_KEY", "abcdef1", "\0"])
    | st.integers(-2, 3) | st.floats() | st.booleans() | st.lists(st.sampled_from(["A", "b", "A", ""]), max_size=3)
    | st.dictionaries(WORD, st.integers(0, 2) | st.just("A"), max_size=2)
)  # fmt: skip


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {inline(item)}" for key, item in value.items()) + "}"
    return literal(value, str)


@settings(max_examples=120)
@given(st.dictionaries(SECTION, st.dictionaries(WORD, LIKELY, max_size=6) | LIKELY, max_size=6), st.booleans())
def test_any_config_is_taken_or_every_finding_has_a_key_and_a_line_of_the_file(sections, complete):
    text = "".join(f"{name} = {inline(value)}\n" for name, value in sections.items() if not isinstance(value, dict))
    if complete and "experiment" not in sections:
        text += (
            '[experiment]\nrollout = "alpha"\nentrypoint = "main.py"\nmodel_path = "openai/x"\ndataset = "d"\n'
            'benchmark = "b"\n'
        )
    text += "# the end\n"
    for name, values in sections.items():
        if isinstance(values, dict):
            head = f"[[{name}]]" if name == "agents" else f"[{name}]"
            text += f"{head}\n" + "".join(f"{key} = {inline(value)}\n" for key, value in values.items())
    with a_file(text.encode()) as path:
        loads: list[Callable[[], Any]] = [
            lambda: load_eval_config(path, path.parent),
            lambda: load_training_config(path, path.parent),
            lambda: load_benchmark_config(path),
        ]
        for load in loads:
            try:
                load()
            except InvalidConfigError as error:
                assert error.findings
                for finding in error.findings:
                    assert finding["key"] and finding["message"] and f"{finding['key']}: " in error.message
                    assert 1 <= finding.get("line", 1) <= text.count("\n")
            except OsmosisError as error:
                assert error.error_code == "VALIDATION" and "c.toml" in error.message


NAME = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map("OSM_TEST_{}".format)


@contextmanager
def an_environment(folder: Path) -> Iterator[None]:
    before, at = dict(os.environ), Path.cwd()
    for name in ("OSMOSIS_ENV_FILE", "OSMOSIS_TOKEN", "OSMOSIS_PLATFORM_URL", "OSMOSIS_TOKEN_PLATFORM_URL"):
        os.environ.pop(name, None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(at)
        os.environ.clear()
        os.environ.update(before)


def dotenv(content: bytes, process: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables after a dotenv file was brought in, and the codes of warnings."""
    codes: list[str] = []
    with a_file(content, ".env") as path, an_environment(path.parent):
        os.environ.update(process)
        prepare_environment(None, None, lambda _message, code: codes.append(code))
        return {name: value for name, value in os.environ.items() if name.startswith("OSM_TEST_")}, codes


@settings(max_examples=60)
@given(
    st.dictionaries(
        NAME, st.text(st.characters(categories=["L", "N", "Zs", "S"], exclude_characters="$"), max_size=10)
    ),
    st.dictionaries(NAME, st.text("ab", max_size=3), max_size=3),
    st.sampled_from(["", "export "]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_variables_of_a_dotenv_file_come_back_and_the_process_wins(values, process, export, end):
    text = "".join(f"{export}{name}='{value}'{end}" for name, value in values.items())
    found, codes = dotenv(text.encode(), process)
    assert found == {**process, **values, **{name: value for name, value in process.items() if value}}
    assert codes == []


@settings(max_examples=60)
@given(st.binary(max_size=60) | st.text("OSM_TEST=A'\"\n#\\${} \0", max_size=40).map(str.encode))
def test_any_dotenv_file_is_read_or_refused_by_its_name(content):
    try:
        dotenv(content, {})
    except ValidationError as error:
        assert ".env" in error.message


@given(st.dictionaries(NAME, st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), max_size=12)), st.booleans())
def test_secrets_of_a_file_come_back(values, quotes):
    wrap = '"{}"' if quotes else "{}"
    lines = [f"{name}={wrap.format(value)}" for name, value in values.items()]
    if not quotes and any(value[:1] in ("'", '"') for value in values.values()):
        return
    assert parse_secrets("# comment\n\n" + "\n".join(lines), "f") == values


@given(st.text("NAME=s3cret'\" \n#", max_size=40) | st.text(max_size=40))
def test_a_line_that_is_no_secret_is_named_by_its_number_only(text):
    try:
        values = parse_secrets(text, "the-file")
    except ValidationError as error:
        number = int(error.message.split("line ")[1].split(" ")[0])
        assert error.message.startswith(f"Invalid line {number} in the-file: expected NAME=value.")
        assert 1 <= number <= text.count("\n") + 1
        return
    assert all(name.isidentifier() and name.isascii() for name in values)
