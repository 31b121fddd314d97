"""What a call costs, from a dated table that ships with the package. An unknown price is no cost, never zero.

The table (`prices.json`) is data: USD per million input, cached input and output tokens by provider and model. Nothing
is ever downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from osmosis_ai.gateway.policy import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens. Without a price for cached input, cached tokens cost what input costs.

    Attributes:
        max_prompt_tokens: Longer prompts are dearer by rules the table does not know: their cost is unknown.
    """

    input: float
    output: float
    cached_input: float | None = None
    max_prompt_tokens: int | None = None

    def cost(self, usage: Usage) -> float | None:
        """USD for one call's token counts."""
        if self.max_prompt_tokens is not None and usage.prompt_tokens > self.max_prompt_tokens:
            return None
        cached = min(usage.cached_prompt_tokens or 0, usage.prompt_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = usage.prompt_tokens - cached
        return (fresh * self.input + cached * cached_price + usage.completion_tokens * self.output) / 1e6


class PriceTable:
    """Prices by model path.

    Args:
        prices: `provider/model` to price; `provider/*` prices every model of a provider.
        as_of: The day the prices were true, ISO 8601.
    """

    def __init__(self, prices: Mapping[str, Price], as_of: str) -> None:
        self.as_of = as_of
        self._prices = dict(prices)

    def __len__(self) -> int:
        return len(self._prices)

    def items(self) -> Iterable[tuple[str, Price]]:
        """Every model path of the table and its price."""
        return self._prices.items()

    def price(self, model_path: str) -> Price | None:
        """The price of a model as the run's config names it, or None when it is unknown."""
        found = self._prices.get(model_path)
        if found is None:
            provider, slash, _ = model_path.partition("/")
            found = self._prices.get(f"{provider}/*") if slash else None
        return found

    def cost(self, model_path: str, usage: Usage | None) -> float | None:
        """USD for one call, or None when the counts or the price are unknown."""
        price = self.price(model_path)
        return None if usage is None or price is None else price.cost(usage)

    def estimate(self, model_path: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """USD for token counts that a plan expects; None when the price is unknown."""
        return self.cost(model_path, Usage(prompt_tokens, completion_tokens))


@cache
def shipped_prices() -> PriceTable:
    """The table of this package."""
    data = json.loads(resources.files("osmosis_ai.gateway").joinpath("prices.json").read_text("utf-8"))
    prices = {
        f"{provider}/{model}": Price(row[0], row[2], row[1], *row[3:])
        for provider, models in data["usd_per_million_tokens"].items()
        for model, row in models.items()
    }
    return PriceTable(prices, data["as_of"])
