"""docs/reference is what the code says, and the pages of the repository link to files that exist."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "benchmark-config.md",
    "commands.md",
    "errors.md",
    "eval-config.md",
    "models.md",
    "platform-api.md",
    "platform-commands.md",
    "platform-errors.md",
    "platform-settings.md",
    "training-config.md",
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """The reference made now, in a process of its own: which error classes exist depends on what was imported."""
    out = tmp_path_factory.mktemp("reference")
    program = f"import reference; reference.REFERENCE = reference.Path({str(out)!r}); reference.main()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT / "scripts", check=True, timeout=60)
    return out


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_fresh(fresh, page):
    kept = (ROOT / "docs/reference" / page).read_text()
    assert kept == (fresh / page).read_text(), "run: .venv/bin/python scripts/reference.py"


def test_no_page_is_forgotten(fresh):
    assert sorted(path.name for path in fresh.iterdir()) == sorted(PAGES)


PROSE = [
    "README.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
]


@pytest.mark.parametrize("page", PROSE)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    missing = [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()]
    assert not missing


def test_modules_named_in_the_walk_exist():
    text = (ROOT / "docs/walk.md").read_text()
    modules = re.findall(r"`((?:evaluation|gateway)/\w+\.py)`", text)
    assert len(modules) > 8
    for module in modules:
        assert importlib.util.find_spec("osmosis_ai." + module.removesuffix(".py").replace("/", ".")), module
