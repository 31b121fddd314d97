"""What a rollout client raises besides httpx's own transport errors.

RolloutProtocolError          the server answered, but not as a rollout server should
RolloutAdmissionTimeoutError  the server had no room for the rollout in time
"""

from __future__ import annotations

from osmosis_ai.errors import OsmosisError


class RolloutProtocolError(OsmosisError, RuntimeError):
    """The server answered with a status or a body that the protocol does not know here.

    Args:
        message: What was asked and what came back.
        status_code: The HTTP status of the answer.
    """

    code = "ROLLOUT_PROTOCOL"

    def __init__(self, message: str = "", *, status_code: int = 0) -> None:
        super().__init__(message, details={"status_code": status_code})
        self.status_code = status_code


class RolloutAdmissionTimeoutError(OsmosisError, TimeoutError):
    """The server did not admit the rollout within the admission timeout."""

    code = "ROLLOUT_ADMISSION_TIMEOUT"
