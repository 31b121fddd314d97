"""URLs of the files backend in hostile hands, and bodies that are not what was agreed."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from urllib.parse import urlsplit

import pytest
from osmosis_platform.blobs.claims import PREFIX, Claims, UrlSigner
from osmosis_platform.blobs.staging import PartWriter, Staging
from osmosis_platform.clock import system_clock
from osmosis_platform.errors import MissingError, StorageFullError, UnavailableError

KEY = "ws_1/datasets/ds_1/original"
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def store(file_services):
    return file_services.blobs


def _code(reply):
    return reply.status_code, reply.json()["code"]


def _claims(url):
    text = url.rpartition("/")[2].partition(".")[0]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _signed(store, **changes):
    facts = {"method": "GET", "key": KEY, "expires_at": int(time.time()) + 60, **changes}
    return f"{PREFIX}{store.signer.sign(Claims(**facts))}"


def test_a_url_with_altered_claims_is_refused(store, file_http):
    store.put(KEY, [b"x"])
    url = store.presign_get(KEY, file_name="a")
    text, _, mac = url.rpartition("/")[2].partition(".")
    other = json.dumps({**_claims(url), "key": "ws_2/datasets/ds_2/original"}).encode()
    forged = base64.urlsafe_b64encode(other).decode().rstrip("=")
    for signed in (f"{forged}.{mac}", f"{text}.{'A' * len(mac)}", text, f"{text}.", f".{mac}", "ä.ö", f"{text}.{mac}A"):
        assert _code(file_http.get(PREFIX + signed)) == (403, "BLOB_URL_INVALID")


def test_a_url_of_another_key_is_refused(store, file_http):
    other = UrlSigner(lambda: b"another key of thirty-two bytes..", system_clock)
    claims = Claims("GET", KEY, int(time.time()) + 60)
    assert _code(file_http.get(PREFIX + other.sign(claims))) == (403, "BLOB_URL_INVALID")


def test_an_expired_url_is_refused(store, file_http):
    store.put(KEY, [b"x"])
    assert _code(file_http.get(_signed(store, expires_at=int(time.time()) - 1))) == (403, "BLOB_URL_EXPIRED")


def test_a_url_is_for_one_method(store, file_http):
    store.put(KEY, [b"x"])
    reply = file_http.put(_signed(store), content=b"y", headers=OCTETS)
    assert _code(reply) == (405, "METHOD_NOT_ALLOWED")
    upload = store.begin_upload(KEY, size_bytes=3)
    assert _code(file_http.get(upload.urls[0])) == (405, "METHOD_NOT_ALLOWED")
    assert file_http.post(upload.urls[0], content=b"abc").status_code == 405


def test_each_url_is_another_one(store):
    assert store.presign_get(KEY, file_name="a") != store.presign_get(KEY, file_name="a")


@pytest.mark.parametrize("body", [b"", b"12", b"1234"])
def test_a_body_of_another_length_is_refused_and_a_right_one_then_taken(store, file_http, body):
    upload = store.begin_upload(KEY, size_bytes=3)
    assert _code(file_http.put(upload.urls[0], content=body, headers=OCTETS)) == (400, "BLOB_SIZE")
    chunked = file_http.put(upload.urls[0], content=iter([body[:1], body[1:]]), headers=OCTETS)
    assert _code(chunked) == (400, "BLOB_SIZE")
    assert store.uploaded_parts(KEY, upload) == []
    assert file_http.put(upload.urls[0], content=b"123", headers=OCTETS).status_code == 200


def test_a_simple_upload_needs_the_headers_it_was_given(store, file_http):
    upload = store.begin_upload(KEY, size_bytes=3)
    reply = file_http.put(upload.urls[0], content=b"123", headers={"Content-Type": "text/html"})
    assert _code(reply) == (400, "BLOB_CONTENT_TYPE")


def test_the_etag_of_a_part_is_its_sha256(store, file_http):
    upload = store.begin_upload(KEY, size_bytes=3)
    reply = file_http.put(upload.urls[0], content=b"123", headers=OCTETS)
    assert reply.headers["etag"] == f'"{hashlib.sha256(b"123").hexdigest()}"'


def test_a_body_cut_off_half_way_strikes_out_the_part_it_was_to_replace(store, file_http):
    upload = store.begin_upload(KEY, size_bytes=3)
    assert file_http.put(upload.urls[0], content=b"123", headers=OCTETS).status_code == 200
    writer = PartWriter(Staging(store.staging, upload.store_id), 1, 0, 3)
    writer.write([b"9"])  # and the connection breaks
    writer.close()
    assert store.uploaded_parts(KEY, upload) == []
    assert file_http.put(upload.urls[0], content=b"123", headers=OCTETS).status_code == 200
    assert store.complete_upload(KEY, upload, []).sha256 == hashlib.sha256(b"123").hexdigest()


def test_a_part_has_one_writer_and_a_completion_none(store):
    upload = store.begin_upload(KEY, size_bytes=2000)
    claims = [store.signer.read(urlsplit(url).path.removeprefix(PREFIX)) for url in upload.urls]
    with store.part(claims[0]) as writer:
        writer.write([b"x" * 1024])
        with pytest.raises(UnavailableError) as busy, store.part(claims[0]):
            pass
        assert busy.value.error_code == "UPLOAD_BUSY"
        with pytest.raises(UnavailableError):
            store.complete_upload(KEY, upload, [])
        with store.part(claims[1]) as second:
            second.write([b"y" * (2000 - 1024)])
            second.finish()
        writer.finish()
    etags = [(part.number, part.etag) for part in store.uploaded_parts(KEY, upload)]
    assert store.complete_upload(KEY, upload, etags).size_bytes == 2000


def test_an_abort_while_a_part_arrives_leaves_nothing(store):
    upload = store.begin_upload(KEY, size_bytes=3)
    claims = store.signer.read(urlsplit(upload.urls[0]).path.removeprefix(PREFIX))
    with pytest.raises(MissingError), store.part(claims) as writer:
        writer.write([b"123"])
        store.abort_upload(KEY, upload)
        writer.finish()
    assert list(store.staging.iterdir()) == []


def test_two_completions_at_a_time_make_one_object(store, file_http):
    upload = store.begin_upload(KEY, size_bytes=3)
    file_http.put(upload.urls[0], content=b"123", headers=OCTETS)
    outcomes = []

    def complete():
        outcomes.append(store.complete_upload(KEY, upload, []).etag)

    threads = [threading.Thread(target=complete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [hashlib.sha256(b"123").hexdigest()] * 8
    assert list(store.staging.iterdir()) == []


def test_an_upload_larger_than_the_disk_is_refused_at_the_beginning(store):
    with pytest.raises(StorageFullError):
        store.begin_upload(KEY, size_bytes=shutil.disk_usage(store.staging).total)
    assert list(store.staging.iterdir()) == []


def test_a_disk_that_fills_up_half_way_is_answered_and_the_upload_can_go_on(tmp_path):
    """On a file system of 1 MiB in a namespace of its own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from fastapi.testclient import TestClient
        from osmosis_platform.api.app import create_app
        from osmosis_platform.blobs import files
        from osmosis_platform.db.database import Database
        from osmosis_platform.services import Services
        from osmosis_platform.settings import Settings
        disk = Path(sys.argv[1])
        files._RESERVE_BYTES = -(1 << 30)  # other uploads took the room after this one was let in
        settings = Settings(data_dir=disk)
        services = Services(settings, Database(f"sqlite:///{sys.argv[2]}"))
        http = TestClient(create_app(services), base_url=settings.base_url)
        upload = services.blobs.begin_upload("ws_1/datasets/ds_1", size_bytes=800_000)
        other = disk / "other"
        other.write_bytes(b"x" * 500_000)
        headers = {"Content-Type": "application/octet-stream"}
        full = http.put(upload.urls[0], content=b"y" * 800_000, headers=headers)
        assert (full.status_code, full.json()["code"]) == (507, "STORAGE_FULL"), full.text
        other.unlink()
        assert http.put(upload.urls[0], content=b"y" * 800_000, headers=headers).status_code == 200
        assert services.blobs.complete_upload("ws_1/datasets/ds_1", upload, []).size_bytes == 800_000
        """
    )
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=1m tmpfs {disk} && exec {sys.executable} -c "$PROGRAM" {disk} {tmp_path}/db'
    ended = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        env={**os.environ, "PROGRAM": program},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize(
    ("wanted", "status", "body"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=5-", 206, b"56789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=-100", 206, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("bytes=5-2", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=" + "9" * 400 + "-", 200, b"0123456789"),
    ],
)
def test_ranges(store, file_http, wanted, status, body):
    store.put(KEY, [b"0123456789"])
    reply = file_http.get(_signed(store), headers={"Range": wanted})
    assert (reply.status_code, reply.content) == (status, body)
    assert reply.headers["content-length"] == str(len(body))


def test_a_range_behind_the_end_is_unsatisfiable(store, file_http):
    store.put(KEY, [b"0123456789"])
    reply = file_http.get(_signed(store), headers={"Range": "bytes=10-"})
    assert _code(reply) == (416, "RANGE_UNSATISFIABLE")
    assert reply.headers["content-range"] == "bytes */10"


def test_a_range_of_what_has_changed_meanwhile_gets_everything(store, file_http):
    store.put(KEY, [b"0123456789"])
    etag = file_http.head(_signed(store)).headers["etag"]
    headers = {"Range": "bytes=0-3", "If-Range": etag}
    assert file_http.get(_signed(store), headers=headers).status_code == 206
    store.put(KEY, [b"9876543210"])
    assert file_http.get(_signed(store), headers=headers).content == b"9876543210"
    assert file_http.get(_signed(store), headers={"If-None-Match": etag}).status_code == 200
    new = file_http.head(_signed(store)).headers["etag"]
    assert file_http.get(_signed(store), headers={"If-None-Match": f'"x", {new}'}).status_code == 304


def test_a_head_tells_the_length_without_the_bytes(store, file_http):
    store.put(KEY, [b"0123456789"])
    reply = file_http.head(_signed(store))
    assert (reply.status_code, reply.content, reply.headers["content-length"]) == (200, b"", "10")


def test_a_download_is_data_to_every_browser(store, file_http):
    store.put(KEY, [b"<script>alert(1)</script>"])
    name = 'a"; filename=evil.html\r\nX: y/..\\b.jsonl'
    headers = file_http.get(store.presign_get(KEY, file_name=name)).headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["content-disposition"].startswith('attachment; filename="a__ filename=evil.html__X: y_.._b.jsonl"')
    assert "x" not in headers


def test_an_object_that_was_deleted_is_not_found(store, file_http):
    store.put(KEY, [b"x"])
    url = store.presign_get(KEY, file_name="a")
    store.delete(KEY)
    assert _code(file_http.get(url)) == (404, "OBJECT_MISSING")
