"""The client of a rollout server. Loads httpx only when a client is made."""

from osmosis_ai.rollout.client.errors import RolloutAdmissionTimeoutError, RolloutProtocolError
from osmosis_ai.rollout.client.handle import RolloutHandle
from osmosis_ai.rollout.client.session import RolloutClient

__all__ = ["RolloutAdmissionTimeoutError", "RolloutClient", "RolloutHandle", "RolloutProtocolError"]
