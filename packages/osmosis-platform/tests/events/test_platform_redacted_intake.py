"""No secret that a run was given reaches the disk of the platform: not in a line, a detail, an event, a segment, an error."""

import base64
import json
import random
import subprocess
import sys
import zlib
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from osmosis_ai.redaction import MARK, Redactor, forms_of
from osmosis_platform.db.repositories.streams import StreamRepository
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.events.log import LogLine, append_event, append_lines, read_page
from osmosis_platform.events.sealing import seal_streams
from osmosis_platform.git.remote import _translated, parse_remote
from osmosis_platform.jobs import worker
from osmosis_platform.jobs.handler import JobFailureError
from osmosis_platform.jobs.worker import failure_of
from osmosis_platform.secrets import redacting
from osmosis_platform.settings import Settings

WORKSPACE, STREAM = "ws_1", "ds_1"
ENCODERS = (
    str,
    json.dumps,
    repr,
    lambda text: quote(text, safe=""),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.urlsafe_b64encode(("x" + text).encode()).decode(),
    lambda text: json.dumps([text]),
)
secret_texts = st.text(st.sampled_from("aZ4-_/+=\"'\\%&é"), min_size=8, max_size=30)


@pytest.fixture
def database_url(tmp_path):
    """One database: what is written is the same."""
    return f"sqlite:///{tmp_path / 'platform.sqlite3'}"


def on_disk(tmp_path):
    return b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@settings(derandomize=True, max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=secret_texts, encoder=st.sampled_from(ENCODERS), seed=st.integers(0, 1 << 16))
def test_a_secret_in_pieces_reaches_neither_rows_nor_segments(services, tmp_path, secret, encoder, seed):
    """As a worker does it: output comes in pieces, passes a stream, is cut into lines, and these are appended."""
    chance, redactor = random.Random(seed), Redactor([secret])
    text = f"{encoder(secret)} <- it\nnext {encoder(secret)}"
    edges = sorted(chance.randrange(len(text)) for _ in range(5))
    stream = redactor.stream()
    said = "".join(stream.feed(text[start:end]) for start, end in zip([0, *edges], [*edges, len(text)], strict=True))
    said += stream.finish()
    stream_id = f"ds_{seed}_{zlib.crc32(secret.encode())}"
    with services.database.write() as work:
        lines = [
            LogLine("info", encoder(secret), line, {encoder(secret): [encoder(secret)]}) for line in said.split("\n")
        ]
        append_lines(work, WORKSPACE, stream_id, lines, redactor=redactor)
        append_event(work, WORKSPACE, stream_id, "run.said", {"said": encoder(secret)}, redactor=redactor)
        StreamRepository(work).close(WORKSPACE, stream_id)
    told = read_page(services, WORKSPACE, stream_id, cursor=None, limit=10, direction="older").lines
    assert all(MARK in f"{line.message}{line.step}{line.details}" for line in told)
    seal_streams(services, closed_lines=1)
    with services.database.read() as work:
        found = StreamRepository(work)
        event = found.events_after(WORKSPACE, stream_id, 0, 10)[0]
        assert not found.lines_between(WORKSPACE, stream_id, 0, 10)
    sealed = read_page(services, WORKSPACE, stream_id, cursor=None, limit=10, direction="older").lines
    shown = [f"{line.message}\n{line.step}\n{line.details}" for line in sealed] + [json.dumps(event.payload)]
    assert not [one for one in shown for form in forms_of(secret) if form in one.replace(MARK, "\n")]
    assert not [form for form in forms_of(secret) if form.encode() in on_disk(tmp_path)]


def test_a_message_is_redacted_before_it_is_cut(services):
    line = LogLine("info", "walk", "x" * 16_380 + "hunter2-hunter2")
    with services.database.write() as work:
        append_lines(work, WORKSPACE, STREAM, [line], redactor=Redactor(["hunter2-hunter2"]))
    (stored,) = read_page(services, WORKSPACE, STREAM, cursor=None, limit=10, direction="older").lines
    assert "hunter" not in stored.message


def test_what_a_job_says_of_its_failure_holds_none(monkeypatch):
    logged = []
    monkeypatch.setattr(worker.log, "error", lambda event, **facts: logged.append((event, facts)), raising=False)
    redactor = Redactor(["hunter2-hunter2"])
    for error in (
        JobFailureError("X", "the key hunter2-hunter2 is refused"),
        InvalidRequestError("the key hunter2-hunter2 is refused"),
        RuntimeError("hunter2-hunter2"),
    ):
        assert "hunter2" not in failure_of(error, redactor).message
    assert len(logged) == 1
    assert "hunter2" not in str(logged)


def test_what_git_says_of_a_remote_holds_no_credential():
    remote = parse_remote("https://git.example.com/a/b.git", Settings())
    basic = base64.b64encode(b"x:ghp-12345678").decode()
    said = f"fatal: header 'Authorization: Basic {basic}' for https://x:ghp-12345678@git.example.com is refused"
    message = _translated(remote, said, "ghp-12345678").message
    assert "12345678" not in message
    assert basic not in message


def test_the_platforms_own_credentials_are_known_from_its_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(redacting, "OWN", Redactor())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-12345678")
    (tmp_path / "oidc").write_text("oidc-12345678\n")
    made = Settings(
        data_dir=tmp_path,
        database_url="postgresql://osmosis:pa%40ss-12345678@db/osmosis",
        metrics_token="metrics-12345678",
        oidc_issuer="https://id.example.com",
        oidc_client_id="x",
        oidc_client_secret_file=tmp_path / "oidc",
    )
    (tmp_path / "master.key").write_text("bWFzdGVyIGtleSBtYXN0ZXIga2V5IG1hc3RlciBrZXk=\n")
    redacting.learn(made)
    values = ("aws-12345678", "oidc-12345678", "pa@ss-12345678", "pa%40ss-12345678", "metrics-12345678")
    for value in (*values, "bWFzdGVyIGtleSBtYXN0ZXIga2V5IG1hc3RlciBrZXk="):
        assert redacting.OWN.text(f"it is {value}!") == f"it is {MARK}!"
    assert redacting.OWN.text("osmosis") == "osmosis"
    assert redacting.knowing("of-a-run").text("aws-12345678 of-a-run") == f"{MARK} {MARK}"


PROGRAM = """
import logging, sys, structlog
from osmosis_platform.ops.logs import configure_logs
from osmosis_platform.settings import Settings
configure_logs(Settings(log_format=sys.argv[1], metrics_token='metrics"12345678'))
structlog.get_logger().error('it is metrics"12345678', token='metrics"12345678')
try:
    raise RuntimeError('metrics"12345678')
except RuntimeError:
    logging.getLogger("theirs").exception("theirs")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_process_log_holds_none(form):
    done = subprocess.run([sys.executable, "-c", PROGRAM, form], capture_output=True, text=True, check=True, timeout=60)
    assert "12345678" not in done.stdout + done.stderr
    assert done.stderr.count(MARK) == 3
