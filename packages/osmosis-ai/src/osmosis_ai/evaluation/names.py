"""Names of runs: making them up and judging given ones. Whether a name is taken is the caller's question."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from osmosis_ai.errors import ConflictError, ValidationError

max_name_chars = 96
lock_directory = ".locks"
_tries = 100

_adjectives = (
    "able amber apt azure bold brave brisk calm clear cosy crisp deft eager early fair fleet fond fresh gentle glad "
    "golden grand keen kind lively lucid mellow merry neat nimble noble plucky proud quick quiet rapid sage sharp "
    "steady sunny"
).split()
_animals = (
    "badger beaver bison bobcat camel crane curlew dingo dolphin eagle egret falcon ferret finch fox gecko gibbon "
    "heron ibex iguana jackal koala lark lemur lynx marten mole newt otter owl panda plover puffin raven robin seal "
    "stork tapir vole wombat"
).split()


def generate_run_name(exists: Callable[[str], bool]) -> str:
    """Make up an `adjective-animal-number` name that is not in use.

    Args:
        exists: Whether a name is taken.

    Raises:
        ConflictError: A hundred random names were all taken.
    """
    for _ in range(_tries):
        name = f"{secrets.choice(_adjectives)}-{secrets.choice(_animals)}-{secrets.randbelow(100)}"
        if not exists(name):
            return name
    raise ConflictError(f"No unused run name was found in {_tries} tries. Choose one with --name.")


def check_run_name(name: str) -> str:
    """Return `name` when it can be the name of a run and of its directory.

    Raises:
        ValidationError: It is empty, too long, starts with `-` or `.`, or holds anything but letters, digits, `.`,
            `_` and `-`.
    """
    if not name:
        problem = "it is empty"
    elif len(name) > max_name_chars:
        problem = f"it has {len(name)} characters, at most {max_name_chars} are allowed"
    elif name[0] in "-.":
        problem = f"it starts with {name[0]!r}"
    elif odd := next((char for char in name if not (char.isalnum() or char in "._-")), None):
        problem = f"it holds {odd!r}"
    else:
        return name
    raise ValidationError(
        f"{name[:100]!r} cannot be the name of a run: {problem}. Use letters, digits, '.', '_' and '-', "
        "starting with a letter, a digit or '_'."
    )
