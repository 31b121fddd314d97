"""The options of `eval run`, checked against each other before anything is looked at or opened."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from osmosis_ai.errors import ValidationError


@dataclass(frozen=True, slots=True)
class EvalFlags:
    """What the command line of `eval run` says; `check` makes sure it can be meant.

    Attributes:
        config: The config file as typed.
        dataset_file: A local dataset; None means the platform's.
        model: Evaluated instead of the config's `model_path`.
        output: Root of the results as typed; None takes the workspace's.
        fail_under: Least pass rate for exit status 0.
        max_cost_usd: Dispatch stops at this cost.
    """

    config: Path
    model: str | None = None
    name: str | None = None
    output: str | None = None
    dataset_file: str | None = None
    secrets_file: str | None = None
    rows: str | None = None
    fresh: bool = False
    retry_failed: bool = False
    max_in_flight: int | None = None
    yes: bool = False
    tunnel: str | None = None
    upload: bool = False
    rollout_port: int | None = None
    listener_port: int | None = None
    advertise_url: str | None = None
    verbose: bool = False
    fail_under: float | None = None
    max_cost_usd: float | None = None

    def check(self, warn: Callable[[str, str], None]) -> None:
        """Refuse what contradicts itself; warn of what is risky.

        Raises:
            ValidationError: Names the option and the remedy.
        """
        if self.model is not None and not self.model.strip():
            raise ValidationError("--model must not be empty; leave it out to take the config's model_path.")
        if self.tunnel is not None and self.tunnel != "cloudflared":
            raise ValidationError(f"--tunnel accepts only cloudflared, got {self.tunnel!r}.")
        if self.tunnel and self.advertise_url:
            raise ValidationError(
                "--tunnel and --advertise-url are mutually exclusive:"
                " --tunnel manages a tunnel for you, --advertise-url points at one you run."
            )
        for option, port in (("--listener-port", self.listener_port), ("--rollout-port", self.rollout_port)):
            if port is not None and not 1 <= port <= 65535:
                raise ValidationError(f"{option} must be between 1 and 65535, got {port}")
        if self.rows is not None:
            from osmosis_ai.evaluation.rows import parse_selector

            parse_selector(self.rows)
        if self.name is not None:
            from osmosis_ai.evaluation.names import check_run_name

            check_run_name(self.name)
        if self.max_in_flight is not None and self.max_in_flight < 1:
            raise ValidationError(f"--max-in-flight must be 1 or more, got {self.max_in_flight}")
        if self.fail_under is not None and not 0 <= self.fail_under <= 1:
            raise ValidationError(f"--fail-under is a pass rate from 0 to 1, got {self.fail_under:g}")
        if self.max_cost_usd is not None and not (math.isfinite(self.max_cost_usd) and self.max_cost_usd > 0):
            raise ValidationError(f"--max-cost must be more than 0 dollars, got {self.max_cost_usd:g}")
        if self.fresh and self.retry_failed:
            raise ValidationError("--fresh and --retry-failed exclude each other: --fresh runs everything again.")
        if self.fresh and self.name is None:
            raise ValidationError("--fresh starts a named run over; say which with --name.")
        if self.retry_failed and self.name is None:
            raise ValidationError("--retry-failed continues a named run; say which with --name.")
        if self.advertise_url is not None:
            self._check_advertise_url(self.advertise_url, warn)

    def _check_advertise_url(self, url: str, warn: Callable[[str, str], None]) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises when it is no number
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or "?" in url or "#" in url:
            raise ValidationError(
                f"--advertise-url must be an http(s) base URL with a host and no query or fragment, got {url!r}"
            )
        if self.listener_port is None:
            raise ValidationError(
                "--advertise-url requires --listener-port: your tunnel needs a fixed local port to forward to."
            )
        loopback = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
        if parts.scheme == "http" and not loopback:
            warn(
                "--advertise-url uses plain http: the keys of the rollouts and all model traffic"
                " cross the network unencrypted.",
                "INSECURE_ADVERTISE_URL",
            )
