"""Traces over OTLP/HTTP, when an administrator names an endpoint (extra `otel`); without one nothing is loaded.

FastAPI makes the spans of requests itself; here they get somewhere to go, and lose the paths that are credentials.
"""

from __future__ import annotations

import structlog

from osmosis_platform.api.envelope import shown_path
from osmosis_platform.errors import UnavailableError
from osmosis_platform.settings import Settings

log = structlog.get_logger(__name__)


def configure_traces(settings: Settings, process: str) -> None:
    """Sends the spans of this process to the endpoint of the settings.

    Args:
        settings: `otlp_endpoint` is the collector's base URL; `/v1/traces` is added.
        process: `api` or `worker`, as the service's name.

    Raises:
        UnavailableError: The extra is not installed.
    """
    if settings.otlp_endpoint is None:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        message = "otlp_endpoint is set, and the extra `otel` is missing: pip install 'osmosis-platform[otel]'"
        raise UnavailableError(message, code="EXTRA_MISSING") from error

    class MaskPaths(SpanProcessor):
        """Addresses of objects are signed: whoever has the path has the object."""

        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            path = (span.attributes or {}).get("url.path")
            if isinstance(path, str):
                span.set_attribute("url.path", shown_path(path))

    provider = TracerProvider(resource=Resource.create({"service.name": f"osmosis-platform-{process}"}))
    endpoint = f"{settings.otlp_endpoint.rstrip('/')}/v1/traces"
    provider.add_span_processor(MaskPaths())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    log.info("traces are on", endpoint=endpoint)
