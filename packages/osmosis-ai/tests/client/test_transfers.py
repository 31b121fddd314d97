import hashlib
import os
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.client.credentials import Credential
from osmosis_ai.client.session import PlatformClient
from osmosis_ai.client.transfer import download, upload
from osmosis_ai.client.transfer.download import download_files, plan_download, read_manifest
from osmosis_ai.client.transfer.layout import BENCHMARK, EVAL
from osmosis_ai.client.transfer.objects import open_object
from osmosis_ai.client.transfer.upload import Part, aborting, read_instructions, upload_file
from osmosis_ai.client.wire import Record
from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError
from stub_api import Answer, StubApi


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(upload, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(download, "_FIRST_WAIT_S", 0.001)


def client_of(stub):
    return PlatformClient(Credential("tok", stub.url, "file"), None, lambda *_: None)


def instructions(value, size):
    return read_instructions(Record(value, "upload"), size)


def multipart(stub, size, part_size):
    total = -(-size // part_size)
    urls = [{"part_number": number, "presigned_url": f"{stub.url}/p{number}?sig=x"} for number in range(1, total + 1)]
    return {"method": "multipart", "part_size": part_size, "total_parts": total, "presigned_urls": urls}


def test_a_simple_upload_sends_the_bytes_with_the_given_headers_and_no_login(tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_bytes(b"x" * 700_000)
    moved = []
    with StubApi({"PUT /o": Answer()}) as stub:
        told = {"presigned_url": f"{stub.url}/o?sig=x", "upload_headers": {"Content-Type": "application/x"}}
        assert upload_file(file, instructions(told, 700_000), on_bytes=moved.append) == []
    (asked,) = stub.asked
    assert asked.body == file.read_bytes()
    assert asked.headers["content-type"] == "application/x"
    assert asked.headers["content-length"] == "700000"
    assert "authorization" not in asked.headers
    assert "transfer-encoding" not in asked.headers
    assert sum(moved) == 700_000


def test_parts_travel_at_the_same_time_and_come_back_in_order(tmp_path):
    file = tmp_path / "d.csv"
    file.write_bytes(bytes(range(250)) * 10)
    together = threading.Barrier(4, timeout=10)

    def take(asked):
        if asked.path in ("/p1", "/p2", "/p3", "/p4"):
            together.wait()  # fails unless four are under way at once
        return Answer(headers={"ETag": f'"{hashlib.md5(asked.body).hexdigest()}"'})

    with StubApi({f"PUT /p{number}": take for number in range(1, 6)}) as stub:
        parts = upload_file(file, instructions(multipart(stub, 2500, 500), 2500))
    data = file.read_bytes()
    assert parts == [
        Part(number, hashlib.md5(data[500 * (number - 1) : 500 * number]).hexdigest()) for number in range(1, 6)
    ]
    assert all("content-type" not in asked.headers for asked in stub.asked)


def test_a_part_is_tried_again_and_stored_parts_are_not(tmp_path):
    file = tmp_path / "d.csv"
    file.write_bytes(b"a" * 300)
    moved = []
    stored = Answer(headers={"ETag": "e"})
    routes = {"PUT /p1": stored, "PUT /p2": [Answer(status=503), Answer(status=429), stored], "PUT /p3": stored}
    with StubApi(routes) as stub:
        parts = upload_file(file, instructions(multipart(stub, 300, 100), 300), on_bytes=moved.append)
    assert len(parts) == 3
    assert sorted(stub.calls) == ["PUT /p1", "PUT /p2", "PUT /p2", "PUT /p2", "PUT /p3"]
    assert sum(moved) == 300


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (500, 5)])
def test_a_refused_upload_names_the_file_and_not_the_url(tmp_path, status, tries):
    file = tmp_path / "d.csv"
    file.write_bytes(b"abcd")
    with StubApi({"PUT /o": Answer(data=b"<Error><Message>not today</Message></Error>", status=status)}) as stub:
        told = instructions({"presigned_url": f"{stub.url}/o?X-Amz-Signature=secret"}, 4)
        with pytest.raises(PlatformError) as caught:
            upload_file(file, told)
    assert len(stub.calls) == tries
    assert "d.csv" in caught.value.message
    assert "not today" in caught.value.message
    assert "secret" not in caught.value.message


def test_a_part_without_a_name_is_an_error(tmp_path):
    file = tmp_path / "d.csv"
    file.write_bytes(b"abcd")
    with StubApi({"PUT /p1": Answer()}) as stub, pytest.raises(PlatformError, match="ETag"):
        upload_file(file, instructions(multipart(stub, 4, 4), 4))


def test_a_file_that_shrinks_stops_its_upload(tmp_path):
    file = tmp_path / "d.csv"
    file.write_bytes(b"abcd")
    with StubApi({"PUT /o": Answer()}) as stub:
        told = instructions({"presigned_url": f"{stub.url}/o"}, 9)
        with pytest.raises(ValidationError, match="shorter"):
            upload_file(file, told)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "sideways"},
        {"part_size": 0},
        {"total_parts": 2},
        {"part_size": "many"},
        {"presigned_urls": []},
        {"presigned_urls": None},
        {"presigned_urls": [{"part_number": 2, "presigned_url": "http://127.0.0.1/x"}]},
        {"presigned_urls": [{"part_number": 1, "presigned_url": "http://127.0.0.1/x", "size": 3}]},
        {"presigned_urls": [{"part_number": 1, "presigned_url": "http://192.0.2.1/x"}]},
        {"presigned_urls": [{"part_number": 1}]},
    ],
)
def test_instructions_that_do_not_fit_are_refused(change):
    good = {
        "method": "multipart",
        "part_size": 4,
        "total_parts": 1,
        "presigned_urls": [{"part_number": 1, "presigned_url": "https://127.0.0.1/x"}],
    }
    assert instructions(good, 4).pieces[0].size == 4
    with pytest.raises(PlatformError):
        instructions(good | change, 4)


def test_an_interrupted_upload_is_taken_back_and_a_failing_abort_only_warns():
    calls, warnings = [], []
    with pytest.raises(KeyboardInterrupt), aborting(lambda: calls.append(1), lambda *w: warnings.append(w)):
        raise KeyboardInterrupt
    assert calls == [1]

    def failing():
        raise PlatformError("gone")

    with pytest.raises(ValidationError), aborting(failing, lambda *w: warnings.append(w)):
        raise ValidationError("first")
    assert [code for _, code in warnings] == ["ABORT_FAILED"]
    with aborting(failing, lambda *_: None):
        pass


def manifest_of(files, layout=EVAL, selected=("metrics", "trajectories")):
    return read_manifest({"files": files, "totals": {"files": len(files)}}, layout, selected)


def signing(asked, stub):
    return {"items": [{**item, "url": f"{stub.url}/o/{item['path']}"} for item in asked.json["items"]]}


def test_a_download_writes_the_layout_and_a_second_one_fetches_nothing(tmp_path):
    names = ["metrics.json", "summary.jsonl", *[f"trajectories/row_{at}_run_0.json" for at in range(30)]]
    routes = {f"GET /o/{name}": Answer(data=name.encode()) for name in names}
    moved = []
    with StubApi(routes) as stub, client_of(stub) as client:
        stub.routes["POST /api/cli/u"] = lambda asked: signing(asked, stub)
        manifest = manifest_of([{"path": name, "size": len(name), "token": f"t-{name}"} for name in names])
        plan = plan_download(manifest, tmp_path / "out")
        outcome = download_files(client, "/u", plan, on_bytes=moved.append)
        again = plan_download(manifest, tmp_path / "out")
    assert len(outcome.downloaded) == 32 and outcome.failed == []
    assert outcome.bytes_downloaded == sum(moved) == sum(map(len, names))
    assert {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()} == set(
        names
    )
    assert (tmp_path / "out/trajectories/row_7_run_0.json").read_text() == "trajectories/row_7_run_0.json"
    assert (again.wanted, len(again.present)) == ((), 32)
    assert len(plan_download(manifest, tmp_path / "out", overwrite=True).wanted) == 32
    signed = [asked for asked in stub.asked if asked.method == "POST"]
    assert len(signed) == 1 and signed[0].json["items"][0] == {"path": "metrics.json", "token": "t-metrics.json"}
    assert all("authorization" not in asked.headers for asked in stub.asked if asked.method == "GET")
    assert manifest.breakdown(("metrics", "trajectories"))["trajectories"]["files"] == 31


def test_urls_are_asked_for_in_batches_of_five_hundred(tmp_path):
    names = [f"trajectories/row_{at}_run_0.json" for at in range(501)]
    with StubApi({f"GET /o/{name}": Answer(data=b"x") for name in names}) as stub, client_of(stub) as client:
        stub.routes["POST /api/cli/u"] = lambda asked: signing(asked, stub)
        plan = plan_download(manifest_of([{"path": name, "size": 1} for name in names]), tmp_path)
        outcome = download_files(client, "/u", plan)
    assert len(outcome.downloaded) == 501
    assert [len(asked.json["items"]) for asked in stub.asked if asked.method == "POST"] == [500, 1]


def test_a_refused_url_is_renewed_a_short_file_is_not_kept_and_the_rest_arrives(tmp_path):
    routes = {
        "GET /o/metrics.json": [Answer(status=403), Answer(data=b"ab")],
        "GET /o/summary.jsonl": Answer(data=b"abc"),
        "GET /o/trajectories/a.json": Answer(data=b"a" * 100_000, cut_after=10),
        "GET /o/trajectories/b.json": Answer(data=b"gone", status=404),
    }
    files = [
        {"path": "metrics.json", "size": 2},
        {"path": "summary.jsonl", "size": 2},
        {"path": "trajectories/a.json", "size": 100_000},
        {"path": "trajectories/b.json", "size": 1},
    ]
    with StubApi(routes) as stub, client_of(stub) as client:
        stub.routes["POST /api/cli/u"] = lambda asked: signing(asked, stub)
        outcome = download_files(client, "/u", plan_download(manifest_of(files), tmp_path))
    assert [file.path for file in outcome.downloaded] == ["metrics.json"]
    assert [failure.path for failure in outcome.failed] == [file["path"] for file in files[1:]]
    assert "Size mismatch" in outcome.failed[0].error
    assert outcome.failed[2].error == "HTTP 404. gone"
    assert stub.calls.count("GET /o/trajectories/b.json") == 3
    assert stub.calls.count("POST /api/cli/u") == 2
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["metrics.json"]


def test_a_digest_of_the_manifest_is_checked(tmp_path):
    digest = hashlib.sha256(b"ab").hexdigest()
    manifest = manifest_of([{"path": "metrics.json", "size": 2, "sha256": digest}])
    (tmp_path / "metrics.json").write_bytes(b"xx")
    assert plan_download(manifest, tmp_path).wanted
    with StubApi({"GET /o/metrics.json": Answer(data=b"xy")}) as stub, client_of(stub) as client:
        stub.routes["POST /api/cli/u"] = lambda asked: signing(asked, stub)
        outcome = download_files(client, "/u", plan_download(manifest, tmp_path))
    assert "SHA-256" in outcome.failed[0].error
    assert (tmp_path / "metrics.json").read_bytes() == b"xx"
    (tmp_path / "metrics.json").write_bytes(b"ab")
    assert plan_download(manifest, tmp_path).present


BAD_PATHS = [
    "../evil", "/etc/passwd", "trajectories/../../x", "a\\b", "trajectories//x", "./metrics.json", "other.json",
    "artifacts/row_0_run_0/manifest.json", "trajectories/deep/x.json", "metrics.json/x", "logs.txt", "a\x00b", "",
]  # fmt: skip


def test_paths_outside_the_layout_are_failures_and_write_nothing(tmp_path):
    manifest = manifest_of([{"path": path, "size": 1} for path in BAD_PATHS if path])
    assert manifest.files == ()
    assert [failure.path for failure in manifest.refused] == [path for path in BAD_PATHS if path]
    twice = manifest_of([{"path": "metrics.json", "size": 1}] * 2)
    assert (len(twice.files), len(twice.refused)) == (1, 1)


def test_links_in_the_output_directory_lead_nowhere(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "out"
    root.mkdir()
    (root / "trajectories").symlink_to(outside)
    (root / "metrics.json").symlink_to(outside / "m")
    plan = plan_download(
        manifest_of([{"path": "trajectories/a.json", "size": 1}, {"path": "metrics.json", "size": 1}]), root
    )
    assert plan.wanted == ()
    assert len(plan.refused) == 2


def test_a_platform_that_signs_nothing_is_the_error(tmp_path):
    with StubApi({"POST /api/cli/u": Answer({"error": "no outputs"}, 404)}) as stub, client_of(stub) as client:
        plan = plan_download(manifest_of([{"path": "metrics.json", "size": 1}]), tmp_path)
        with pytest.raises(OsmosisError, match="no outputs") as caught:
            download_files(client, "/u", plan)
    assert caught.value.error_code == "NOT_FOUND"
    assert stub.calls == ["POST /api/cli/u"]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [(None, ("metrics", "trajectories")), ("all", EVAL.types), ("logs, metrics,logs", ("logs", "metrics"))],
)
def test_types_are_chosen(given, chosen):
    assert EVAL.choose(given) == chosen


@pytest.mark.parametrize("given", ["", "all,logs", "logs,", "result", "summary"])
def test_wrong_types_are_refused(given):
    with pytest.raises(ValidationError, match="--type"):
        EVAL.choose(given)
    assert BENCHMARK.choose("summary") == ("summary",)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="sums.jsonl"', "sums.jsonl"),
        ('attachment; filename="../../x/sums.jsonl"', "sums.jsonl"),
        ("attachment; filename*=UTF-8''na%C3%AFve.csv", "naïve.csv"),
        ("attachment; filename=..", None),
        ("inline", None),
    ],
)
def test_the_name_of_an_object_has_no_folder(header, name):
    with StubApi({"GET /o": Answer(data=b"x", headers={"Content-Disposition": header})}) as stub:
        with open_object(f"{stub.url}/o") as found:
            assert found.file_name == name


def in_parts(data, cuts, version='"v1"'):
    """A store whose connections break after `cuts` bytes each, and which gives the rest of the same version."""

    def serve(asked):
        begin = 0
        if "range" in asked.headers and asked.headers.get("if-range") == version:
            begin = int(asked.headers["range"].removeprefix("bytes=").removesuffix("-"))
        headers = {"ETag": version}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        cut = cuts.pop(0) if cuts else None
        return Answer(data=data[begin:], status=206 if begin else 200, headers=headers, cut_after=cut)

    return serve


def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path):
    data = bytes(range(256)) * 8192  # 2 MiB
    moved = []
    with StubApi({"GET /o": in_parts(data, [600_000, 700_000])}) as stub, open_object(f"{stub.url}/o") as found:
        digest = hashlib.sha256(data).hexdigest()
        assert found.save(tmp_path / "x", size=len(data), sha256=digest, on_bytes=moved.append) == len(data)
    begins = [asked.headers.get("range") for asked in stub.asked]
    assert begins[0] is None and len(begins) == 3
    assert all(int(begin.removeprefix("bytes=").removesuffix("-")) >= 262_144 for begin in begins[1:])
    assert (tmp_path / "x").read_bytes() == data
    assert sum(moved) == len(data)


@pytest.mark.parametrize("why", ["no version", "another version", "no parts"])
def test_parts_of_different_objects_are_never_joined(tmp_path, why):
    data = b"a" * 1_000_000
    answers = [
        Answer(data=data, headers={} if why == "no version" else {"ETag": '"v1"'}, cut_after=600_000),
        Answer(data=data, status=200, headers={"ETag": '"v2"'})
        if why != "no parts"
        else Answer(data=b"x", status=206, headers={"ETag": '"v1"', "Content-Range": "bytes 0-0/9"}),
    ]
    with StubApi({"GET /o": answers}) as stub, open_object(f"{stub.url}/o") as found:
        with pytest.raises(PlatformError, match="broke off"):
            found.save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(held=st.integers(0, 70), version=st.sampled_from(['"v1"', '"v2"', "", None]), wrong=st.booleans())
def test_whatever_an_earlier_try_left_the_file_is_the_object(held, version, wrong):
    data = bytes(range(60))
    with TemporaryDirectory() as folder, StubApi({"GET /o": in_parts(data, [])}) as stub:
        place = Path(folder) / "x"
        right = version == '"v1"'
        Path(folder, "x.partial").write_bytes((data + b"more than it has")[:held] if right else b"z" * held)
        if version is not None:
            Path(folder, "x.partial.etag").write_text(version)
        with open_object(f"{stub.url}/o") as found:
            assert found.save(place, size=None if wrong else 60) == 60
        assert place.read_bytes() == data
        assert [path.name for path in Path(folder).iterdir()] == ["x"]
        asked = [one.headers.get("range") for one in stub.asked]
        goes_on = right and 0 < held <= 60
        assert asked == ([None, f"bytes={min(held, 59)}-"] if goes_on else [None])


@pytest.mark.parametrize("second", ["whole", "unsatisfiable", "another part", "no reply"])
def test_a_store_that_gives_no_rest_is_asked_for_the_whole(tmp_path, second):
    data = b"0123456789"
    whole = Answer(data=data, headers={"ETag": '"v1"'})
    answers = {
        "whole": Answer(data=b"changed!", headers={"ETag": '"v2"'}),
        "unsatisfiable": Answer(status=416),
        "another part": Answer(data=b"01", status=206, headers={"Content-Range": "bytes 0-1/10"}),
        "no reply": Answer(status=503),
    }
    (tmp_path / "x.partial").write_bytes(b"0123")
    (tmp_path / "x.partial.etag").write_text('"v1"')
    with StubApi({"GET /o": [whole, answers[second], whole]}) as stub, open_object(f"{stub.url}/o") as found:
        if second == "no reply":
            with pytest.raises(PlatformError, match="503"):
                found.save(tmp_path / "x")
            assert (tmp_path / "x.partial").read_bytes() == b"0123"
        else:
            found.save(tmp_path / "x")
            assert (tmp_path / "x").read_bytes() == (b"changed!" if second == "whole" else data)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "second name"])
def test_something_odd_in_the_place_of_a_partial_file_is_not_written(tmp_path, kind):
    partial = tmp_path / "x.partial"
    other = tmp_path / "other"
    other.write_text("mine")
    if kind == "pipe":
        os.mkfifo(partial)
    elif kind == "folder":
        partial.mkdir()
    else:
        (partial.symlink_to if kind == "link" else partial.hardlink_to)(other)
    with StubApi({"GET /o": Answer(data=b"x")}) as stub, open_object(f"{stub.url}/o") as found:
        with pytest.raises((OSError, ValidationError)):
            found.save(tmp_path / "x")
    assert other.read_text() == "mine" and not (tmp_path / "x").exists()


def test_a_digest_counts_what_an_earlier_try_left(tmp_path):
    data = bytes(range(100))
    (tmp_path / "x.partial").write_bytes(b"!" + data[1:40])  # damaged
    (tmp_path / "x.partial.etag").write_text('"v1"')
    digest = hashlib.sha256(data).hexdigest()
    with StubApi({"GET /o": in_parts(data, [])}) as stub:
        with open_object(f"{stub.url}/o") as found, pytest.raises(PlatformError, match="SHA-256"):
            found.save(tmp_path / "x", sha256=digest)
        with open_object(f"{stub.url}/o") as found:
            assert found.save(tmp_path / "x", sha256=digest) == 100
    assert (tmp_path / "x").read_bytes() == data


def test_redirects_lead_to_private_places_only(tmp_path):
    with StubApi({"GET /end": Answer(data=b"x")}) as stub:
        stub.routes["GET /start"] = Answer(status=302, headers={"Location": "/end"})
        stub.routes["GET /leak"] = Answer(status=302, headers={"Location": "http://192.0.2.1/x"})
        stub.routes["GET /loop"] = Answer(status=302, headers={"Location": "/loop"})
        stub.routes["GET /nowhere"] = Answer(status=302, headers={"Location": "http://[bad"})
        with open_object(f"{stub.url}/start") as found:
            assert found.save(tmp_path / "x", size=1) == 1
        for path in ("/leak", "/loop", "/nowhere"):
            with pytest.raises(PlatformError), open_object(stub.url + path):
                pass
    assert stub.calls.count("GET /loop") == 21


def test_a_failing_job_ends_the_others_at_once():
    from osmosis_ai.client.transfer.parallel import for_each

    def job(item, stop):
        if item == 0:
            raise ValueError("first")
        stop.wait(30)

    began = time.monotonic()
    with pytest.raises(ValueError, match="first"):
        for_each(range(4), job, threads=4)
    assert time.monotonic() - began < 5
