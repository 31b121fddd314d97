"""A traceback in the log shows the way to a fault and no variable's value, whoever logs it and in either format."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
import structlog
from osmosis_platform.ops.logs import configure_logs
from osmosis_platform.settings import Settings

def failing(value):
    raise RuntimeError("it broke")

configure_logs(Settings(log_format=sys.argv[1]))
try:
    failing("hunter" + str(2))
except RuntimeError as error:
    structlog.get_logger().error("ours", exc_info=error)
    logging.getLogger("theirs").exception("theirs")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_tracebacks_hold_no_values(form):
    done = subprocess.run([sys.executable, "-c", PROGRAM, form], capture_output=True, text=True, check=True, timeout=60)
    assert "hunter2" not in done.stdout + done.stderr
    assert done.stderr.count("it broke") == 2
    assert done.stderr.count("Traceback (most recent call last)") == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_strangers_wrote_does_not_steer_a_terminal(form):
    program = PROGRAM.partition("try:")[0] + "structlog.get_logger().info('request', path='/\\x1b[31m\\r\\n\\x9b2J')"
    done = subprocess.run([sys.executable, "-c", program, form], capture_output=True, check=True, timeout=60)
    (line,) = done.stderr.decode().splitlines()
    path = line.partition("path")[2].replace("\x1b[0m", "").replace("\x1b[35m", "")
    assert "/" in path
    assert path.rstrip("\n").isprintable()
