"""What every object store promises; each test runs on files and on S3."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from osmosis_platform.blobs import files
from osmosis_platform.blobs.store import Upload
from osmosis_platform.errors import InvalidRequestError, MissingError

KEY = "ws_1/datasets/ds_1/original.jsonl"


def _body(size):
    return bytes(range(256)) * (size // 256) + b"x" * (size % 256)


def test_an_object_comes_back_as_it_was_put(tested):
    put = tested.store.put(KEY, [b"one ", b"two ", b"three"])
    assert (put.size_bytes, put.sha256) == (13, hashlib.sha256(b"one two three").hexdigest())
    assert b"".join(tested.store.open(KEY)) == b"one two three"
    assert b"".join(tested.store.open(KEY, 4, 7)) == b"two"
    assert b"".join(tested.store.open(KEY, 8)) == b"three"
    head = tested.store.head(KEY)
    assert head is not None and (head.size_bytes, head.etag) == (13, put.etag)


def test_a_second_put_replaces_the_object_and_its_etag(tested):
    first = tested.store.put(KEY, [b"old"])
    second = tested.store.put(KEY, [b"new"])
    assert first.etag != second.etag
    assert b"".join(tested.store.open(KEY)) == b"new"


def test_a_failing_source_leaves_no_object(tested):
    def source():
        yield b"half"
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError, match="source broke"):
        tested.store.put(KEY, source())
    assert tested.store.head(KEY) is None


def test_a_file_is_stored_and_read_as_a_file(tested, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(_body(3000))
    info = tested.store.put_file(KEY, path)
    path.unlink()
    assert info.sha256 == hashlib.sha256(_body(3000)).hexdigest()
    with tested.store.local(KEY) as local:
        assert local.read_bytes() == _body(3000)


def test_what_is_not_there_is_said_so(tested):
    assert tested.store.head(KEY) is None
    tested.store.delete(KEY)
    with pytest.raises(MissingError):
        tested.store.open(KEY)
    with pytest.raises(MissingError), tested.store.local(KEY):
        pass


@pytest.mark.parametrize("key", ["ws/../x", "/ws/a/b", "ws/a", "ws/a/b/../../c", "ws/a/.hidden", "ws/a/b\n", "ws//a/b"])
def test_keys_that_leave_the_store_are_refused(tested, key):
    with pytest.raises(ValueError, match="object key"):
        tested.store.put(key, [b"x"])


def test_a_prefix_lists_its_objects_only(tested):
    for key in ("ws_1/datasets/ds_2/b", "ws_1/datasets/ds_1/a", "ws_1/snapshots/x", "ws_10/datasets/ds_9"):
        tested.store.put(key, [b"x"])
    assert [info.key for info in tested.store.list("ws_1/datasets")] == ["ws_1/datasets/ds_1/a", "ws_1/datasets/ds_2/b"]
    tested.store.delete("ws_1/datasets/ds_1/a")
    assert [info.key for info in tested.store.list("ws_1/datasets")] == ["ws_1/datasets/ds_2/b"]


def test_a_small_object_is_uploaded_by_one_put(tested):
    body = _body(1000)
    upload = tested.store.begin_upload(KEY, size_bytes=len(body))
    wire = upload.wire()
    assert wire["method"] == "simple" and wire["presigned_url"] and wire["upload_headers"]
    tested.send(upload, 1, body)
    assert tested.store.head(KEY) is None, "not an object before it is complete"
    info = tested.store.complete_upload(KEY, Upload.from_json(upload.to_json()), [])
    assert info.size_bytes == 1000
    assert b"".join(tested.store.open(KEY)) == body


def test_a_large_object_is_uploaded_in_parts_in_any_order(tested):
    body = _body(2 * tested.part_size + 77)
    upload = tested.store.begin_upload(KEY, size_bytes=len(body))
    assert upload.wire()["method"] == "multipart"
    sizes = [part["size"] for part in upload.wire()["presigned_urls"]]
    assert sizes == [tested.part_size, tested.part_size, 77]
    pieces = [body[at : at + tested.part_size] for at in range(0, len(body), tested.part_size)]
    etags = {number: tested.send(upload, number, pieces[number - 1]) for number in (3, 1, 2)}
    tested.store.complete_upload(KEY, upload, sorted(etags.items()))
    assert hashlib.sha256(b"".join(tested.store.open(KEY))).digest() == hashlib.sha256(body).digest()


def test_completing_twice_answers_alike(tested):
    upload = tested.store.begin_upload(KEY, size_bytes=5)
    tested.send(upload, 1, b"12345")
    first = tested.store.complete_upload(KEY, upload, [])
    assert tested.store.complete_upload(KEY, upload, []).etag == first.etag


def test_a_url_is_worth_nothing_after_the_upload_is_complete(tested):
    upload = tested.store.begin_upload(KEY, size_bytes=5)
    tested.send(upload, 1, b"12345")
    tested.store.complete_upload(KEY, upload, [])
    headers = {"Content-Type": "application/octet-stream"}
    reply = tested.http.put(upload.urls[0], content=b"54321", headers=headers)
    assert reply.status_code >= 400, "S3 and ours say 404, moto breaks"
    assert b"".join(tested.store.open(KEY)) == b"12345"


def test_an_interrupted_upload_goes_on_where_it_was(tested):
    body = _body(tested.part_size + 10)
    upload = tested.store.begin_upload(KEY, size_bytes=len(body))
    etag = tested.send(upload, 1, body[: tested.part_size])
    again = tested.store.renew_upload(KEY, Upload.from_json(upload.to_json()))
    there = tested.store.uploaded_parts(KEY, again)
    assert [(part.number, part.size_bytes, part.etag) for part in there] == [(1, tested.part_size, etag)]
    second = tested.send(again, 2, body[tested.part_size :])
    assert tested.store.complete_upload(KEY, again, [(1, etag), (2, second)]).size_bytes == len(body)


def test_an_upload_with_absent_parts_is_not_completed(tested):
    upload = tested.store.begin_upload(KEY, size_bytes=tested.part_size + 10)
    etag = tested.send(upload, 1, _body(tested.part_size))
    with pytest.raises(InvalidRequestError) as refused:
        tested.store.complete_upload(KEY, upload, [(1, etag), (2, "0" * 64)])
    assert refused.value.error_code == "UPLOAD_INCOMPLETE"
    assert refused.value.details["missing_parts"] == [2]


@pytest.mark.parametrize("wrong", ["etag", "absent", "twice"])
def test_parts_that_the_client_lists_wrongly_are_refused(tested, wrong):
    body = _body(tested.part_size + 10)
    upload = tested.store.begin_upload(KEY, size_bytes=len(body))
    first = tested.send(upload, 1, body[: tested.part_size])
    second = tested.send(upload, 2, body[tested.part_size :])
    parts = {
        "etag": [(1, first), (2, first)],
        "absent": [(1, first)],
        "twice": [(1, first), (1, first), (2, second)],
    }[wrong]
    with pytest.raises(InvalidRequestError) as refused:
        tested.store.complete_upload(KEY, upload, parts)
    assert refused.value.error_code == "PART_MISMATCH"
    assert tested.store.complete_upload(KEY, upload, [(1, first), (2, second)]).size_bytes == len(body)


def test_an_aborted_upload_is_gone(tested):
    upload = tested.store.begin_upload(KEY, size_bytes=5)
    tested.send(upload, 1, b"12345")
    tested.store.abort_upload(KEY, upload)
    tested.store.abort_upload(KEY, upload)
    with pytest.raises(MissingError) as gone:
        tested.store.complete_upload(KEY, upload, [])
    assert gone.value.error_code == "UPLOAD_GONE"


def test_an_upload_that_is_aborted_while_it_is_completed_is_gone(file_services, file_http, monkeypatch):
    store = file_services.blobs
    upload = store.begin_upload(KEY, size_bytes=5)
    url, octets = upload.urls[0], {"Content-Type": "application/octet-stream"}
    assert file_http.put(url, content=b"12345", headers=octets).status_code == 200
    monkeypatch.setattr(files, "check_parts", lambda *_: store.abort_upload(KEY, upload))
    with pytest.raises(MissingError) as gone:
        store.complete_upload(KEY, upload, [])
    assert gone.value.error_code == "UPLOAD_GONE"
    assert store.head(KEY) is None


def test_a_sweep_forgets_old_uploads_and_keeps_young_ones(tested):
    upload = tested.store.begin_upload(KEY, size_bytes=5)
    tested.send(upload, 1, b"12345")
    assert tested.store.sweep(datetime(2010, 1, 1, tzinfo=UTC)) == 0, "moto says that all uploads began in 2010"
    assert tested.store.sweep(datetime.now(UTC) + timedelta(hours=1)) == 1
    with pytest.raises(MissingError):
        tested.store.complete_upload(KEY, upload, [])


def test_a_download_url_names_the_file_and_takes_ranges(tested):
    tested.store.put(KEY, [b"0123456789"])
    url = tested.store.presign_get(KEY, file_name="Übung.jsonl")
    whole = tested.http.get(url)
    assert whole.content == b"0123456789"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert "%C3%9Cbung.jsonl" in whole.headers["content-disposition"]
    part = tested.http.get(url, headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
