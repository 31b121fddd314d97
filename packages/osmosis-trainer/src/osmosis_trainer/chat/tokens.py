"""Text to token ids and back, byte for byte: a byte-level BPE in Hugging Face's `tokenizer.json` format.

Leaves message structure to `chat.template`. Decoding works on bytes, so a character split over tokens comes out whole
or, at the end of a cut answer, as U+FFFD; it never disturbs the ids.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError
from tokenizers import Tokenizer


class TextTokenizer:
    """A byte-level BPE tokenizer.

    Args:
        path: `tokenizer.json`.

    Raises:
        ValidationError: The file is missing, broken, or no byte-level BPE.
    """

    def __init__(self, path: Path) -> None:
        try:
            source = path.read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(source)
        except Exception as error:  # tokenizers raises bare Exception
            raise ValidationError(f"{path} cannot be read as a tokenizer: {error}.") from error
        specification: dict[str, Any] = json.loads(source)
        special = {token["id"] for token in specification.get("added_tokens", [])}
        alphabet = {character: value for value, character in _byte_alphabet().items()}
        self._bytes: list[bytes] = []
        for token_id in range(self._tokenizer.get_vocab_size()):
            token = self._tokenizer.id_to_token(token_id) or ""
            if token_id in special:
                self._bytes.append(token.encode())
            elif all(character in alphabet for character in token):
                self._bytes.append(bytes(alphabet[character] for character in token))
            else:
                raise ValidationError(f"{path} is no byte-level BPE: token {token_id} is {token!r}.")
        self.special_ids = frozenset(special)

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text; special tokens in it are recognised."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def token_id(self, token: str) -> int:
        """Give the id of a token by its text.

        Raises:
            ValidationError: There is none.
        """
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ValidationError(f"The tokenizer has no token {token!r}.")
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Give the text of ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self._bytes[token_id] for token_id in ids).decode("utf-8", "replace")

    def stream(self) -> TextStream:
        """Start decoding an answer that comes in pieces."""
        return TextStream(self._bytes)


class TextStream:
    """Decodes tokens as they come; gives a character once all its bytes are there."""

    def __init__(self, token_bytes: list[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        """Decode more tokens."""
        return self._decoder.decode(b"".join(self._token_bytes[token_id] for token_id in ids))

    def end(self) -> str:
        """Give what is left: U+FFFD for a character that was cut."""
        return self._decoder.decode(b"", True)


def _byte_alphabet() -> dict[int, str]:
    """Map each byte to the printable character that stands for it in a byte-level vocabulary (GPT-2's scheme)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {value: chr(value) for value in printable}
    for i, value in enumerate(value for value in range(256) if value not in alphabet):
        alphabet[value] = chr(256 + i)
    return alphabet
