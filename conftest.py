"""For every test: derandomised Hypothesis in CI, logging as it was, and (CI) a skipped test is a failure."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs within a test sets the root logger up; the tests after it see what they would see alone."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:
        if handler not in handlers:
            root.removeHandler(handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With OSMOSIS_TEST_NO_SKIPS=1, turn a passing session with skipped tests into a failing one."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter else 0
    if os.environ.get("OSMOSIS_TEST_NO_SKIPS") == "1" and exitstatus == 0 and skipped:
        reporter.write_line(f"{skipped} skipped test(s): in CI every test must run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
