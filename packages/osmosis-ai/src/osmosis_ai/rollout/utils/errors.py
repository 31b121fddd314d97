"""What an exception that ended a rollout means: its category, its text, the end of its traceback.

Decides from types only, never from text. Whose fault it is, the one who caught it knows.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from osmosis_ai.redaction import Redactor
from osmosis_ai.rollout.types.status import RolloutErrorCategory

_HTTP_ERROR_CLASSES = frozenset(
    {"SandboxConnectionException", "SandboxRateLimitException", "PoolStateStoreUnavailableException"}
)
_HTTP_STATUS_CLASSES = frozenset({"SandboxApiException", "SandboxAPIError"})
_HTTP_STATUSES = frozenset({401, 402, 403, 429, 500, 502, 503, 504})

TRACEBACK_LIMIT = 2000
"""Characters of a traceback that travel on the wire."""
_EXCEPTION_LINE_LIMIT = 800
_FINDINGS_LIMIT = 5
_SECRET_MIN_LENGTH = 6

_OURS = str(Path(__file__).resolve().parents[2]) + "/"
_LIBRARIES = {
    str(Path(path).resolve()) + "/"
    for key in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(key))
}
_NOT_THE_AGENTS = (*_LIBRARIES, "<frozen ")


def category_of(exc: BaseException) -> RolloutErrorCategory:
    """The published word for what kind of error it is."""
    if isinstance(exc, TimeoutError):
        return RolloutErrorCategory.TIMEOUT
    if isinstance(exc, (ValueError, TypeError, AssertionError)):
        return RolloutErrorCategory.VALIDATION_ERROR
    names = {cls.__name__ for cls in type(exc).__mro__}
    if names & _HTTP_ERROR_CLASSES:
        return RolloutErrorCategory.HTTP_ERROR
    if names & _HTTP_STATUS_CLASSES:
        status = getattr(exc, "status_code", None)
        if isinstance(status, int) and status in _HTTP_STATUSES:
            return RolloutErrorCategory.HTTP_ERROR
    return RolloutErrorCategory.AGENT_ERROR


def message_of(exc: BaseException, *, secrets: Iterable[str | None] = ()) -> str:
    """The exception's text, secrets removed; its class name when it has no text."""
    try:
        text = _findings(exc) if isinstance(exc, ValidationError) else str(exc)
    except Exception as broken:  # a foreign __str__ may raise
        text = f"{type(exc).__name__} (its text cannot be made: {type(broken).__name__})"
    if isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        first = exc.exceptions[0]
        text += f"; first: {type(first).__name__}: {message_of(first)}"
    return redactor_of(secrets).text(text if text.strip() else type(exc).__name__)


def _findings(error: ValidationError) -> str:
    """What a model of pydantic refused, place by place, without the links and echoed input of its own text."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(str(part) for part in (error.title, *item['loc']))}: {item['msg'].removeprefix('Value error, ')}"
        for item in found[:_FINDINGS_LIMIT]
    ]
    if len(found) > _FINDINGS_LIMIT:
        told.append(f"and {len(found) - _FINDINGS_LIMIT} more")
    return "; ".join(told)


def redactor_of(secrets: Iterable[str | None]) -> Redactor:
    """Looks for the secrets of a rollout; ones shorter than six characters would only garble texts."""
    return Redactor(secret for secret in secrets if secret and len(secret) >= _SECRET_MIN_LENGTH)


def traceback_tail(
    exc: BaseException, *, secrets: Iterable[str | None] = (), limit: int = TRACEBACK_LIMIT
) -> str | None:
    """The end of the traceback, in at most `limit` characters, innermost frame last.

    Our own frames are left out. What does not fit is the frames that are not the agent's (standard library and
    installed packages), then the outermost of the agent's own.
    """
    try:
        chain = _chain(exc)
        text = "\n\n".join(_section(link, agent_only=False) for link in chain)
        if len(text) > limit:
            text = "\n\n".join(_section(link, agent_only=True) for link in chain[-2:])
    except Exception as broken:  # formatting runs foreign __str__ and reads foreign files
        return f"{type(exc).__name__} (no traceback: {type(broken).__name__})"
    text = redactor_of(secrets).text(text)
    if len(text) > limit:
        cut = text[-(limit - 4) :]
        text = "...\n" + cut[cut.find("\n") + 1 :]
    return text


def _chain(exc: BaseException) -> list[BaseException]:
    """The exception after its causes, and a group's only leaf in place of the group."""
    chain: list[BaseException] = []
    link: BaseException | None = exc
    while link is not None and link not in chain and len(chain) < 5:
        chain.append(link)
        if isinstance(link, BaseExceptionGroup) and len(link.exceptions) == 1:
            link = link.exceptions[0]
        else:
            link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain[::-1]


def _section(exc: BaseException, *, agent_only: bool) -> str:
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith(_OURS)]
    if agent_only:
        own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_AGENTS)]
        frames = (own or frames)[-8:]
    last_line = "".join(traceback.format_exception_only(exc)).rstrip()
    if len(last_line) > _EXCEPTION_LINE_LIMIT:
        last_line = last_line[:_EXCEPTION_LINE_LIMIT] + "..."
    return "".join(traceback.format_list(frames)) + last_line
