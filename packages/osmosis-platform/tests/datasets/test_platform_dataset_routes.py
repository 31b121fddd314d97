"""The dataset endpoints of the command line and of pages, on both databases."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.usage.quotas import set_quota


def _code(reply):
    return reply.status_code, reply.json()["code"]


def test_a_new_dataset_waits_for_its_bytes(ada):
    begun = ada.begin("sums", 254)
    assert begun["status"] == "uploading"
    assert (begun["file_name"], begun["file_size"], begun["file_format"]) == ("sums", 254, "jsonl")
    assert begun["creator_name"] == "ada@example.test"
    assert begun["platform_url"] == f"http://127.0.0.1:8700/lab/datasets/{begun['id']}"
    assert begun["upload"]["method"] == "simple"


def test_an_upload_in_parts_becomes_a_dataset_that_downloads_as_it_was(ada, rows):
    content = rows * 20
    dataset = ada.uploaded(content)
    assert (dataset["status"], dataset["row_count"]) == ("uploaded", 100)
    assert (dataset["file_size"], dataset["file_format"]) == (len(content), "jsonl")
    assert dataset["data_preview"][0] == {"user_prompt": "0 + 0?", "ground_truth": "0", "weight": 0.0}
    download = ada.cli("GET", "/sums/download").json()
    assert download["file_name"] == "sums.jsonl"
    reply = ada.http.get(download["presigned_url"])
    assert reply.content == content
    assert "sums.jsonl" in reply.headers["content-disposition"]


def test_a_name_is_taken_until_it_is_overwritten(ada, rows):
    old = ada.uploaded(rows)
    body = {"file_name": "sums", "file_size": len(rows), "extension": "jsonl"}
    taken = ada.cli("POST", body=body)
    assert _code(taken) == (409, "CONFLICT")
    assert taken.json()["existing_dataset_id"] == old["id"]
    begun = ada.begin("sums", len(rows), overwrite_dataset_id=old["id"])
    assert ada.cli("GET", "/sums").json()["id"] == old["id"], "the old one stays until the new one is complete"
    ada.complete(begun, ada.send(begun, rows))
    assert ada.cli("GET", "/sums").json()["id"] == begun["id"]
    assert ada.cli("GET", f"/{old['id']}").status_code == 404
    deleted = ada.v1("GET", deleted=True).json()["datasets"]
    assert [one["id"] for one in deleted] == [old["id"]]


def test_an_overwrite_that_is_given_up_changes_nothing(ada, rows):
    old = ada.uploaded(rows)
    begun = ada.begin("sums", 10, overwrite_dataset_id=old["id"])
    assert ada.cli("POST", f"/{begun['id']}/abort", {}).status_code == 204
    assert ada.cli("GET", "/sums").json()["id"] == old["id"]
    assert ada.cli("GET", f"/{begun['id']}").json()["status"] == "cancelled"


def test_an_overwrite_of_another_dataset_than_the_name_has_now_is_refused(ada, rows):
    old = ada.uploaded(rows)
    begun = ada.begin("sums", len(rows), overwrite_dataset_id=old["id"])
    ada.complete(begun, ada.send(begun, rows))
    body = {"file_name": "sums", "file_size": 9, "extension": "jsonl", "overwrite_dataset_id": old["id"]}
    refused = ada.cli("POST", body=body)
    assert _code(refused) == (409, "CONFLICT")
    assert refused.json()["existing_dataset_id"] == begun["id"]


def test_of_many_that_want_a_name_at_once_one_gets_it(ada):
    def begin(_):
        return ada.cli("POST", body={"file_name": "sums", "file_size": 9, "extension": "csv"}).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(begin, range(6)))
    assert statuses == [201] + [409] * 5
    assert len(list(ada.services.blobs.staging.glob("*.data"))) == 1, "the others' uploads are gone"


def test_completing_again_answers_what_has_become_of_it(ada, rows):
    begun = ada.begin("sums", len(rows))
    parts = ada.send(begun, rows)
    first, second = ada.complete(begun, parts), ada.complete(begun, parts)
    assert [first.json()["status"], second.json()["status"]] == ["pending", "pending"]
    ada.process()
    assert ada.complete(begun, parts).json()["status"] == "uploaded"
    jobs = ada.call("GET", "/api/v1/workspaces/lab/jobs").json()["jobs"]
    assert len([job for job in jobs if job["kind"] == "dataset.process"]) == 1


def test_completing_without_the_bytes_is_refused_and_can_be_repeated(ada, rows):
    begun = ada.begin("sums", len(rows))
    assert _code(ada.complete(begun, [])) == (400, "UPLOAD_INCOMPLETE")
    ada.send(begun, rows)
    assert _code(ada.complete(begun, [], extension="csv")) == (400, "VALIDATION")
    assert ada.complete(begun, []).status_code == 200


def test_an_aborted_upload_is_cancelled_and_its_name_free(ada, rows):
    begun = ada.begin()
    for _ in range(2):
        assert ada.cli("POST", f"/{begun['id']}/abort", {}).status_code == 204
    assert _code(ada.complete(begun, [])) == (409, "DATASET_STATE")
    assert ada.cli("GET", "/sums").json()["status"] == "cancelled"
    again = ada.begin()
    assert ada.cli("GET", "/sums").json()["id"] == again["id"]
    ada.uploaded(rows, "other")
    complete = ada.cli("GET", "/other").json()
    assert _code(ada.cli("POST", f"/{complete['id']}/abort", {})) == (409, "DATASET_STATE")


def test_an_interrupted_upload_goes_on(ada, rows):
    content = rows * 20
    begun = ada.begin("sums", len(content))
    first = begun["upload"]["presigned_urls"][0]
    ada.http.put(first["presigned_url"], content=content[: first["size"]])
    state = ada.v1("GET", "/sums/upload").json()
    assert state["uploaded_parts"] == [1]
    told = ada.cli("GET", f"/{begun['id']}/upload").json()
    assert told["uploaded_parts"] == [1] and told["upload"]["total_parts"] == state["upload"]["total_parts"]
    assert ada.complete(begun, ada.send({"upload": state["upload"]}, content)).status_code == 200


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Größe 漢字 🎉", True),
        ("a.b", True),
        (".hidden", True),
        ("", False),
        ("..", False),
        ("../../etc/passwd", False),
        ("a\\b", False),
        ("a\u202eb", False),
        ("a\0b", False),
        ("a\nb", False),
        (" a", False),
        ("ds_0123456789abcdefghjkmnpqrs", False),
        ("x" * 201, False),
        ("漢" * 90, False),
    ],
)
def test_names(ada, name, allowed):
    reply = ada.cli("POST", body={"file_name": name, "file_size": 9, "extension": "csv"})
    if allowed:
        assert reply.status_code == 201
        assert ada.cli("GET", f"/{name}").json()["file_name"] == name
    else:
        assert _code(reply) == (400, "VALIDATION")
        assert reply.json()["field"] == "file_name"


def test_one_name_has_one_spelling(ada):
    ada.begin("cafe\u0301")
    assert ada.cli("GET", "/caf\u00e9").json()["file_name"] == "caf\u00e9"
    assert ada.cli("GET", "/cafe\u0301").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"file_name": "a", "file_size": "9", "extension": "csv"},
        {"file_name": "a", "file_size": 1.5, "extension": "csv"},
        {"file_name": "a", "file_size": -1, "extension": "csv"},
        {"file_name": "a", "file_size": 0, "extension": "csv"},
        {"file_name": "a", "file_size": True, "extension": "csv"},
        {"file_name": "a", "file_size": 1 << 70, "extension": "csv"},
        {"file_name": "a", "file_size": 9, "extension": "exe"},
        {"file_name": None, "file_size": 9, "extension": "csv"},
        {"file_name": "\ud800", "file_size": 9, "extension": "csv"},
    ],
)
def test_malformed_requests(ada, body):
    headers = {"Authorization": f"Bearer {ada.token}", "X-Osmosis-Workspace": "lab", "Content-Type": "application/json"}
    reply = ada.http.post("/api/cli/datasets", content=json.dumps(body), headers=headers)
    assert _code(reply) == (400, "VALIDATION")


def test_a_file_over_the_limit_is_refused(ada):
    body = {"file_name": "a", "file_size": (1 << 30) + 1, "extension": "csv"}
    assert _code(ada.cli("POST", body=body)) == (413, "TOO_LARGE")


def test_lists_come_in_pages_newest_first(ada):
    for number in range(5):
        ada.begin(f"d{number}")
    first = ada.cli("GET", limit=2).json()
    assert [one["file_name"] for one in first["datasets"]] == ["d4", "d3"]
    assert (first["total_count"], first["has_more"], first["next_offset"]) == (5, True, 2)
    last = ada.cli("GET", limit=2, offset=4).json()
    assert ([one["file_name"] for one in last["datasets"]], last["next_offset"]) == (["d0"], None)
    assert _code(ada.cli("GET", limit=51)) == (400, "VALIDATION")


def test_only_an_uploaded_dataset_can_be_downloaded(ada, rows):
    begun = ada.begin("sums", len(rows))
    assert _code(ada.cli("GET", "/sums/download")) == (409, "DATASET_STATE")
    ada.complete(begun, ada.send(begun, rows))
    assert _code(ada.cli("GET", "/sums/download")) == (409, "DATASET_STATE")
    assert _code(ada.cli("GET", "/none/download")) == (404, "DATASET_NOT_FOUND")


def test_logs_tell_the_steps_oldest_first_in_pages(ada, rows):
    ada.uploaded(rows)
    page = ada.cli("GET", "/sums/logs").json()
    assert [entry["step"] for entry in page["logs"]] == ["setup", "validate", "convert", "done"]
    assert all(entry["timestamp"].endswith("Z") and entry["level"] == "info" for entry in page["logs"])
    newest = ada.cli("GET", "/sums/logs", limit=3).json()
    older = ada.cli("GET", "/sums/logs", limit=3, cursor=newest["next_cursor"], direction="older").json()
    assert [entry["step"] for entry in older["logs"]] == ["setup"]
    assert older["next_cursor"] is None
    assert ada.cli("GET", "/sums/logs", cursor="bad!").status_code == 400


def test_a_rename_keeps_the_dataset_and_frees_the_old_name(ada, rows):
    dataset = ada.uploaded(rows)
    other = ada.begin("other")
    assert _code(ada.v1("PATCH", "/sums", {"name": "other"})) == (409, "CONFLICT")
    assert _code(ada.v1("PATCH", "/sums", {"name": "a/b"})) == (400, "VALIDATION")
    renamed = ada.v1("PATCH", "/sums", {"name": "products"}).json()
    assert (renamed["id"], renamed["file_name"]) == (dataset["id"], "products")
    assert renamed["updated_at"] > dataset["updated_at"]
    assert ada.cli("GET", "/products/download").json()["file_name"] == "products.jsonl"
    assert ada.begin("sums")["id"] not in {dataset["id"], other["id"]}


def test_a_deleted_dataset_is_gone_for_users_and_told_in_the_list_of_deleted_ones(ada, rows):
    dataset = ada.uploaded(rows)
    assert ada.v1("DELETE", "/sums").status_code == 204
    assert _code(ada.v1("DELETE", "/sums")) == (404, "DATASET_NOT_FOUND")
    for path in ("/sums", f"/{dataset['id']}", "/sums/download", "/sums/logs"):
        assert _code(ada.cli("GET", path)) == (404, "DATASET_NOT_FOUND")
    (deleted,) = ada.v1("GET", deleted=True).json()["datasets"]
    assert (deleted["id"], deleted["deleted_by"]) == (dataset["id"], ada.user_id)
    assert ada.begin("sums")["id"] != dataset["id"]


def test_statistics_and_preview_pages(ada, rows):
    ada.uploaded(rows)
    facts = ada.v1("GET", "/sums/statistics").json()
    assert facts["row_count"] == 5
    columns = {column["name"]: column for column in facts["column_statistics"]["columns"]}
    assert columns["weight"]["types"] == {"number": 5}
    assert (columns["weight"]["min"], columns["weight"]["max"], columns["weight"]["mean"]) == (0.0, 2.0, 1.0)
    assert columns["user_prompt"]["length"] == {"min": 6, "max": 6, "mean": 6.0}
    page = ada.v1("GET", "/sums/preview", limit=2, offset=4).json()
    assert [row["user_prompt"] for row in page["rows"]] == ["4 + 4?"]
    assert (page["total_count"], page["next_offset"]) == (5, None)


def test_another_workspace_learns_nothing(ada, people, rows):
    dataset = ada.uploaded(rows)
    eve = people("eve@example.test", workspace="evil")
    for path in (f"/{dataset['id']}", "/sums", f"/{dataset['id']}/download", f"/{dataset['id']}/logs"):
        assert _code(eve.cli("GET", path)) == (404, "DATASET_NOT_FOUND")
    for path in ("complete", "abort"):
        body = {"file_extension": "jsonl"} if path == "complete" else {}
        assert _code(eve.cli("POST", f"/{dataset['id']}/{path}", body)) == (404, "DATASET_NOT_FOUND")
    assert _code(eve.v1("DELETE", f"/{dataset['id']}")) == (404, "DATASET_NOT_FOUND")
    assert eve.cli("GET").json()["datasets"] == []
    assert eve.begin("sums", overwrite_dataset_id=dataset["id"])["id"] != dataset["id"], "a name of its own"
    assert ada.cli("GET", "/sums").json()["id"] == dataset["id"]


def test_roles_and_scopes(ada, people, rows):
    dataset = ada.uploaded(rows)
    bob = people("bob@example.test", role=Role.MEMBER)
    viewer = people("vera@example.test", role=Role.VIEWER)
    reader = people("carl@example.test", role=Role.MEMBER, scopes=("datasets:read",))
    new = {"file_name": "new", "file_size": 9, "extension": "csv"}
    assert viewer.cli("GET", "/sums").status_code == 200
    assert _code(viewer.cli("POST", body=new)) == (403, "FORBIDDEN")
    assert _code(reader.cli("POST", body=new)) == (403, "TOKEN_SCOPE_MISSING")
    assert _code(bob.v1("DELETE", "/sums")) == (403, "FORBIDDEN")
    over = {"file_name": "sums", "file_size": 9, "extension": "csv", "overwrite_dataset_id": dataset["id"]}
    assert _code(bob.cli("POST", body=over)) == (403, "FORBIDDEN")
    own = bob.begin("mine")
    assert bob.v1("DELETE", f"/{own['id']}").status_code == 204


def test_everything_is_audited(ada, rows):
    old = ada.uploaded(rows)
    ada.upload(rows, overwrite_dataset_id=old["id"])
    ada.v1("PATCH", "/sums", {"name": "products"})
    with ada.services.database.read() as work:
        audit = AuditRepository(work)
        told = [entry.action for entry in audit.page(ada.workspace_id) if entry.resource_kind == "dataset"]
        assert audit.verify(ada.workspace_id) is None
    assert told[::-1] == [
        "dataset.create",
        "dataset.complete",
        "dataset.create",
        "dataset.delete",
        "dataset.complete",
        "dataset.rename",
    ]


def test_a_quota_of_bytes_holds(ada):
    with ada.services.database.write() as work:
        set_quota(work, ada.workspace_id, "datasets.bytes", 100)
    ada.begin("a", 60)
    body = {"file_name": "b", "file_size": 60, "extension": "csv"}
    assert _code(ada.cli("POST", body=body)) == (403, "QUOTA_EXCEEDED")
    ada.begin("b", 40)
