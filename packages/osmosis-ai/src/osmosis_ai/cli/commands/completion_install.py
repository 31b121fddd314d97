"""`osmosis completion install`: puts the completion script where the user's shell finds it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from osmosis_ai.cli.completion import SHELLS, script
from osmosis_ai.cli.results import OperationResult
from osmosis_ai.errors import ValidationError

_VARIABLE = "_OSMOSIS_COMPLETE"
_PROGRAM = "osmosis"
_MARK = "# osmosis completion"


@click.command("install")
@click.option("--shell", type=click.Choice(SHELLS), help="The shell to set up; the one in $SHELL by default.")
def command(shell: str | None) -> OperationResult:
    """Make the shell complete osmosis commands and options.

    Writes the script under ~/.config/osmosis/completion and one line into ~/.bashrc or ~/.zshrc; for fish, one file
    under ~/.config/fish/completions. Running it again changes nothing.
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in SHELLS:
        problem = f"$SHELL names '{chosen}', which has no completion here" if chosen else "$SHELL names no shell"
        raise ValidationError(f"{problem}; choose one: osmosis completion install --shell {'|'.join(SHELLS)}")
    home = Path(os.environ.get("HOME") or Path.home())
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if chosen == "fish":
        target, startup = config / "fish" / "completions" / f"{_PROGRAM}.fish", None
    else:
        target = config / "osmosis" / "completion" / f"{_PROGRAM}.{chosen}"
        startup = home / (".bashrc" if chosen == "bash" else ".zshrc")
    text = script(chosen, _PROGRAM, _VARIABLE)
    if chosen == "zsh":
        text += "\n"
    changed = _write(target, text)
    if startup is not None:
        changed = _add_line(startup, chosen, target) or changed
    state = "is installed" if changed else "was installed before"
    written = [str(path) for path in (target, startup) if path is not None]
    return OperationResult(
        operation="completion.install",
        status="success" if changed else "noop",
        message=f"Completion for {chosen} {state}.",
        resource={"shell": chosen, "files": written},
        next_steps=[f"Open a new {chosen}, then type: {_PROGRAM} <Tab>"],
    )


def _write(target: Path, text: str) -> bool:
    if target.is_file() and target.read_bytes() == text.encode():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return True


def _add_line(startup: Path, shell: str, target: Path) -> bool:
    before = startup.read_bytes() if startup.exists() else b""
    if _MARK.encode() in before:
        return False
    prepare = "autoload -Uz compinit && compinit; " if shell == "zsh" else ""
    line = f"{prepare}source '{target}'  {_MARK}\n"
    with startup.open("ab") as file:
        file.write(b"\n" * (bool(before) and not before.endswith(b"\n")) + line.encode())
    return True
