"""JSON bodies that refuse fields they do not know: a misspelt one must not pass for one that was left out."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

_FIELDS = 50


class StrictBody(BaseModel):
    """The base of such bodies.

    Each unknown field is a finding of its own, and hundreds of thousands of them would keep the whole process busy for
    seconds; so a body of far too many fields is one finding.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > _FIELDS:
            raise ValueError(f"the body has {len(value)} fields; at most {_FIELDS} are read")
        return value
