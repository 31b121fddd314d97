"""What a download may be asked for, and what of a platform's manifest may be written: any text, any reply."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.cli.run_downloads import check_rows
from osmosis_ai.client.transfer.download import plan_download, read_manifest
from osmosis_ai.client.transfer.layout import BENCHMARK, EVAL, Layout
from osmosis_ai.errors import PlatformError, ValidationError
from osmosis_ai.evaluation.rows import parse_selector

LAYOUTS = st.sampled_from([EVAL, BENCHMARK])
ROW = st.integers(0, 10**9)
RANGE = st.tuples(ROW, st.integers(0, 50)).map(lambda pair: f"{pair[0]}-{pair[0] + pair[1]}")
SELECTOR_LIKE = st.text("0123456789,-- \n٣²x", max_size=20) | st.text(max_size=20)
SEGMENT = st.text("ab.\\\x00\n é0", max_size=4) | st.sampled_from(
    ["metrics.json", "summary.jsonl", "logs.txt", "trajectories", "artifacts", "row_0_run_1", "manifest.json",
     "summary.csv", "results.csv", "..", ".", ""]
)  # fmt: skip
PATH = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | PATH, lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
FILE = st.fixed_dictionaries(
    {}, optional={"path": PATH | JSON, "size": st.integers(0, 9) | JSON, "token": JSON, "sha256": JSON}
)


@given(st.lists(ROW.map(str) | RANGE, min_size=1, max_size=6))
def test_rows_and_ranges_are_passed_on_as_they_were_written(parts):
    text = ",".join(parts)
    assert check_rows(text) == text
    assert parse_selector(text)


@given(SELECTOR_LIKE | st.integers(4000, 5000).map(lambda digits: "9" * digits))
def test_any_other_text_is_refused_before_the_platform_sees_it(text):
    try:
        passed = check_rows(text)
    except ValidationError as error:
        assert error.message.startswith("--rows")
        return
    assert set(passed) <= set("0123456789,-")
    assert parse_selector(passed)


@given(LAYOUTS, st.data())
def test_chosen_types_are_known_ones_once_each_in_the_order_given(layout: Layout, data):
    names = data.draw(st.lists(st.sampled_from(layout.types), min_size=1, max_size=6))
    written = ",".join(data.draw(st.sampled_from([name, f" {name} ", name.upper()])) for name in names)
    assert layout.choose(written) == tuple(dict.fromkeys(names))
    assert layout.choose(" ALL ") == layout.types


@given(LAYOUTS, st.text(max_size=20) | st.text("metricslog,al ", max_size=20))
def test_any_text_is_a_choice_of_types_or_is_refused_by_the_options_name(layout: Layout, text):
    try:
        chosen = layout.choose(text)
    except ValidationError as error:
        assert error.message.startswith("--type")
        return
    assert chosen and set(chosen) <= set(layout.types) and len(set(chosen)) == len(chosen)


@given(LAYOUTS, PATH, st.data())
def test_a_path_that_is_taken_lies_in_the_layout_and_nowhere_else(layout: Layout, path, data):
    selected = data.draw(st.sets(st.sampled_from(layout.types), min_size=1))
    if layout.refuse(path, tuple(selected)) is None:
        assert layout.type_of(path) in selected
        assert not set(PurePosixPath(path).parts) & {"..", "/", "."}
        assert PurePosixPath(path).as_posix() == path
        assert "\\" not in path and path.isprintable()


@settings(max_examples=60)
@given(LAYOUTS, st.fixed_dictionaries({}, optional={"files": st.lists(FILE, max_size=4) | JSON, "totals": JSON}))
def test_whatever_the_manifest_is_nothing_outside_the_folder_is_planned(layout: Layout, reply):
    try:
        manifest = read_manifest(reply, layout, layout.types)
    except PlatformError as error:
        assert "manifest" in error.message
        return
    root = Path("/nonexistent/out")
    plan = plan_download(manifest, root)
    assert len({file.path for file in manifest.files}) == len(manifest.files)
    assert all((root / file.path).is_relative_to(root) and file.size >= 0 for file in plan.wanted)
    assert len(plan.wanted) + len(plan.refused) == len(reply.get("files") or [])


@pytest.mark.parametrize("text", ["٣", "²", "1-٣", "1 ,2", "1,", "", "3-1"])
def test_these_are_no_rows(text):
    with pytest.raises(ValidationError, match="--rows"):
        check_rows(text)
