import io
import sys
from pathlib import Path

import pytest
from osmosis_ai.errors import InteractiveRequiredError, ValidationError
from osmosis_ai.workspace.secrets import parse_secrets, read_secrets_file, resolve_secrets


def test_the_format():
    text = "# comment\n\nA=1\nexport B = two words \nC='quoted # kept'\nD=\"x=y\"\nE=\nF=it's\n"
    assert parse_secrets(text, "f") == {
        "A": "1",
        "B": "two words",
        "C": "quoted # kept",
        "D": "x=y",
        "E": "",
        "F": "it's",
    }


@pytest.mark.parametrize("line", ["oops", "=x", "A B=1", "1A=x", 'A="open', "A='", "ü=1"])
def test_a_bad_line_is_named_by_number_and_never_shown(line: str):
    with pytest.raises(ValidationError, match="line 2") as caught:
        parse_secrets(f"OK=1\n{line}\n", "my.env")
    assert "my.env" in caught.value.message
    assert line not in caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ValidationError, match="not found"):
        read_secrets_file(str(tmp_path / "none"))
    with pytest.raises(ValidationError, match="directory"):
        read_secrets_file(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(ValidationError, match="line 2"):
        read_secrets_file(str(tmp_path / "binary"))


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfA=1\r\nB=2\r\n")))
    assert read_secrets_file("-") == {"A": "1", "B": "2"}


def test_file_beats_environment_beats_prompt():
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return "typed"

    found = resolve_secrets(
        ["A", "B", "C", "D"],
        file_values={"A": "file", "B": ""},
        environ={"A": "env", "B": "env", "C": ""},
        ask=ask,
    )
    assert found == {"A": "file", "B": "env", "C": "typed", "D": "typed"}
    assert asked == ["C", "D"]


def test_all_missing_names_are_told_at_once():
    with pytest.raises(InteractiveRequiredError) as caught:
        resolve_secrets(["A", "B", "C"], file_values={}, environ={"B": "x"}, ask=None)
    assert caught.value.details == {"missing": ["A", "C"], "flags": ["--secrets-file"]}
    assert "x" not in caught.value.message.split("Export")[0]
