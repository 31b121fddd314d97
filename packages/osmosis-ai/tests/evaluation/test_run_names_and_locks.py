"""Names of runs and the lock that keeps two processes apart."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation.lock import lock_path, run_lock
from osmosis_ai.evaluation.names import check_run_name, generate_run_name


def test_generated_names_are_words_and_a_number_and_pass_the_check() -> None:
    for _ in range(200):
        adjective, animal, number = check_run_name(generate_run_name(lambda name: False)).split("-")
        assert adjective.isalpha()
        assert animal.isalpha()
        assert 0 <= int(number) < 100


def test_taken_names_are_not_given_and_a_hundred_taken_ones_are_an_error() -> None:
    tried: list[str] = []
    assert generate_run_name(lambda name: tried.append(name) or len(tried) < 5) == tried[4]
    with pytest.raises(ConflictError, match="--name"):
        generate_run_name(lambda name: True)


@pytest.mark.parametrize("name", ["a", "_x", "é-1", "a" * 96, "run.2", "²", "x.archive-1"])
def test_good_names_are_kept(name: str) -> None:
    assert check_run_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".locks", ".a", "-a", "a/b", "a\\b", "a b", "a\n", "a" * 97, "a\0", "a:b"]
)
def test_bad_names_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be the name of a run"):
        check_run_name(name)


@given(st.text(max_size=120))
def test_a_name_that_passes_is_one_visible_path_segment(name: str) -> None:
    try:
        check_run_name(name)
    except ValidationError:
        return
    assert Path(name).name == name
    assert name[0] not in "-."


def test_a_second_process_is_refused_and_told_who_holds_the_lock(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from osmosis_ai.evaluation.lock import run_lock\n"
        "with run_lock(Path(sys.argv[1]), 'a'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConflictError, match=rf"in use by another process \(process {holder.pid}\).*--name"):
            with run_lock(tmp_path, "a"):
                pass
        with run_lock(tmp_path, "b"):
            pass
        holder.kill()
        holder.wait()
        with run_lock(tmp_path, "a") as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert lock_path(tmp_path, "a").exists()


def test_the_lock_is_held_within_one_process_too_and_a_child_does_not_keep_it(tmp_path: Path) -> None:
    with run_lock(tmp_path, "a"):
        command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
        child = subprocess.Popen(command, close_fds=False, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()  # the kernel lets a parent go on before it closes the child's files
        with pytest.raises(ConflictError):
            with run_lock(tmp_path, "a"):
                pass
    try:
        with run_lock(tmp_path, "a"):
            pass
    finally:
        child.kill()
        child.communicate()


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    path = lock_path(tmp_path, "a")
    path.parent.mkdir()
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(OsmosisError, match="cannot be used"):
        with run_lock(tmp_path, "a"):
            pass
    assert not (tmp_path / "elsewhere").exists()
