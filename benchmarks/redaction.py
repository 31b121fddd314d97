"""Lines a second that pass the redactor, and the peers that were looked at. Run: python benchmarks/redaction.py

Peers: one compiled expression of the same forms as alternatives, and as a trie; with `uv pip install ahocorasick-rs` in the
environment also a Rust Aho-Corasick. They only look; the redactor gives the lines back.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import time
from collections.abc import Callable, Sequence

from osmosis_ai.redaction import Redactor, forms_of

TARGET = 50_000
BATCH = 100


def secrets(chance: random.Random, count: int) -> list[str]:
    """Keys as providers make them, and passwords that encoders change."""
    made = ["sk-" + "".join(chance.choices(string.ascii_letters + string.digits, k=40)) for _ in range(count - 1)]
    return [*made, 'p@ss/w0rd"x']


def lines(chance: random.Random, count: int) -> list[str]:
    """Log lines of 120 characters."""
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))) for _ in range(500)]
    return [" ".join(chance.choices(words, k=30))[:120] for _ in range(count)]


def trie(forms: Sequence[str]) -> re.Pattern[str]:
    """The forms as one expression that shares beginnings."""
    root: dict[str, dict] = {}
    for form in forms:
        node = root
        for letter in form:
            node = node.setdefault(letter, {})
        node[""] = {}

    def spelled(node: dict[str, dict]) -> str:
        several = [re.escape(letter) + spelled(child) for letter, child in node.items() if letter]
        text = several[0] if len(several) == 1 and "" not in node else f"(?:{'|'.join(several)})" if several else ""
        return text + ("?" if "" in node and several else "")

    return re.compile(spelled(root))


def rate(work: Callable[[list[str]], object], batches: list[list[str]]) -> float:
    """Lines a second, the best of three."""
    best = 0.0
    for _ in range(3):
        started = time.perf_counter()
        for batch in batches:
            work(batch)
        best = max(best, sum(map(len, batches)) / (time.perf_counter() - started))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secrets", type=int, default=31)
    parser.add_argument("--lines", type=int, default=20_000)
    options = parser.parse_args()
    chance = random.Random(1)
    values, clean = secrets(chance, options.secrets), lines(chance, options.lines)
    leaky = [
        f"{line[:80]} {values[number % len(values)]}" if not number % 100 else line for number, line in enumerate(clean)
    ]
    forms = sorted({form for value in values for form in forms_of(value)}, key=len, reverse=True)
    redactor = Redactor(values)
    stream = redactor.stream()
    plain, shared = re.compile("|".join(map(re.escape, forms))), trie(forms)
    ways: dict[str, Callable[[list[str]], object]] = {
        "redactor, batch of 100": redactor.texts,
        "redactor, line by line": lambda batch: [redactor.text(line) for line in batch],
        "redactor, stream in pieces of 100 lines": lambda batch: stream.feed("\n".join(batch) + "\n"),
        "alternatives, batch": lambda batch: plain.search("\n".join(batch)),
        "trie, batch": lambda batch: shared.search("\n".join(batch)),
    }
    try:
        import ahocorasick_rs

        automaton = ahocorasick_rs.AhoCorasick(forms)
        ways["Aho-Corasick (Rust), batch"] = lambda batch: automaton.find_matches_as_indexes("\n".join(batch))
    except ImportError:
        pass
    print(f"{len(values)} secrets in {len(forms)} forms; lines of 120 characters; target {TARGET:,} lines/s\n")
    print("| way | clean lines/s | with a secret in 1 of 100 |\n| --- | --- | --- |")
    for name, work in ways.items():
        rates = [
            rate(work, [some[start : start + BATCH] for start in range(0, len(some), BATCH)]) for some in (clean, leaky)
        ]
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} |")


if __name__ == "__main__":
    main()
