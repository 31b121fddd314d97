"""`/metrics` for Prometheus: requests by route and status, open jobs by queue, kind and state."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from osmosis_platform.api.scope import client_ip, open_to_all, services_of
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.errors import ForbiddenError
from osmosis_platform.ops.listening import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Scope

    from osmosis_platform.db.database import UnitOfWork

router = APIRouter(tags=["health"])

_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What this process counts. One for each application, so that tests do not share it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter(
            "osmosis_requests", "Requests that were answered.", (*labels, "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "osmosis_request_seconds", "How long answers took.", labels, buckets=_BUCKETS_S, registry=self.registry
        )

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request under its route's template: paths of users would be labels without end."""
        route = getattr(scope.get("route"), "path", "unmatched")
        self._requests.labels(scope["method"], route, str(status)).inc()
        self._seconds.labels(scope["method"], route).observe(seconds)


class _Jobs(Collector):
    """Open jobs as the database has them at the moment of asking."""

    def __init__(self, counts: dict[tuple[str, str, str], int]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One number for each queue, kind and state, over all workspaces."""
        jobs = GaugeMetricFamily("osmosis_jobs", "Open jobs.", labels=("queue", "kind", "status"))
        for labels, count in sorted(self._counts.items()):
            jobs.add_metric(labels, count)
        yield jobs


@router.get("/metrics", dependencies=[open_to_all("loopback, or the token of the settings")], include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Everything that is counted, for loopback or whoever has the setting `metrics_token`."""
    services = services_of(request)
    wanted = services.settings.metrics_token
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if wanted is not None:
        expected = wanted.get_secret_value().encode()
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), expected):
            raise ForbiddenError("/metrics needs the bearer token of the setting metrics_token.", code="METRICS_TOKEN")
    elif services.settings.public_url is not None or not is_loopback(client_ip(request) or ""):
        # behind a proxy everybody seems to come from loopback
        raise ForbiddenError(
            "/metrics is for loopback without a public_url; set metrics_token to open it.", code="METRICS_TOKEN"
        )

    def count(work: UnitOfWork) -> dict[tuple[str, str, str], int]:
        return LeaseRepository(work).counts()

    counted: Metrics = request.app.state.metrics
    once = CollectorRegistry()
    once.register(_Jobs(await services.database.reading(count)))
    body = generate_latest(counted.registry) + generate_latest(once)
    return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")
