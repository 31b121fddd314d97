"""Secrets cut out of text before it is stored or shown: which values, in which forms, whole or as a stream.

One library for the command line, the runner and the platform; it knows neither of them. Who calls it knows the values.
"""

from osmosis_ai.redaction.environment import ambient_secret_values, named_secret_values
from osmosis_ai.redaction.forms import MIN_ENCODED_CHARS, forms_of
from osmosis_ai.redaction.redactor import MARK, Redactor
from osmosis_ai.redaction.stream import RedactingStream

__all__ = [
    "MARK",
    "MIN_ENCODED_CHARS",
    "RedactingStream",
    "Redactor",
    "ambient_secret_values",
    "forms_of",
    "named_secret_values",
]
