"""Connections to one provider, for as many calls at once as there are.

httpx's pool looks at every connection for every idle one at each call, so its CPU grows with the cube of the calls in
flight (300 at once: 30 ms a call). Small pools, filled in order, keep a call's cost constant.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from osmosis_ai.gateway.proxies import is_loopback

if TYPE_CHECKING:
    import httpx

CALLS_PER_POOL = 24
_IDLE_S = 30.0


@dataclass(slots=True, eq=False)
class _Pool:
    client: httpx.AsyncClient
    in_flight: int = 0


class HttpPool:
    """HTTP clients for one base URL, made when they are needed.

    Args:
        base_url: Loopback addresses never go through a proxy; others as the environment says.
    """

    def __init__(self, base_url: str) -> None:
        self._local = is_loopback(base_url)
        self._secure = urlsplit(base_url).scheme == "https"
        self._certificates: Any = False  # an http:// base never sees one: redirects are not followed
        self._pools: list[_Pool] = []

    @contextmanager
    def client(self) -> Generator[httpx.AsyncClient]:
        """A client for one call."""
        pool = next((pool for pool in self._pools if pool.in_flight < CALLS_PER_POOL), None) or self._grow()
        pool.in_flight += 1
        try:
            yield pool.client
        finally:
            pool.in_flight -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, []
        for pool in pools:
            await pool.client.aclose()

    def _grow(self) -> _Pool:
        import httpx

        if self._secure and self._certificates is False:
            self._certificates = httpx.create_ssl_context(trust_env=not self._local)  # 50 ms: once for all pools
        client = httpx.AsyncClient(
            trust_env=not self._local,
            verify=self._certificates,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S),
            headers={"user-agent": "osmosis-ai", "accept": "*/*"},
            follow_redirects=False,
        )
        self._pools.append(_Pool(client))
        return self._pools[-1]
