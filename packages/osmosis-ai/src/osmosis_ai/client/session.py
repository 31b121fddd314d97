"""One command's conversation with the platform: requests with scope, login and version, replies as values or errors.

Owns: the connection, the headers, retries and the warnings that replies carry. Which endpoints exist, the callers know.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from osmosis_ai.client.credentials import Credential, resolve_credential
from osmosis_ai.client.http import httpx_module, make_client, unreachable
from osmosis_ai.client.redaction import redact_error
from osmosis_ai.client.refusals import RENAMED_REPOSITORY_CODES, SCOPE_CODES, refusal
from osmosis_ai.client.wire import Record, parse_json
from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError

if TYPE_CHECKING:
    import httpx

    from osmosis_ai.client.scope import Scope

API_PREFIX = "/api/cli"
TIMEOUT_S = 30.0
PAGE_SIZE = 50
_RETRIED = frozenset({429, 500, 502, 503, 504})
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_REQUEST_ID = re.compile(r"[\w.-]{1,100}")

type Warn = Callable[[str, str | None], None]
"""Gets a warning's message and its code."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some or all things of a list.

    Attributes:
        items: The objects as the platform sent them.
        total_count: How many there are in all.
        has_more: Whether more follow.
        next_offset: Where they begin.
        reply: The last reply, for what it says beside the list.
    """

    items: list[Record]
    total_count: int
    has_more: bool
    next_offset: int | None
    reply: Record


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of a log, the oldest first.

    Attributes:
        entries: Objects with the five published keys.
        next_cursor: Leads to the older ones; None at the end.
    """

    entries: list[dict[str, Any]]
    next_cursor: str | None


def open_client(
    scope: Scope | None, *, warn: Warn, environ: Mapping[str, str] | None = None, credential: Credential | None = None
) -> PlatformClient:
    """A client for the active platform with the login of this process; no request is made yet.

    Args:
        scope: The workspace the requests are about; None for the few that need none.
        warn: Gets what replies warn of.
        environ: The environment; the process's by default.
        credential: A login to use instead of looking one up.

    Raises:
        AuthRequiredError: No login, or an expired one.
        OsmosisError: The environment's token is not for this platform; the stored login cannot be read.
    """
    return PlatformClient(credential or resolve_credential(environ, warn), scope, warn)


def segment(name: str) -> str:
    """A name as one segment of a path: nothing in it is a separator.

    Raises:
        ValidationError: It is blank, so that the path would be another one.
    """
    if not name.strip():
        raise ValidationError("A name or id is needed, and the one given is blank.")
    quoted = quote(name, safe="", errors="surrogateescape")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


class PlatformClient:
    """Requests to one platform with one login and at most one scope. Use it as a context manager; threads may share it.

    Args:
        credential: The login.
        scope: The workspace; None sends no scope header.
        warn: Gets what replies warn of.
    """

    def __init__(self, credential: Credential, scope: Scope | None, warn: Warn) -> None:
        self.credential = credential
        self.scope = scope
        self.platform_url = credential.platform_url
        self._warn = warn
        self._secrets: set[str] = {credential.token}
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def hide(self, *values: str) -> None:
        """Cut values, such as supplied secrets, out of every error from now on."""
        self._secrets.update(filter(None, values))

    def get(
        self, path: str, *, params: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S, attempts: int = 1
    ) -> dict[str, Any]:
        """Fetch an object; see `request`."""
        return self.request("GET", path, params=params, timeout=timeout, attempts=attempts)

    def post(
        self, path: str, json: Mapping[str, Any] | None = None, *, timeout: float = TIMEOUT_S, attempts: int = 1
    ) -> dict[str, Any]:
        """Send an object, `{}` by default; see `request`."""
        return self.request("POST", path, body=json or {}, timeout=timeout, attempts=attempts)

    def put(self, path: str, json: Mapping[str, Any] | None = None, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """Send an object; see `request`."""
        return self.request("PUT", path, body=json or {}, timeout=timeout)

    def patch(self, path: str, json: Mapping[str, Any] | None = None, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """Send an object; see `request`."""
        return self.request("PATCH", path, body=json or {}, timeout=timeout)

    def delete(self, path: str, json: Mapping[str, Any] | None = None, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """Delete, with a body where there is one; see `request`."""
        return self.request("DELETE", path, body=json, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT_S,
        attempts: int = 1,
    ) -> dict[str, Any]:
        """Make a request and return the reply's object; no content is an empty one.

        Args:
            method: The HTTP method.
            path: After `/api/cli`, its names made by `segment`.
            params: The query; None values are left out.
            body: Sent as JSON.
            timeout: Most seconds to wait for the connection and between bytes.
            attempts: How often a request that is safe to repeat is tried, on no reply, 429 and 5xx.

        Raises:
            OsmosisError: By the reply's status and code, see `refusals`; PLATFORM_ERROR without a reply.
        """
        wait = _FIRST_WAIT_S
        for attempt in range(1, attempts + 1):
            try:
                reply = self._send(method, path, params, body, timeout)
            except UnicodeEncodeError:
                raise ValidationError("A name or value given is not UTF-8 text, so it cannot be sent.") from None
            except (httpx_module().HTTPError, httpx_module().InvalidURL) as error:
                if attempt == attempts:
                    raise self._unreachable(error) from None
                pause = wait
            else:
                if attempt == attempts or reply.status_code not in _RETRIED:
                    return self._read(reply)
                pause = max(wait, _retry_after(reply))
            time.sleep(pause)
            wait *= 2
        raise AssertionError("unreachable")

    def pages(
        self,
        path: str,
        *,
        key: str,
        limit: int = PAGE_SIZE,
        fetch_all: bool = False,
        params: Mapping[str, Any] | None = None,
    ) -> Page:
        """One page of a list, or the whole of it.

        Args:
            path: Of the list.
            key: Under which the reply has its items.
            limit: Most items of the page.
            fetch_all: Walk every page instead.
            params: More of the query.

        Raises:
            OsmosisError: As `request`; the reply is no list.
        """
        items: list[Record] = []
        offset = 0
        while True:
            size = PAGE_SIZE if fetch_all else limit
            reply = Record(self.get(path, params={"limit": size, "offset": offset, **(params or {})}), key)
            found = [Record(item, f"{key}[{offset + at}]") for at, item in enumerate(reply.items(key))]
            items += found
            total = max(reply.integer("total_count", 0), len(items))
            following = reply.maybe_int("next_offset")
            if not fetch_all:
                return Page(items, total, reply.flag("has_more"), following, reply)
            if following is None or not found or following <= offset:
                return Page(items, total, has_more=False, next_offset=None, reply=reply)
            offset = following

    def logs(self, path: str, *, limit: int, cursor: str | None = None) -> LogPage:
        """A page of a log: the newest lines, or older ones from a cursor on.

        Raises:
            OsmosisError: As `request`; the reply is no log.
        """
        reply = Record(self.get(path, params={"limit": limit, "direction": "older", "cursor": cursor}), "reply")
        entries = []
        for entry in reply.records("logs"):
            details = entry.fields.get("details")
            entries.append(
                {name: entry.maybe_text(name) or "" for name in ("timestamp", "level", "step", "message")}
                | {"details": details if isinstance(details, dict) else None}
            )
        return LogPage(entries, reply.maybe_text("next_cursor"))

    def _send(
        self, method: str, path: str, params: Mapping[str, Any] | None, body: Mapping[str, Any] | None, timeout: float
    ) -> httpx.Response:
        """One try; a GET whose reused connection the other side had closed is repeated at once."""
        httpx = httpx_module()
        with self._opening:
            if self._http is None:
                self._http = make_client(self.platform_url)
        headers = {
            "Content-Type": "application/json",
            "X-Osmosis-CLI-Version": PACKAGE_VERSION,
            "Authorization": f"Bearer {self.credential.token}",
            **({} if self.scope is None else _header_bytes(self.scope.headers())),
        }
        query = urlencode(
            {name: value for name, value in (params or {}).items() if value is not None}, errors="surrogatepass"
        )
        content = None
        if body is not None:  # text that is no Unicode, as arguments can be, becomes an escape
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
        request = self._http.build_request(
            method,
            f"{self.platform_url}{API_PREFIX}{path}{'?' if query else ''}{query}",
            content=content,
            headers=headers,
            timeout=timeout,
        )
        try:
            return self._http.send(request, follow_redirects=method == "GET")
        except httpx.RemoteProtocolError:
            if method != "GET":
                raise
            return self._http.send(request, follow_redirects=True)

    def _read(self, reply: httpx.Response) -> dict[str, Any]:
        """The object of a reply.

        Raises:
            OsmosisError: It says no, or is no object.
        """
        text = reply.text
        value = parse_json(text) if text.strip() else {}
        if not reply.is_success:
            body = value if isinstance(value, dict) else {}
            source = self.credential.effective_source
            error = refusal(reply.status_code, body, text, environment_token=source == "environment")
            request_id = reply.headers.get("X-Request-Id", "")
            if reply.status_code >= 500 and _REQUEST_ID.fullmatch(request_id):
                error.message += f" (request {request_id})"
            raise redact_error(self._explain(error), self._secrets)
        warn_of_version(reply.headers, self._warn)
        if not isinstance(value, dict):
            raise PlatformError(
                f"The platform's answer to {reply.request.method} {reply.request.url.path} is not a JSON object;"
                f" check that {self.platform_url} is an Osmosis platform."
            )
        return value

    def _explain(self, error: OsmosisError) -> OsmosisError:
        """Say what the request was about where that was refused, and when the repository may have been renamed."""
        from osmosis_ai.client.scope import GitScope

        if self.scope is not None and error.details.get("platform_code") in SCOPE_CODES:
            error.message += f" The request was for {self.scope}."
        if error.details.get("platform_code") in RENAMED_REPOSITORY_CODES and isinstance(self.scope, GitScope):
            from osmosis_ai.client.renames import rename_hint

            error.message += rename_hint(self.scope)
        return error

    def _unreachable(self, error: Exception) -> OsmosisError:
        return unreachable(self.platform_url, error)


_warned: set[str] = set()


def warn_of_version(headers: Mapping[str, str], warn: Warn) -> None:
    """Pass on what the platform says about this client's version, once for each status in a process."""
    status = headers.get("X-Osmosis-Version-Status", "").strip()
    message = headers.get("X-Osmosis-Version-Message", "").strip()
    code = {"upgrade_available": "UPGRADE_AVAILABLE", "deprecated": "DEPRECATED"}.get(status)
    if code and message and status not in _warned:
        _warned.add(status)
        warn(message, code)


def _header_bytes(headers: Mapping[str, str]) -> dict[str, Any]:
    """Header values as the bytes that Latin-1 makes of them; the library itself takes ASCII only."""
    return {name: value.encode("latin-1") for name, value in headers.items()}


def _retry_after(reply: httpx.Response) -> float:
    try:
        return min(_LONGEST_WAIT_S, max(0.0, float(reply.headers.get("Retry-After", ""))))
    except ValueError:
        return 0.0
