"""Two requests at the same moment that only one can have: one is answered, the rest are told, and nobody gets a 5xx."""

import threading
from collections import Counter

import pytest
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.usage.quotas import set_quota
from platform_people import People

AT_ONCE = 8


@pytest.fixture(scope="module")
def database_url(request):
    """PostgreSQL alone: SQLite has one writer at a time."""
    return request.getfixturevalue("postgres").create_database("races")


@pytest.fixture
def people(services):
    return People(services)


def at_once(calls):
    """Makes the calls at the same moment and gives their answers in order."""
    answers, start = [None] * len(calls), threading.Barrier(len(calls))

    def run(at, call):
        start.wait()
        answers[at] = call()

    threads = [threading.Thread(target=run, args=one) for one in enumerate(calls)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return answers


def told(answers):
    return Counter(answer.status_code for answer in answers)


def begin(ada, name, size=10, **more):
    body = {"file_name": name, "file_size": size, "extension": "jsonl", **more}
    return ada.call("POST", "/api/cli/datasets", body)


def test_one_of_many_gets_a_name(people):
    ada = people.make("ada", workspace="renames")
    ids = [begin(ada, f"d{at}").json()["id"] for at in range(AT_ONCE)]
    path = "/api/v1/workspaces/renames/datasets/"
    answers = at_once([lambda one=one: ada.call("PATCH", path + one, {"name": "same"}) for one in ids])
    assert told(answers) == {200: 1, 409: AT_ONCE - 1}
    answers = at_once([lambda: ada.call("DELETE", path + "same")] * AT_ONCE)
    assert told(answers) == {204: 1, 404: AT_ONCE - 1}


def test_many_that_overwrite_one_dataset_come_one_after_the_other(people):
    ada = people.make("bea", workspace="overwrites")

    def uploaded(**more):
        begun = begin(ada, "same", **more).json()
        upload = begun["upload"]
        done = ada.http.put(upload["presigned_url"], content=b"0123456789", headers=upload["upload_headers"])
        assert done.status_code == 200
        return begun["id"]

    def complete(one):
        return ada.call("POST", f"/api/cli/datasets/{one}/complete", {"file_extension": "jsonl"})

    first = uploaded()
    assert complete(first).status_code == 200
    ids = [uploaded(overwrite_dataset_id=first) for _ in range(AT_ONCE)]
    assert told(at_once([lambda one=one: complete(one) for one in ids])) == {200: AT_ONCE}
    left = ada.call("GET", "/api/cli/datasets").json()["datasets"]
    assert [one["file_name"] for one in left] == ["same"]


def test_a_quota_is_not_passed_together(people, services):
    ada = people.make("cleo", workspace="quotas")
    with services.database.write() as work:
        set_quota(work, ada.workspace_id, "datasets.bytes", 250)
    answers = at_once([lambda at=at: begin(ada, f"d{at}", size=100) for at in range(AT_ONCE)])
    assert told(answers) == {201: 2, 403: AT_ONCE - 2}


def test_hosted_repositories_made_together_have_names_of_their_own(people):
    ada = people.make("dora", workspace="makes")
    names = ["a-b", "a--b", "a---b", "a----b"]
    answers = at_once([lambda one=one: ada.call("POST", "/api/v1/workspaces", {"name": one}) for one in names])
    assert told(answers) == {201: len(names)}
    assert len({answer.json()["repository_full_name"] for answer in answers}) == len(names)


def test_remotes_connected_together_leave_one(people, services):
    ada = people.make("eva", workspace="remotes")
    path = "/api/v1/workspaces/remotes/repository/connect"
    urls = [f"https://93.184.216.34/a/r{at}.git" for at in range(4)]
    answers = at_once([lambda one=one: ada.call("POST", path, {"url": one}) for one in urls])
    assert told(answers) == {201: len(urls)}
    with services.database.read() as work:
        assert RepositoryRepository(work).find_connected(ada.workspace_id) is not None
