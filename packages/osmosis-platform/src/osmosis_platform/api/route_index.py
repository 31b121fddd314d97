"""Finds the router of a request by the segments of its path, before the application tries one router after the other.

It decides nothing: among the few routers that can match it takes the one that would be found anyway, and where none
matches in full (no such path, another method) it leaves the answer to the application.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

_FOUND = "osmosis.found"


@dataclass(slots=True)
class _Place:
    """Where the beginnings of paths lead: by a literal segment, or by a parameter of one segment."""

    literal: dict[str, _Place] = field(default_factory=dict)
    parameter: _Place | None = None
    here: set[int] = field(default_factory=set)
    below: set[int] = field(default_factory=set)  # whose next parameter may hold several segments


class RouteIndex(BaseRoute):
    """One route that stands for all that are added, in the order in which they are added."""

    def __init__(self) -> None:
        self._routes: list[BaseRoute] = []
        self._root = _Place()

    def add(self, paths: Iterable[str], routes: Sequence[BaseRoute]) -> None:
        """Adds what the application matches.

        Args:
            paths: Every path that any of the routes may match.
            routes: The routes, as the application holds them.
        """
        numbers = range(len(self._routes), len(self._routes) + len(routes))
        self._routes.extend(routes)
        for path in paths:
            self._place_of(path).update(numbers)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """The first route that matches in full."""
        if scope["type"] == "http":
            found = set(self._candidates(self._root, scope["path"].split("/"), 0))
            for number in sorted(found):
                route = self._routes[number]
                match, child_scope = route.matches(scope)
                if match == Match.FULL:
                    return match, {**child_scope, _FOUND: route}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the route that was found answer."""
        await scope.pop(_FOUND).handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """None: the routes themselves are in the application too."""
        raise NoMatchFound(name, path_params)

    def _place_of(self, path: str) -> set[int]:
        place = self._root
        for segment in path.split("/"):
            if ":path}" in segment:
                return place.below
            if "{" in segment:
                place.parameter = place = place.parameter or _Place()
            else:
                place = place.literal.setdefault(segment, _Place())
        return place.here

    def _candidates(self, place: _Place, segments: Sequence[str], depth: int) -> Iterator[int]:
        yield from place.below
        if depth == len(segments):
            yield from place.here
            return
        for following in (place.literal.get(segments[depth]), place.parameter):
            if following is not None:
                yield from self._candidates(following, segments, depth + 1)
