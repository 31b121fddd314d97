"""How figures are written for people: counts, sizes, durations, money, rates, paths."""

from __future__ import annotations

from pathlib import Path


def count_text(count: int) -> str:
    """1234567 is `1.23M`."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}" if count < 100 * size else f"{count / size:.0f}{unit}"
    return str(count)


def size_text(size_bytes: float) -> str:
    """Bytes in steps of 1024: `172 B`, `1.5 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TB"


def duration_text(seconds: float) -> str:
    """75 s is `1m 15s`; short ones have a tenth."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def dollars_text(amount: float) -> str:
    """Two significant digits for small amounts, cents for larger ones: `$0.0042`, `$1.25`."""
    if amount >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.0001:
        return f"${amount:.2g}"
    return "less than $0.0001" if amount > 0 else "$0"


def rate_text(rate: float) -> str:
    """0.755 is `75.5%`."""
    return f"{100 * rate:.1f}%"


def reward_text(reward: float) -> str:
    """Up to four digits, no trailing zeros; a whole number keeps one."""
    text = f"{reward:.4g}"
    return text if any(mark in text for mark in ".en") else f"{text}.0"


def value_text(value: float) -> str:
    """A metric of any size in about four digits: `0.0423`, `12.3`, `1.2e-06`."""
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def cause_text(fault: str, code: str | None) -> str:
    """Whose failure, and its code unless that says no more: `grader error`, `infrastructure: policy_timeout`."""
    return f"{fault} error" if code in (None, "agent_error") else f"{fault}: {code}"


def path_text(path: Path) -> str:
    """The path as one can type it: relative to the current directory when it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
