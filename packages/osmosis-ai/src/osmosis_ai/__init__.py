"""Osmosis: build, evaluate and train LLM agents. Importing this loads no framework."""

from osmosis_ai.consts import PACKAGE_VERSION as __version__

__all__ = ["__version__"]
