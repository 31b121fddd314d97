"""What this process never writes down: the platform's own credentials, and, with them, what a run was given.

Every line and event that reaches the disk passes a redactor: `OWN`, or one that knows the secrets of a run as well. How
values are found is osmosis_ai.redaction's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from osmosis_ai.redaction import Redactor, ambient_secret_values
from pydantic import SecretStr

from osmosis_platform.secrets.master_key import DEFAULT_FILE
from osmosis_platform.settings import Settings

_MIN_CHARS = 8  # a shorter password is a word that texts hold anyway
_FILE_BYTES = 64 << 10

OWN = Redactor()
"""Knows the credentials of this process; `learn` tells it."""


def learn(settings: Settings) -> None:
    """Lets `OWN` know the credentials of the settings and of the environment."""
    OWN.add(*(value for value in _values(settings, os.environ) if len(value) >= _MIN_CHARS))


def knowing(*values: str) -> Redactor:
    """A redactor for the texts of one run, job or remote: the platform's own credentials and these values."""
    return OWN.with_values(*values)


def _values(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr) and name != "database_url":
            yield value.get_secret_value()
    if settings.database_url is not None:
        import sqlalchemy as sa

        yield sa.make_url(settings.sqlalchemy_url).password or ""
    key_file = settings.master_key_file or settings.data_dir / DEFAULT_FILE
    for path in (key_file, settings.oidc_client_secret_file):
        if path is not None:
            yield _content(path)
    yield from ambient_secret_values(environ)


def _content(path: Path) -> str:
    """The text of a file of a secret; nothing where there is none yet, since whoever needs it says so."""
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "ignore").strip()
    except OSError:
        return ""
