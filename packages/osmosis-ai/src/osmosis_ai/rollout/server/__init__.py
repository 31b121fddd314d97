"""The rollout server's public face; it is imported when first used and needs the extra `server`."""

from typing import TYPE_CHECKING

from osmosis_ai.extras import lazy_exports

if TYPE_CHECKING:
    from osmosis_ai.rollout.server.app import create_rollout_server

__all__ = ["create_rollout_server"]

__getattr__, __dir__ = lazy_exports(
    __name__, {"create_rollout_server": "osmosis_ai.rollout.server.app"}, extra="server"
)
