"""The examples of deploy/ are what the platform knows: every option, variable and path in them, and it starts with them."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import yaml
from osmosis_platform.cli.main import root
from osmosis_platform.ops.first_start import Bootstrap
from osmosis_platform.ops.listening import bind
from osmosis_platform.ops.settings_file import names, variable_of
from osmosis_platform.settings import Settings
from platform_process import PlatformProcess

DEPLOY = Path(__file__).parents[4] / "deploy"
OTHERS = {"OSMOSIS_HOST", "OSMOSIS_OWNER", "OSMOSIS_WORKSPACE"}  # of compose.yaml itself, asked for or with a default
GIVEN = {"OSMOSIS_HOST": "osmosis.example.com", "OSMOSIS_OWNER": "ada@example.test", "DATABASE_PASSWORD": "pw"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in names():
        monkeypatch.delenv(variable_of(name), raising=False)


def variables(*, commented=False):
    found = {}
    for line in (DEPLOY / "environment.example").read_text().splitlines():
        matched = re.fullmatch(r"(#?)([A-Z][A-Z0-9_]*)=(.*)", line)
        if matched and (commented or not matched[1]):
            found[matched[2]] = matched[3]
    return found


def filled(text):
    """As compose fills in its variables."""
    return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: GIVEN.get(m[1], m[2] or ""), text)


def unit():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string((DEPLOY / "osmosis-platform.service").read_text())
    return parser["Service"]


def compose():
    return yaml.safe_load(filled((DEPLOY / "compose.yaml").read_text()))["services"]


def checked(command):
    """Parses a command line of ours without running it."""
    name, *arguments = command
    found = root.get_command(None, name)
    assert found is not None, name
    return found.make_context(name, list(arguments)).params


def test_every_variable_is_one_that_the_platform_reads():
    known = {variable_of(name) for name in names()} | OTHERS
    seen = set()
    for path in DEPLOY.iterdir():
        used = set(re.findall(r"\bOSMOSIS_[A-Z0-9_]+\b", path.read_text()))
        assert used <= known, (path.name, used - known)
        seen |= used
    assert len(seen) > 12


def test_the_variables_of_the_example_are_settings_that_start():
    by_name = {variable_of(name): name for name in names()}
    for given in (variables(), variables(commented=True)):
        facts = {by_name[name]: value for name, value in given.items() if name in by_name and value}
        Settings(**{Settings.model_fields[name].validation_alias or name: value for name, value in facts.items()})


def test_the_unit_runs_a_command_that_exists_in_a_directory_of_its_own():
    service = unit()
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/osmosis-platform")
    assert checked(arguments)
    directory = service["Environment"].removeprefix("OSMOSIS_PLATFORM_DATA_DIR=")
    assert directory == f"/var/lib/{service['StateDirectory']}"
    assert service["EnvironmentFile"].removeprefix("-") in (DEPLOY / "README.md").read_text()


def test_the_platform_starts_as_the_unit_and_its_example_say(tmp_path):
    with PlatformProcess(tmp_path / "data", env=variables()) as platform:
        assert (platform.url, platform.token[:4]) == ("https://osmosis.example.com", "osm_")


def test_compose_names_files_that_exist_and_settings_that_listen(monkeypatch):
    services = compose()
    platform = services["platform"]
    assert (DEPLOY / platform["build"]["context"] / platform["build"]["dockerfile"]).is_file()
    assert (DEPLOY / services["proxy"]["volumes"][0].partition(":")[0]).is_file()
    params = checked(platform["command"])
    Bootstrap.parse(params["bootstrap"], params["bootstrap_token_file"])
    for name, value in {**image_variables(), **platform["environment"]}.items():
        monkeypatch.setenv(name, value)
    settings = Settings(port=0)
    assert settings.base_url == "https://osmosis.example.com"
    assert settings.sqlalchemy_url == "postgresql+psycopg://osmosis:pw@database/osmosis"
    sock, _ = bind(settings)
    sock.close()
    mounted = [volume.partition(":")[2] for volume in platform["volumes"]]
    assert mounted == [str(settings.data_dir)]
    assert str(params["bootstrap_token_file"]).startswith(mounted[0])


def image_variables():
    text = (DEPLOY / "Containerfile").read_text()
    return dict(re.findall(r"(OSMOSIS_PLATFORM_\w+)=(\S+)", text))


def test_the_image_is_made_of_what_is_here_and_looks_where_it_listens():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert steps[0][0] == "FROM"
    for word, rest in steps:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (DEPLOY.parent / source).exists(), source
    copied = [DEPLOY.parent / rest.split()[0] for word, rest in steps if word == "COPY" and not rest.startswith("--")]
    for source in copied:
        for link in (path for path in source.rglob("*") if path.is_symlink() and "__pycache__" not in path.parts):
            assert any(link.resolve().is_relative_to(each) for each in copied), f"{link} leads out of the image"
    assert yaml.safe_load(dict(steps)["ENTRYPOINT"]) == ["osmosis-platform"]
    assert checked(yaml.safe_load(dict(steps)["CMD"]))
    port = image_variables()["OSMOSIS_PLATFORM_PORT"]
    assert dict(steps)["EXPOSE"] == port
    assert f"127.0.0.1:{port}/readyz" in text
    assert f"platform:{port}" in (DEPLOY / "Caddyfile").read_text()


def test_commands_that_the_readme_names_exist():
    for line in (DEPLOY / "README.md").read_text().splitlines():
        for words in re.findall(r"osmosis-platform ([a-z][a-z-]+)\b(?! -f)", line):
            if words not in {"osmosis"}:
                assert root.get_command(None, words) is not None, line
