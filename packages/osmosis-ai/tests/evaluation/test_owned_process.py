"""Children are ended as a whole, records never hit another process of the same number."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from osmosis_ai.evaluation import bootstrap
from osmosis_ai.evaluation.process import (
    MAX_LINE,
    Child,
    group_alive,
    matches,
    own,
    read_owned,
    reap,
    start_token,
    write_owned,
)
from osmosis_ai.redaction import Redactor

BOOTSTRAP = Path(bootstrap.__file__)


def sleeper(*code: str) -> subprocess.Popen:
    """A process that has done what the code says and now sleeps."""
    code = (*code, "print('up', flush=True)", "import time", "time.sleep(60)")
    child = subprocess.Popen(
        [sys.executable, "-c", "\n".join(code)], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    return child


def gone(pid: int, limit_s: float = 15.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_a_record_is_private_and_reads_back(tmp_path):
    record = own(os.getpid(), instance_id="abc", port=80)
    write_owned(tmp_path / "server.json", record)
    assert read_owned(tmp_path / "server.json") == record
    assert (tmp_path / "server.json").stat().st_mode & 0o777 == 0o600
    assert set(json.loads((tmp_path / "server.json").read_text())) == {
        "pid", "pgid", "start_token", "instance_id", "port", "created_at",
    }  # fmt: skip


def test_reaping_ends_the_recorded_group_and_removes_the_record(tmp_path):
    child = sleeper("import subprocess", "subprocess.Popen(['sleep', '60'])")
    write_owned(tmp_path / "server.json", own(child.pid, instance_id="abc", port=80))
    assert reap(tmp_path / "server.json")
    assert child.wait(5) == -signal.SIGTERM
    assert not group_alive(child.pid)
    assert not (tmp_path / "server.json").exists()


def test_reaping_kills_what_ignores_the_first_signal(tmp_path):
    child = sleeper("import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    write_owned(tmp_path / "server.json", own(child.pid, instance_id="abc", port=80))
    assert reap(tmp_path / "server.json", grace_s=0.3)
    assert child.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("change", [{"start_token": "1"}, {"pgid": 1}, {"created_at": "1999-01-01T00:00:00+00:00"}])
def test_a_process_that_took_over_the_number_is_left_alone(tmp_path, change):
    child = sleeper()
    try:
        write_owned(tmp_path / "server.json", replace(own(child.pid, instance_id="abc", port=80), **change))
        assert not reap(tmp_path / "server.json")
        assert child.poll() is None
        assert not (tmp_path / "server.json").exists()
    finally:
        child.kill()
        child.wait()


def test_a_linked_record_is_not_followed(tmp_path):
    child = sleeper()
    try:
        write_owned(tmp_path / "elsewhere.json", own(child.pid, instance_id="abc", port=80))
        (tmp_path / "server.json").symlink_to(tmp_path / "elsewhere.json")
        assert not reap(tmp_path / "server.json")
        assert child.poll() is None
        assert not (tmp_path / "server.json").is_symlink()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": 1, "pgid": 1, "start_token": "0"}'])
def test_a_broken_record_is_only_removed(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert not reap(tmp_path / "server.json")
    assert not (tmp_path / "server.json").exists()


def test_a_start_token_names_one_process():
    child = sleeper()
    try:
        assert start_token(child.pid) == start_token(child.pid)
        assert matches(own(child.pid, instance_id="abc", port=1))
    finally:
        child.kill()
        child.wait()
    assert start_token(child.pid) is None


async def test_a_child_says_its_lines_and_how_it_ended():
    lines: list[str] = []
    child = Child.start(
        [sys.executable, "-c", "import os; print('one'); print('two', end='', flush=True); os._exit(7)"],
        env=dict(os.environ),
        on_line=lines.append,
    )
    assert await child.wait() == 7
    assert child.describe_exit() == "exited with code 7"
    assert lines == ["one", "two"]
    assert await child.stop(lambda: 1.0)


async def test_no_secret_is_in_two_lines_of_a_child_that_says_it_in_pieces():
    program = """if True:
        import sys, time
        for piece in ("x" * 16_380 + "hun", "ter2-hunter2 yyy", "\\ntwo: hunter2-", "hunter2", " end"):
            print(piece, end="", flush=True)
            time.sleep(0.05)
    """
    lines: list[str] = []
    child = Child.start(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        on_line=lines.append,
        redactor=Redactor(["hunter2-hunter2"]),
    )
    assert await child.wait() == 0
    assert "".join(lines) == "x" * 16_380 + "[REDACTED] yyytwo: [REDACTED] end"
    assert len(lines[0]) == MAX_LINE
    assert await child.stop(lambda: 1.0)


async def test_where_there_are_no_process_descriptors_the_end_is_seen_all_the_same(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "waitid")
    child = Child.start(["sh", "-c", "sleep 0.2; exit 3"], env=dict(os.environ), on_line=lambda _: None)
    assert await child.wait() == 3
    assert await child.stop(lambda: 1.0)


async def test_stopping_ends_the_children_of_a_dead_child():
    child = Child.start(["sh", "-c", "sleep 60 & exit 3"], env=dict(os.environ), on_line=lambda _: None)
    assert await child.wait() == 3
    assert group_alive(child.pid)
    assert await child.stop(lambda: 0.2)
    assert not group_alive(child.pid)


async def test_an_endless_line_comes_in_pieces():
    lines: list[str] = []
    child = Child.start(
        ["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"], env=dict(os.environ), on_line=lines.append
    )
    await child.wait()
    await child.stop(lambda: 1.0)
    assert sum(map(len, lines)) == 100000 and len(lines) > 5


SUPERVISOR = """
import asyncio, os, sys, time
from pathlib import Path
from osmosis_ai.evaluation.process import Child
async def main():
    env = dict(os.environ, _OSMOSIS_ROLLOUT_INSTANCE_ID="i")
    child = Child.start([sys.executable, sys.argv[1], *sys.argv[2:]], env=env, on_line=print, guard_variable="_OSMOSIS_SUPERVISOR_FD")
    print("pid", child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "body",
    [
        "import time\ntime.sleep(60)",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
        "sum(range(10**13))",  # never lets go of the interpreter lock
        "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)",
    ],
    ids=["sleeps", "ignores SIGTERM", "holds the lock", "has children"],
)
def test_a_rollout_server_is_gone_within_five_seconds_of_its_supervisors_death(tmp_path, body):
    (tmp_path / "main.py").write_text(body)
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(BOOTSTRAP), str(tmp_path / "main.py")], stdout=subprocess.PIPE, text=True
    )
    pid = int(supervisor.stdout.readline().split()[1])
    time.sleep(0.5)
    assert group_alive(pid)
    supervisor.kill()
    supervisor.wait()
    assert bootstrap.GRACE_S + 0.2 < 5
    deadline = time.monotonic() + 15  # the rest is a busy machine's
    while group_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not group_alive(pid)


def test_the_watcher_leaves_with_the_server(tmp_path):
    (tmp_path / "main.py").write_text("import time\ntime.sleep(0.3)")
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(BOOTSTRAP), str(tmp_path / "main.py")], stdout=subprocess.PIPE, text=True
    )
    pid = int(supervisor.stdout.readline().split()[1])
    deadline = time.monotonic() + 15
    while group_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not group_alive(pid)
    supervisor.kill()
    supervisor.wait()


def test_a_foreign_program_also_dies_with_the_supervisor():
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(BOOTSTRAP), "--exec", "sleep", "60"], stdout=subprocess.PIPE, text=True
    )
    pid = int(supervisor.stdout.readline().split()[1])
    deadline = time.monotonic() + 15
    while (name := Path(f"/proc/{pid}/comm").read_text().strip()) != "sleep" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert name == "sleep"
    supervisor.kill()
    supervisor.wait()
    assert gone(pid)


def bootstrap_run(tmp_path: Path, code: str, **env: str) -> subprocess.CompletedProcess:
    (tmp_path / "main.py").write_text(code)
    return subprocess.run(
        [sys.executable, str(BOOTSTRAP), str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"_OSMOSIS_ROLLOUT_INSTANCE_ID": "abc"} | env,
        check=False,
    )


def test_the_entrypoint_runs_as_main_with_its_folder_first(tmp_path):
    (tmp_path / "process.py").write_text("MINE = True")
    done = bootstrap_run(
        tmp_path,
        "import sys, statistics, process\n"
        "print(__name__, sys.argv == [__file__], sys.path[0], process.MINE, 'osmosis' in statistics.__file__)",
    )
    assert done.stdout.split() == ["__main__", "True", str(tmp_path), "True", "False"]


@pytest.mark.parametrize(("call", "code"), [("exit(7)", 7), ("import sys; sys.exit('no key')", 1), ("exit(0)", 0)])
def test_an_exit_of_the_entrypoint_is_named(tmp_path, call, code):
    done = bootstrap_run(tmp_path, call, _OSMOSIS_ROLLOUT_ENTRYPOINT="rollouts/x/main.py")
    assert done.returncode == code
    assert (f"rollouts/x/main.py called exit({code})" in done.stderr) == (code != 0)


def test_the_instance_id_is_required(tmp_path):
    done = bootstrap_run(tmp_path, "print('ran')", _OSMOSIS_ROLLOUT_INSTANCE_ID="")
    assert done.returncode == 1 and "ran" not in done.stdout


def test_health_of_any_app_says_who_answers(tmp_path):
    done = bootstrap_run(
        tmp_path,
        "import sys\n"
        "assert 'fastapi' not in sys.modules\n"
        "from fastapi import FastAPI\n"
        "from fastapi.testclient import TestClient\n"
        "app = FastAPI()\n"
        "@app.get('/health')\n"
        "def health(): return {}\n"
        "@app.get('/other')\n"
        "def other(): return {}\n"
        "c = TestClient(app)\n"
        "print({k: v for k, v in c.get('/health').headers.items() if 'osmosis' in k}, c.get('/other').headers.keys())",
    )
    assert "'x-osmosis-rollout-instance-id': 'abc'" in done.stdout, done.stderr
    assert "'x-osmosis-rollout-sdk-version'" in done.stdout
    assert done.stdout.count("osmosis") == 2


async def test_a_blocked_main_thread_shows_where(tmp_path):
    (tmp_path / "main.py").write_text("def stuck():\n    sum(range(10**13))\nprint('up', flush=True)\nstuck()")
    lines: list[str] = []
    child = Child.start(
        [sys.executable, str(BOOTSTRAP), str(tmp_path / "main.py")],
        env=os.environ | {"_OSMOSIS_ROLLOUT_INSTANCE_ID": "abc"},
        on_line=lines.append,
    )
    async with asyncio.timeout(30):
        while "up" not in lines:
            await asyncio.sleep(0.05)
        child.signal(signal.SIGUSR1)
        while not any("in stuck" in line for line in lines):
            await asyncio.sleep(0.05)
    await child.stop(lambda: 0.1)
