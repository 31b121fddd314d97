"""Templates, their filters, the assets, and the headers of every page."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from osmosis_platform.clock import wire_time
from osmosis_platform.errors import MissingError

if TYPE_CHECKING:
    from jinja2 import Environment, Undefined
    from markupsafe import Markup

_WEB = Path(__file__).parents[2] / "web"
_CELL = 300
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    # With `no-referrer` browsers send `Origin: null` with forms, and no form could be told to be ours.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


def page(request: Request, template: str, *, status: int = 200, **facts: Any) -> HTMLResponse:
    """One page.

    Args:
        request: What it answers; a signed-in person is found in its state.
        template: Its name without `.html`.
        status: Of the answer.
        facts: What the template shows; `failure` and `given` bring a form back as it was sent.
    """
    state, services = request.state, request.app.state.services
    usual = {
        "person": getattr(state, "person", None),
        "csrf": getattr(state, "csrf", None),
        "zone": getattr(state, "zone", "UTC"),
        "failure": None,
        "given": {},
        "status": status,
        "base_url": services.settings.base_url,
        "now": services.clock(),
    }
    text = _environment().get_template(f"{template}.html").render(usual | facts)
    return HTMLResponse(text, status, headers=HEADERS)


def go_to(path: str) -> RedirectResponse:
    """To another page of ours, by GET."""
    return RedirectResponse(path, 303, headers={"Cache-Control": "no-store"})


def local_page(path: str | None) -> str:
    """A path of this platform to go on to, or the start where somebody wrote another address."""
    if path and re.fullmatch(r"/(?![/\\])[!-\[\]-~]*", path):
        return path
    return "/"


def asset(name: str) -> Response:
    """A file of web/assets.

    Raises:
        MissingError: There is none of that name.
    """
    found = _assets().get(name)
    if found is None:
        raise MissingError(f"There is no file {name[:60]!r}.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Security-Policy": "default-src 'none'"}
    return Response(found, media_type=_TYPES[Path(name).suffix], headers=headers)


@cache
def _assets() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (_WEB / "assets").iterdir() if path.suffix in _TYPES}


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_WEB / "templates"),
        autoescape=True,
        undefined=_absent(),
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "wire": wire_time,
        "shown": _shown,
        "ago": _ago,
        "size": _size,
        "browser": _browser,
        "asset": _address,
        "cell": _cell,
        "shell": shlex.quote,
        "said": _said,
    }
    return environment


def _absent() -> type[Undefined]:
    """Names that a page was not given: false in conditions, an error where they would be printed."""
    from jinja2 import StrictUndefined

    class Absent(StrictUndefined):
        __slots__ = ()

        def __bool__(self) -> bool:  # ty: ignore[incompatible-method-override]
            return False

    return Absent


@cache
def _address(name: str) -> str:
    return f"/assets/{name}?v={sha256(_assets()[name]).hexdigest()[:12]}"


def _shown(moment: datetime, zone: str, *, seconds: bool = False) -> str:
    there = moment.astimezone(ZoneInfo(zone))
    return f"{there.day} {there:%b %Y, %H:%M:%S}" if seconds else f"{there.day} {there:%b %Y, %H:%M}"


def _ago(moment: datetime, now: datetime, zone: str) -> str:
    """A moment as people say it: how long ago or how soon within a month, else its day."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < 45:
        return "just now" if seconds >= 0 else "in a moment"
    for unit, length, limit in (("minute", 60, 3600), ("hour", 3600, 86_400), ("day", 86_400, 30 * 86_400)):
        if distance < limit - length / 2:
            count = max(1, round(distance / length))
            text = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    there = moment.astimezone(ZoneInfo(zone))
    return f"{there.day} {there:%b %Y}"


def _said(message: str) -> Markup:
    """A message, with what stands in backticks as code."""
    from markupsafe import Markup, escape

    parts = message.split("`")
    if len(parts) % 2 == 0:
        return escape(message)
    marked = (Markup("<code>{}</code>").format(part) if odd % 2 else escape(part) for odd, part in enumerate(parts))
    return Markup("").join(marked)


def _cell(value: Any) -> str:
    """A JSON value as one cell of a table: texts as they are, others as JSON, none of them without end."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def _size(count: int | None) -> str:
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return "–"


def _browser(agent: str | None) -> str:
    """A browser as people know it; the rest of what it says of itself tells nobody anything."""
    text = agent or ""
    names = {"Edg/": "Edge", "OPR/": "Opera", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
    systems = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Mac OS X": "macOS", "Windows": "Windows"}
    name = next((shown for mark, shown in names.items() if mark in text), "Browser")
    system = next((shown for mark, shown in (systems | {"Linux": "Linux"}).items() if mark in text), None)
    return f"{name} on {system}" if system else name
