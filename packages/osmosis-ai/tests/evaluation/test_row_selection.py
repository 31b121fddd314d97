"""Selectors, selections and work items."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.dataset import Dataset, open_dataset
from osmosis_ai.evaluation.rows import Selection, format_selector, item_keys, parse_selector, select, work_items


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    path = tmp_path / "d.jsonl"
    rows = [{"system_prompt": "s", "user_prompt": f"q{i}", "ground_truth": i, "other": 1} for i in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_dataset(path)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_a_formatted_selector_parses_to_the_same_rows(indices: set[int]) -> None:
    ranges = parse_selector(format_selector(indices))
    assert [index for first, last in ranges for index in range(first, last + 1)] == sorted(indices)
    assert format_selector(reversed(sorted(indices))) == format_selector(indices)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=12))
def test_parsing_then_formatting_is_canonical_whatever_was_written(parts: list[tuple[int, int]]) -> None:
    text = ",".join(str(first) if not more else f"{first}-{first + more}" for first, more in parts)
    wanted = {index for first, more in parts for index in range(first, first + more + 1)}
    selection = Selection(tuple(parse_selector(text)), 100)
    assert list(selection.indices) == sorted(wanted)
    assert len(selection) == len(wanted)
    assert all((index in selection) == (index in wanted) for index in range(80))
    assert selection.selector == format_selector(wanted)


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "1-", "1--2", "1.5", "٣", "1;2"])
def test_a_selector_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValidationError, match="such as 3,7,10-20"):
        parse_selector(text)


def test_inverted_and_out_of_range_rows_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ValidationError, match="5-3 ends before it starts"):
        select(dataset, rows="5-3")
    with pytest.raises(ValidationError, match=r"row 10, and .*d\.jsonl has 10 rows \(0 to 9\)"):
        select(dataset, rows="1,10")


def test_rows_win_over_limit_and_a_limit_takes_the_first_rows(dataset: Dataset) -> None:
    assert select(dataset).selector == "0-9"
    assert select(dataset, limit=3).selector == "0-2"
    assert select(dataset, limit=99).selector == "0-9"
    assert select(dataset, limit=0).selector == select(dataset, limit=-1).selector == "0-9"
    assert select(dataset, rows="9,1-2,2", limit=1).selector == "1-2,9"


def test_items_come_rows_first_then_attempts_with_both_positions(dataset: Dataset) -> None:
    selection = select(dataset, rows="2,5")
    made = list(work_items(dataset, selection, 2))
    assert [item.key for item in made] == [(0, 0), (0, 1), (1, 0), (1, 1)] == list(item_keys(2, 2))
    assert [item.source_row_index for item in made] == [2, 2, 5, 5]
    assert made[0].messages == ({"role": "system", "content": "s"}, {"role": "user", "content": "q2"})
    assert (made[0].label, made[0].metadata) == ("2", None)


def test_only_makes_the_keys_asked_for(dataset: Dataset) -> None:
    made = work_items(dataset, select(dataset), 3, only={(9, 1), (0, 2)})
    assert [item.key for item in made] == [(0, 2), (9, 1)]


def test_metadata_is_an_object_or_its_text_and_empty_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    cells = [{"a": 1}, '{"a": 1}', {}, "{}", "", "  ", None]
    path.write_text("".join(json.dumps({"user_prompt": "q", "metadata": cell}) + "\n" for cell in cells))
    dataset = open_dataset(path)
    made = list(work_items(dataset, select(dataset), 1))
    assert [item.metadata for item in made] == [{"a": 1}, {"a": 1}, None, None, None, None, None]
    assert all(item.label is None for item in made)
