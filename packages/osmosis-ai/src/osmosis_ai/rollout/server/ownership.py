"""The ownership log: one OTLP log record for every status change of a rollout, so that a fleet's rollouts can be found.

Own provider, own queue; nothing here can slow or fail a rollout. Loaded only when an endpoint is configured.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout.context import ROLLOUT_INSTANCE_ID_ENV, ROLLOUT_NAME_ENV
from osmosis_ai.rollout.types.status import RolloutStatus

logger = logging.getLogger(__name__)

ENDPOINT_ENV = "OSMOSIS_ROLLOUT_OTLP_ENDPOINT"
SERVER_ID_ENV = "OSMOSIS_ROLLOUT_SERVER_ID"
NAMESPACE_ENV = "OSMOSIS_ROLLOUT_NAMESPACE"
SERVICE_NAME = "osmosis-rollout-server"
EVENT_NAME = "rollout.ownership"
METADATA_KEY = "osmosis_observability"

_QUEUE_SIZE = 1024
_BATCH_SIZE = 128
_DELAY_MS = 1000
_EXPORT_TIMEOUT_S = 2
_MAX_LENGTH = 512


class OwnershipLog:
    """Sends ownership records to `<endpoint>/v1/logs`.

    Args:
        endpoint: Base URL of an OTLP/HTTP collector.
        server_id: What the records call this server.
        server_name: The rollout's name.
        namespace: Where the server runs.
    """

    def __init__(self, endpoint: str, *, server_id: str, server_name: str | None, namespace: str | None) -> None:
        exporter = OTLPLogExporter(endpoint=f"{endpoint.rstrip('/')}/v1/logs", timeout=_EXPORT_TIMEOUT_S)
        self._provider = LoggerProvider(
            resource=Resource({"service.name": SERVICE_NAME, "service.version": PACKAGE_VERSION}),
            shutdown_on_exit=False,
        )
        self._provider.add_log_record_processor(
            BatchLogRecordProcessor(
                exporter,
                schedule_delay_millis=_DELAY_MS,
                max_export_batch_size=_BATCH_SIZE,
                export_timeout_millis=_EXPORT_TIMEOUT_S * 1000,
                max_queue_size=_QUEUE_SIZE,
            )
        )
        self._log = self._provider.get_logger(SERVICE_NAME, PACKAGE_VERSION)
        self._fixed = _printable({"server_id": server_id, "server_name": server_name, "namespace": namespace})
        self._sequence = itertools.count(1)

    @classmethod
    def from_environment(cls, instance_id: str) -> OwnershipLog | None:
        """The log that the environment asks for; None, with a warning, when it cannot be made."""
        try:
            return cls(
                os.environ[ENDPOINT_ENV],
                server_id=os.environ.get(SERVER_ID_ENV)
                or os.environ.get(ROLLOUT_INSTANCE_ID_ENV)
                or socket.gethostname()
                or instance_id,
                server_name=os.environ.get(ROLLOUT_NAME_ENV),
                namespace=os.environ.get(NAMESPACE_ENV),
            )
        except Exception as exc:
            logger.warning("no ownership log: %s: %s", type(exc).__name__, exc)
            return None

    def record(self, rollout_id: str, status: RolloutStatus, metadata: dict[str, Any] | None) -> None:
        """Queue the record of a status change."""
        try:
            run = (metadata or {}).get(METADATA_KEY)
            run = run if isinstance(run, dict) else {}
            attributes: dict[str, Any] = {"event": EVENT_NAME, **self._fixed, "status": status.value}
            attributes |= _printable(
                {"rollout_id": rollout_id, "run_id": run.get("run_id"), "run_name": run.get("run_name")}
            )
            attributes["event_sequence"] = next(self._sequence)
            now = time.time_ns()
            self._log.emit(
                LogRecord(
                    timestamp=now,
                    observed_timestamp=now,
                    severity_number=SeverityNumber.INFO,
                    severity_text="INFO",
                    body=EVENT_NAME,
                    attributes=attributes,
                    event_name=EVENT_NAME,
                )
            )
        except Exception:
            logger.debug("an ownership record is lost", exc_info=True)

    def close(self) -> None:
        """Export what is queued, within the export timeout."""
        try:
            self._provider.shutdown()
        except Exception:
            logger.debug("the ownership log did not close cleanly", exc_info=True)


def _printable(values: dict[str, Any]) -> dict[str, str]:
    """Only non-empty printable strings of at most 512 characters may leave the machine."""
    return {
        key: value
        for key, value in values.items()
        if isinstance(value, str) and value and len(value) <= _MAX_LENGTH and value.isprintable()
    }
