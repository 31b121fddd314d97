"""Keeps the Agents SDK's tracing at home: by default it would export prompts to OpenAI with any key it finds.

Owns that one decision; `openai_agents` makes it at import. Everything else about tracing is the SDK's.
"""

from __future__ import annotations

import os
from typing import Any

from agents import set_trace_processors
from agents.tracing import processors, setup
from agents.tracing.processor_interface import TracingProcessor


def keep_traces_at_home() -> None:
    """Take out the export to OpenAI that the SDK starts by default, unless tracing is configured.

    It is configured, and left alone, when a trace provider exists already or OPENAI_AGENTS_DISABLE_TRACING is set (`0`
    keeps the SDK's own export). Processors added later work as usual, and `set_tracing_export_api_key` turns the SDK's
    own export on.
    """
    if setup.GLOBAL_TRACE_PROVIDER is None and "OPENAI_AGENTS_DISABLE_TRACING" not in os.environ:
        set_trace_processors([_ExportOnceItHasAKey()])


class _ExportOnceItHasAKey(TracingProcessor):
    """The SDK's default processor, as soon as its exporter was given a key; nothing before."""

    def _target(self) -> TracingProcessor | None:
        exporter = processors._global_exporter  # asking default_exporter() would make it, with a client of its own
        given = exporter is not None and exporter._api_key
        return processors.default_processor() if given else None

    def on_trace_start(self, trace: Any) -> None:
        if target := self._target():
            target.on_trace_start(trace)

    def on_trace_end(self, trace: Any) -> None:
        if target := self._target():
            target.on_trace_end(trace)

    def on_span_start(self, span: Any) -> None:
        if target := self._target():
            target.on_span_start(span)

    def on_span_end(self, span: Any) -> None:
        if target := self._target():
            target.on_span_end(span)

    def shutdown(self) -> None:
        if target := self._target():
            target.shutdown()

    def force_flush(self) -> None:
        if target := self._target():
            target.force_flush()
