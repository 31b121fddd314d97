"""A keyring backend that keeps its entries in a JSON file, chosen through PYTHON_KEYRING_BACKEND; can be told to fail."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FileKeyring(KeyringBackend):
    """Entries of `FILE_KEYRING`; `FILE_KEYRING_BROKEN` names the operations that fail."""

    priority = 1

    def _path(self) -> Path:
        return Path(os.environ["FILE_KEYRING"])

    def _entries(self) -> dict[str, str]:
        return json.loads(self._path().read_text()) if self._path().exists() else {}

    def _fail(self, operation: str) -> None:
        if operation in os.environ.get("FILE_KEYRING_BROKEN", "").split(","):
            raise KeyringLocked(operation)

    def get_password(self, service: str, username: str) -> str | None:
        self._fail("get")
        return self._entries().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._fail("set")
        self._path().write_text(json.dumps({**self._entries(), f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        self._fail("delete")
        entries = self._entries()
        if entries.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError(username)
        self._path().write_text(json.dumps(entries))
