"""Adapters for agent frameworks; each is imported by its own path, so that none is loaded unasked."""

__all__: list[str] = []
