"""Shell completion: the answers to bash, zsh and fish, and the scripts that ask.

Owns: the environment protocol (`_OSMOSIS_COMPLETE=complete_<shell>` or `source_<shell>`). Which words complete is
the tree's and the parameters' business.
"""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

SHELLS = ("bash", "zsh", "fish")
_WORDS_VARIABLE = "_TYPER_COMPLETE_ARGS"

_BASH = """\
_%(name)s_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(variable)s=complete_bash "$1" ) )
    return 0
}

complete -o default -F _%(name)s_completion %(program)s
"""
_ZSH = """\
#compdef %(program)s

_%(name)s_completion() {
  eval $(env %(words)s="${words[1,$CURRENT]}" %(variable)s=complete_zsh %(program)s)
}

compdef _%(name)s_completion %(program)s
"""
_FISH = (
    "complete --command %(program)s --no-files --condition"
    ' "env %(variable)s=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args %(words)s=(commandline -cp) %(program)s"'
    " --arguments"
    ' "(env %(variable)s=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args %(words)s=(commandline -cp) %(program)s)"\n'
)
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str, program: str, variable: str) -> str:
    """What a shell has to run once to complete `program`."""
    name = program.replace("-", "_")
    return _SCRIPTS[shell] % {"name": name, "program": program, "variable": variable, "words": _WORDS_VARIABLE}


def answer(root: click.Group, program: str, variable: str, instruction: str) -> int:
    """Answer one request of a shell; 1 when the request is not understood or fish asked and there is nothing."""
    action, _, shell = instruction.partition("_")
    if shell not in SHELLS or action not in ("complete", "source"):
        sys.stderr.write(f"{variable} must be complete_<shell> or source_<shell>, with one of {', '.join(SHELLS)}.\n")
        return 1
    if action == "source":
        sys.stdout.write(script(shell, program, variable))
        return 0
    words, incomplete = _bash_words() if shell == "bash" else _line_words()
    found = ShellComplete(root, {}, program, variable).get_completions(words, incomplete)
    items = [item for item in found if item.type == "plain"]  # files are the shell's own business
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION", "get-args") == "is-args":
        return 0 if items else 1
    sys.stdout.write(_written(shell, items))
    return 0


def _bash_words() -> tuple[list[str], str]:
    words = split_arg_string(os.environ.get("COMP_WORDS", ""))
    try:
        at = int(os.environ.get("COMP_CWORD", ""))
    except ValueError:
        at = len(words)
    return words[1:at], words[at] if at < len(words) else ""


def _line_words() -> tuple[list[str], str]:
    line = os.environ.get(_WORDS_VARIABLE, "")
    words = split_arg_string(line)[1:]
    if words and not line.endswith(" "):
        return words[:-1], words[-1]
    return words, ""


def _written(shell: str, items: list[CompletionItem]) -> str:
    match shell:
        case "zsh":
            if not items:
                return "_files\n"
            pairs = " ".join(f'"{_zsh(item.value)}":"{_zsh(item.help or "")}"' for item in items)
            return f"_arguments '*: :(({pairs}))'\n"
        case "fish":
            lines = [f"{item.value}\t{item.help}" if item.help else item.value for item in items]
        case _:
            lines = [item.value for item in items]
    return "".join(line + "\n" for line in lines)


def _zsh(text: str) -> str:
    for character in ('"', "'", "$", "`", "\\", ":"):
        text = text.replace(character, f"\\{character}" if character != "'" else "''")
    return text
