"""Kinds of jobs that only these tests know."""

import job_kinds
import pytest
from osmosis_platform.jobs import handler


@pytest.fixture(autouse=True)
def kinds():
    before = dict(handler.KINDS)
    job_kinds.install()
    handler.KINDS |= {"test.a": "nowhere:a", "test.b": "nowhere:b"}
    yield
    handler.KINDS.clear()
    handler.KINDS.update(before)
