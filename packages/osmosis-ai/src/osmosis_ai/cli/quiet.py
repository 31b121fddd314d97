"""Keeps other packages' words off our streams: stderr carries our lines only, which under `--json` are objects."""

from __future__ import annotations

import logging
import os
import sys
import warnings


def quiet_libraries() -> None:
    """Drop Python warnings, log records nobody handles and notes about broken finalizers; not with OSMOSIS_DEBUG=1."""
    if os.environ.get("OSMOSIS_DEBUG") == "1":
        return
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    sys.unraisablehook = lambda _: None
