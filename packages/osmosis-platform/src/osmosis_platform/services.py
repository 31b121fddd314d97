"""The parts of one process, made once from the settings: routes, worker and administration take what they need from here."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from osmosis_platform.clock import Clock, system_clock
from osmosis_platform.db.database import Database
from osmosis_platform.errors import UnavailableError
from osmosis_platform.settings import Settings

if TYPE_CHECKING:
    from osmosis_platform.blobs.store import BlobStore
    from osmosis_platform.events.hub import EventHub
    from osmosis_platform.identity.oidc import IdentityProvider
    from osmosis_platform.secrets.vault import Vault


_making = threading.RLock()


if TYPE_CHECKING:
    part = cached_property
else:

    class part(cached_property):
        """A part that is made once, also when two requests ask for it first: some guard state of the process."""

        def __get__(self, instance: object, owner: type | None = None) -> object:
            """Makes it, or gives the one that somebody else just made."""
            with _making:
                return super().__get__(instance, owner)


@dataclass(frozen=True)
class Services:
    """What a process works with. Parts are made when first used, so that start-up waits for none of them.

    Attributes:
        settings: What the administrator set.
        database: Units of work.
        clock: The time of day.
    """

    settings: Settings
    database: Database
    clock: Clock = system_clock

    @part
    def vault(self) -> Vault:
        """Encryption of secrets, and the keys that sign object URLs and cookies."""
        from osmosis_platform.secrets.master_key import load_master_key, successors
        from osmosis_platform.secrets.vault import Vault

        return Vault(load_master_key(self.settings), lambda: successors(self.settings))

    @part
    def blobs(self) -> BlobStore:
        """Objects: files of this machine, or S3."""
        from osmosis_platform.blobs.store import open_blob_store

        return open_blob_store(self.settings, signing_key=lambda: self.vault.derive("object-urls"), clock=self.clock)

    @part
    def identity_provider(self) -> IdentityProvider | None:
        """Sign-in with OpenID Connect, where the administrator configured one."""
        if self.settings.oidc_issuer is None:
            return None
        from osmosis_platform.identity.oidc import IdentityProvider

        return IdentityProvider(self.settings, clock=self.clock)

    @part
    def hub(self) -> EventHub:
        """Wakes the readers of event streams in this process."""
        from osmosis_platform.events.hub import EventHub

        return EventHub()

    def close(self) -> None:
        """Releases the database's connections."""
        self.database.close()


def open_services(settings: Settings, *, clock: Clock = system_clock) -> Services:
    """The services of this process over the settings' database; the data directory is made, mode 700."""
    from osmosis_platform.secrets.redacting import learn

    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = (
            f"The data directory {settings.data_dir} cannot be made: {error.strerror}. Choose another with --data-dir."
        )
        raise UnavailableError(message, code="DATA_DIR") from error
    learn(settings)
    return Services(settings, Database(settings.sqlalchemy_url, clock=clock), clock)
