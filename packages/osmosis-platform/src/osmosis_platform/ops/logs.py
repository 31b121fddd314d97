"""Where log lines go: text for a terminal, one JSON object a line otherwise; standard error, never a secret."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from osmosis_platform.secrets.redacting import OWN, learn
from osmosis_platform.settings import Settings


class _StandardError(io.TextIOBase):
    """Standard error as it is when a line is written: loggers outlive whoever replaced it for a while."""

    def write(self, text: str) -> int:
        """Writes there."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flushes it."""
        sys.stderr.flush()


_ERRORS = cast("TextIO", _StandardError())


def configure_logs(settings: Settings) -> None:
    """Sets up structlog, and routes the standard library's loggers through it."""
    text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    level = getattr(logging, settings.log_level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # a plain traceback: the renderer's own shows variables, so secrets
    ]
    if text:
        shared.append(_for_terminals)
    learn(settings)
    renderer = structlog.dev.ConsoleRenderer() if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer, _without_secrets],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(_ERRORS),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer, _without_secrets],
    )
    handler = logging.StreamHandler(_ERRORS)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))  # other people's libraries speak when something is wrong


def _for_terminals(_logger: object, _method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Writes control characters out: paths come from strangers, and a terminal obeys escape sequences."""
    for name, value in facts.items():
        if name != "exception" and isinstance(value, str) and not value.isprintable():
            facts[name] = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)
    return facts


def _without_secrets(_logger: object, _method: str, line: Any) -> str:
    """A rendered line without the credentials of this process."""
    return OWN.text(line)
