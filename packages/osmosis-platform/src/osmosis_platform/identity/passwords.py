"""Passwords: argon2id (RFC 9106), slow on purpose. Requests hash in a thread, few at a time, and never in a transaction."""

from __future__ import annotations

from functools import cache

import anyio
import anyio.lowlevel
import anyio.to_thread

from osmosis_platform.errors import InvalidRequestError

MIN_LENGTH = 10
MAX_LENGTH = 1024
_AT_A_TIME = 2  # each takes 64 MiB and 100 ms of a core


@cache
def _hasher():  # noqa: ANN202 - the library is imported when a password is first seen
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=3, memory_cost=65536, parallelism=1)


def hash_password(password: str) -> str:
    """The hash to store.

    Raises:
        InvalidRequestError: The password is shorter than 10 or longer than 1,024 characters.
    """
    if len(password) < MIN_LENGTH:
        raise InvalidRequestError(f"The password needs at least {MIN_LENGTH} characters.", field="password")
    if len(password) > MAX_LENGTH:
        raise InvalidRequestError(f"The password has more than {MAX_LENGTH} characters.", field="password")
    return _hasher().hash(password)


def password_matches(stored: str | None, password: str) -> bool:
    """Whether a password is the stored one. Takes as long when there is none, so that accounts cannot be told apart."""
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(stored or _nobody(), password[: MAX_LENGTH + 1]) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


async def hash_in_thread(password: str) -> str:
    """`hash_password` for a request.

    Raises:
        InvalidRequestError: As there.
    """
    return await anyio.to_thread.run_sync(hash_password, password, limiter=_limiter())


async def matches_in_thread(stored: str | None, password: str) -> bool:
    """`password_matches` for a request."""
    return await anyio.to_thread.run_sync(password_matches, stored, password, limiter=_limiter())


@cache
def _nobody() -> str:
    return _hasher().hash("no account has this password")


_limiters: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("argon2")


def _limiter() -> anyio.CapacityLimiter:
    """One for each event loop."""
    limiter = _limiters.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(_AT_A_TIME)
        _limiters.set(limiter)
    return limiter
