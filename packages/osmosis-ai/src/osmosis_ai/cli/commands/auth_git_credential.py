"""`osmosis auth git-credential`: how Git gets the login. Which one it gets is `osmosis_ai.client.git_login`'s."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_ai.cli.root import Invocation

_MOST_BYTES = 1 << 16


@click.command("git-credential")
@click.argument("operation")
@click.option("--token-file", type=click.Path(path_type=Path), help="Take the token from this file first.")
@click.option("--known-as", metavar="URL", help="Answer for this address too, under which Git knows the platform.")
@click.pass_obj
def command(invocation: Invocation, operation: str, token_file: Path | None, known_as: str | None) -> None:
    """Tell Git the login of the platform: a credential helper, which Git runs and people need not.

    `osmosis quickstart` sets it for the clone. For every clone of a platform, set credential.URL.helper in Git to
    `!osmosis --platform URL auth git-credential`. It answers for that platform alone, with OSMOSIS_TOKEN or the stored
    login, and keeps nothing.
    """
    if operation != "get":
        return  # Git also tells its helpers what to store and to erase; logins come and go by `auth login` and `logout`
    import os
    import sys

    from osmosis_ai.client.git_login import Question, answer, find_token

    question = Question.parse(sys.stdin.read(_MOST_BYTES))
    token = find_token(question, os.environ, token_file=token_file, known_as=known_as, warn=invocation.output.warn)
    if token is not None:
        sys.stdout.write(answer(token))
