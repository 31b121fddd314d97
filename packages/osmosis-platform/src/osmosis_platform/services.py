"""The parts of one process, made once from the settings: routes, worker and administration take what they need from here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from osmosis_platform.clock import Clock, system_clock
from osmosis_platform.db.database import Database
from osmosis_platform.settings import Settings

if TYPE_CHECKING:
    from osmosis_platform.blobs.store import BlobStore
    from osmosis_platform.events.hub import EventHub
    from osmosis_platform.secrets.vault import Vault


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

    @cached_property
    def vault(self) -> Vault:
        """Encryption of secrets, and the keys that sign object URLs and cookies."""
        from osmosis_platform.secrets.vault import Vault, load_master_key

        return Vault(load_master_key(self.settings))

    @cached_property
    def blobs(self) -> BlobStore:
        """Objects: files of this machine, or S3."""
        from osmosis_platform.blobs.store import open_blob_store

        return open_blob_store(self.settings, signing_key=lambda: self.vault.derive("object-urls"), clock=self.clock)

    @cached_property
    def hub(self) -> EventHub:
        """Wakes the readers of event streams in this process."""
        from osmosis_platform.events.hub import EventHub

        return EventHub()

    def close(self) -> None:
        """Releases the database's connections."""
        self.database.close()


def open_services(settings: Settings, *, clock: Clock = system_clock) -> Services:
    """The services of this process over the settings' database; the data directory is made, mode 700."""
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Services(settings, Database(settings.sqlalchemy_url, clock=clock), clock)
