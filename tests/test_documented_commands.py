"""Every `osmosis` command that a page or an agent skill names exists, with the options it is given."""

import re
from pathlib import Path

import click
import pytest
from osmosis_ai.cli.root import VALUE_OPTIONS, make_root

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "workspace-template"
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "packages").glob("*/README.md"),
        *TEMPLATE.rglob("*.md"),
        *TEMPLATE.rglob("*.toml"),
    )
)
# A command stands at the start of a code span or line, behind a prompt or another command.
_COMMAND = re.compile(r"(?:`|^ *(?:\$ |# )?|&& )osmosis((?: +[^\s`\"'|)#;,]+)+)", re.MULTILINE)
_EVERYWHERE = {"--json", "--plain", "-h", "--help"}


def problem(words: list[str]) -> str | None:
    """What is wrong with a command line, as far as its words and the names of its options go."""
    root = make_root()
    command: click.Command = root
    context = click.Context(root)
    while words and isinstance(command, click.Group):
        word = words.pop(0)
        if word in VALUE_OPTIONS:
            del words[:1]
        elif word.startswith("-"):
            if word not in _EVERYWHERE | {"--version", "-V"}:
                return f"no root option {word}"
        elif re.fullmatch(r"[a-z][a-z-]*[.:]?", word):
            found = command.get_command(context, word.rstrip(".:"))
            if found is None:
                return f"no command {word}"
            command = found
        else:
            return None  # a placeholder such as COMMAND, or prose
    known = {name for parameter in command.params for name in parameter.opts} | _EVERYWHERE
    unknown = [word for word in words if re.match(r"--\w", word) and word.partition("=")[0].rstrip(".") not in known]
    return f"no option {' '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_commands_that_exist(page: str):
    found = [match[1].split() for match in _COMMAND.finditer((ROOT / page).read_text(encoding="utf-8"))]
    wrong = {" ".join(words): said for words in found if (said := problem(list(words)))}
    assert not wrong


def test_the_skills_name_commands_at_all():
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATE.rglob("SKILL.md")]
    assert len(texts) >= 5
    assert all(_COMMAND.search(text) for text in texts)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("eval run a.toml --dataset-file f --rows 0-9", None),
        ("--workspace lab secret list --json", None),
        ("eval rnu a.toml", "no command rnu"),
        ("eval run a.toml --dataset f", "no option --dataset"),
        ("--platfrom x secret list", "no root option --platfrom"),
    ],
)
def test_a_wrong_line_would_be_found(line: str, said: str | None):
    assert problem(line.split()) == said
