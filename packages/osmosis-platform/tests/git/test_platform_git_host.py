"""The git host through a real server and the real git: clone, push, who may, and what is refused."""

import asyncio
import gzip
import hashlib
import os
import resource
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.git import hosting
from osmosis_platform.git.backend import GitExchange, parse_cgi_head
from osmosis_platform.identity.tokens import issue_token
from real_git import git


def test_a_clone_holds_the_template_and_a_push_comes_back(clone_url, tmp_path, lab):
    git("clone", "-q", clone_url("owner"), tmp_path / "a")
    for place in ("rollouts", "configs/training", "configs/eval", "data", "AGENTS.md", ".gitignore"):
        assert (tmp_path / "a" / place).exists(), place
    assert not (tmp_path / "a" / "scaffold").exists()
    (tmp_path / "a/data/new.jsonl").write_text("{}\n")
    git("add", "-A", cwd=tmp_path / "a")
    git("commit", "-qm", "Add data", cwd=tmp_path / "a")
    git("push", "-q", cwd=tmp_path / "a")
    git("clone", "-q", clone_url("viewer"), tmp_path / "b")
    assert (tmp_path / "b/data/new.jsonl").read_text() == "{}\n"
    assert lab.branches() == {"main": git("rev-parse", "HEAD", cwd=tmp_path / "a")}


def test_a_pack_of_many_megabytes_streams_both_ways(clone_url, tmp_path):
    git("clone", "-q", clone_url(), tmp_path / "a")
    content = os.urandom(12 << 20)
    (tmp_path / "a/blob.bin").write_bytes(content)
    git("add", "-A", cwd=tmp_path / "a")
    git("commit", "-qm", "Add a large file", cwd=tmp_path / "a")
    git("push", "-q", cwd=tmp_path / "a")
    git("clone", "-q", clone_url(), tmp_path / "b")
    assert (tmp_path / "b/blob.bin").read_bytes() == content


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_every_protocol_version_is_served(clone_url, version):
    line = git("-c", f"protocol.version={version}", "ls-remote", clone_url(), "refs/heads/main")
    assert line.endswith("refs/heads/main")


def test_a_bearer_token_serves_as_well(server, lab):
    header = f"Authorization: Bearer {lab.tokens['viewer']}"
    assert git("-c", f"http.extraHeader={header}", "ls-remote", f"{server.url}/git/lab/lab.git")


def test_a_viewer_reads_and_does_not_push(clone_url, tmp_path, lab):
    git("clone", "-q", clone_url("viewer"), tmp_path / "a")
    git("commit", "-q", "--allow-empty", "-m", "No", cwd=tmp_path / "a")
    before = lab.branches()
    said = git("push", cwd=tmp_path / "a", status=1)
    assert "403" in said
    assert lab.branches() == before


@pytest.mark.parametrize(
    ("who", "path"), [("stranger", "lab/lab"), ("member", "lab/other"), ("member", "elsewhere/lab")]
)
def test_what_is_not_yours_is_not_there(clone_url, who, path):
    assert "not found" in git("ls-remote", clone_url(who, path), status=1)


def test_a_token_of_another_workspace_does_not_reach(clone_url, services, lab):
    with services.database.write() as work:
        other = issue_token(
            work, lab.users["owner"], kind="personal", name="t", scopes=["all"], expires_at=None,
            workspace_id="ws_00000000000000000000000000",
        )  # fmt: skip
    assert "not found" in git("ls-remote", clone_url(token=other.secret), status=1)


def test_scopes_of_a_token_count(clone_url, services, lab, tmp_path):
    with services.database.write() as work:
        reader = issue_token(work, lab.users["owner"], kind="personal", name="t", scopes=["git:read"], expires_at=None)
    git("clone", "-q", clone_url(token=reader.secret), tmp_path / "a")
    git("commit", "-q", "--allow-empty", "-m", "No", cwd=tmp_path / "a")
    assert "403" in git("push", cwd=tmp_path / "a", status=1)


def test_no_credential_is_asked_for_one(server):
    answer = httpx.get(f"{server.url}/git/lab/lab.git/info/refs?service=git-upload-pack")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic realm=")
    assert answer.json()["code"] == "AUTH_HEADER_MISSING"


def test_a_revoked_token_is_refused_at_once(server, services, lab):
    place = f"{server.url}/git/lab/lab.git/info/refs?service=git-upload-pack"
    with services.database.write() as work:
        token = issue_token(work, lab.users["owner"], kind="personal", name="t", scopes=["all"], expires_at=None)
    assert httpx.get(place, auth=("any", token.secret)).status_code == 200
    with services.database.write() as work:
        TokenRepository(work).revoke(lab.users["owner"], token.id)
    answer = httpx.get(place, auth=("any", token.secret))
    assert (answer.status_code, answer.json()["code"]) == (401, "TOKEN_REVOKED")


ODD_PATHS = [
    "lab/lab.git/config",
    "lab/lab.git/HEAD",
    "lab/lab.git/objects/info/packs",
    "lab/..%2f..%2flab.git/info/refs?service=git-upload-pack",
    "lab/%2e%2e/lab.git/info/refs?service=git-upload-pack",
    "lab/lab%00.git/info/refs?service=git-upload-pack",
    "lab/lab.git/info/refs%0a?service=git-upload-pack",
    "-lab/lab.git/info/refs?service=git-upload-pack",
    "lab/lab/info/refs?service=git-upload-pack",
    "lab/lab.git.git/info/refs?service=git-upload-pack",
]


def test_odd_paths_are_not_found(server, lab):
    token = httpx.BasicAuth("any", lab.tokens["owner"])._auth_header
    for path in ODD_PATHS:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            request = f"GET /git/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            assert b" 404 " in connection.recv(4096).split(b"\r\n", 1)[0], path


@pytest.mark.parametrize("query", ["", "service=git-upload-archive", "service=git-upload-pack&x=1"])
def test_only_the_smart_protocol_is_served(server, lab, query):
    place = f"{server.url}/git/lab/lab.git/info/refs?{query}"
    answer = httpx.get(place, auth=("any", lab.tokens["owner"]))
    assert (answer.status_code, answer.json()["code"]) == (400, "GIT_DUMB_PROTOCOL")


def test_a_gzip_body_is_understood(server, lab):
    """Git compresses requests with many `have` lines."""
    head = lab.branches()["main"]
    want = f"want {head}\n"
    body = f"{len(want) + 4:04x}{want}00000009done\n".encode()
    answer = httpx.post(
        f"{server.url}/git/lab/lab.git/git-upload-pack",
        content=gzip.compress(body),
        headers={"Content-Type": "application/x-git-upload-pack-request", "Content-Encoding": "gzip"},
        auth=("any", lab.tokens["viewer"]),
    )
    assert answer.status_code == 200
    assert answer.content.startswith(b"0008NAK\nPACK")


def test_a_compressed_push_is_refused(server, lab):
    """A megabyte of it could name ten million branches."""
    answer = httpx.post(
        f"{server.url}/git/lab/lab.git/git-receive-pack",
        content=gzip.compress(b"0000"),
        headers={"Content-Type": "application/x-git-receive-pack-request", "Content-Encoding": "gzip"},
        auth=("any", lab.tokens["member"]),
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION")


def test_a_push_over_the_limit_is_refused_and_leaves_nothing(clone_url, services, tmp_path, lab):
    object.__setattr__(services, "settings", services.settings.model_copy(update={"max_push_bytes": 1 << 20}))
    git("clone", "-q", clone_url(), tmp_path / "a")
    (tmp_path / "a/blob.bin").write_bytes(os.urandom(3 << 20))
    git("add", "-A", cwd=tmp_path / "a")
    git("commit", "-qm", "Too large", cwd=tmp_path / "a")
    before = lab.branches()
    said = git("push", cwd=tmp_path / "a", status=1)
    assert "exceeds maximum" in said or "413" in said or "hung up" in said
    git("-C", lab.path, "fsck", "--no-dangling")
    assert git("-C", lab.path, "rev-parse", "main") == before["main"]


def test_a_client_that_leaves_ends_its_git_process(server, lab):
    token = httpx.BasicAuth("any", lab.tokens["owner"])._auth_header
    connection = socket.create_connection(("127.0.0.1", server.port))
    head = (
        "POST /git/lab/lab.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {token}\r\nContent-Type: application/x-git-receive-pack-request\r\n"
        "Content-Length: 1000000\r\n\r\n"
    )
    connection.sendall(head.encode() + b"0094")
    assert _until(lambda: _processes(lab.path.name), True)
    connection.close()
    assert _until(lambda: _processes(lab.path.name), False)


def unfolding_pack(kind):
    """A pack of 2 MB with an object of 1.5 GiB of zeros, itself or made by a delta."""
    size, block = 3 << 29, bytes(1 << 20)
    squeezed = zlib.compressobj(9)
    stream = squeezed.compress(block) + squeezed.flush(zlib.Z_FULL_FLUSH)
    again = squeezed.compress(block) + squeezed.flush(zlib.Z_FULL_FLUSH)
    stream += again * (size // len(block) - 1) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    stream += struct.pack(">I", (size % 65521) << 16 | 1)  # the checksum of that many zeros
    head = bytes([0x80 | kind << 4 | size & 15])
    rest = size >> 4
    while rest:
        head, rest = head + bytes([rest & 0x7F | (0x80 if rest > 0x7F else 0)]), rest >> 7
    pack = b"PACK" + struct.pack(">II", 2, 1) + head + stream
    return pack + hashlib.sha1(pack).digest()


@pytest.mark.parametrize("kind", [1, 2, 4], ids=["commit", "tree", "tag"])
def test_a_small_push_that_unfolds_to_gigabytes_takes_no_memory(server, lab, kind):
    line = f"{'0' * 40} {'1' * 40} refs/heads/bomb\0 report-status\n".encode()
    before = lab.branches()
    # In KiB; the children of tests before this one, and what this process holds at a fork, count too.
    large = max(1200 << 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    answer = httpx.post(
        f"{server.url}/git/lab/lab.git/git-receive-pack",
        content=b"%04x" % (len(line) + 4) + line + b"0000" + unfolding_pack(kind),
        headers={"Content-Type": "application/x-git-receive-pack-request"},
        auth=("any", lab.tokens["owner"]),
        timeout=60,
    )
    assert answer.status_code == 200 and b"ng refs/heads/bomb" in answer.content, answer.text
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= large
    assert lab.branches() == before


HOSTILE = {
    "a folder .git": "040000 tree {tree}\t.git\n",
    "a folder ..": "040000 tree {tree}\t..\n",
    "a link .gitmodules": "120000 blob {blob}\t.gitmodules\n",
    "the same name twice": "100644 blob {blob}\ta\n100644 blob {blob}\ta\n",
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_trees_that_would_harm_a_clone_are_refused(clone_url, tmp_path, lab, entries):
    clone = tmp_path / "a"
    git("clone", "-q", clone_url(), clone)
    blob = git("hash-object", "-w", "--stdin", cwd=clone, input="/etc/passwd")
    listed = entries.format(blob=blob, tree=git("write-tree", cwd=clone))
    made = [line.split("\t") for line in listed.splitlines()]
    raw = b"".join(
        facts.split()[0].lstrip("0").encode() + b" " + name.encode() + b"\0" + bytes.fromhex(facts.split()[2])
        for facts, name in made
    )
    tree = git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", cwd=clone, input=raw).decode()
    commit = git("commit-tree", tree, "-m", "x", cwd=clone)
    before = lab.branches()
    said = git("push", "origin", f"{commit}:refs/heads/harm", cwd=clone, status=1)
    assert "fsck error" in said or "unpacker error" in said, said
    assert lab.branches() == before


def test_a_push_that_breaks_off_leaves_nothing_on_the_disk(server, lab):
    token = httpx.BasicAuth("any", lab.tokens["owner"])._auth_header
    line = f"{'0' * 40} {'1' * 40} refs/heads/q\0 report-status".encode()
    # A blob of 128 KiB: its type and size in 4 + 7 + 7 bits, then its content.
    noise = b"\xb0\x80\x40" + zlib.compress(os.urandom(1 << 17), 0)
    body = b"%04x%b0000" % (len(line) + 4, line) + b"PACK" + struct.pack(">II", 2, 1000) + noise
    head = (
        "POST /git/lab/lab.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {token}\r\nContent-Type: application/x-git-receive-pack-request\r\n"
        "Content-Length: 10000000\r\n\r\n"
    )
    arriving = lambda: bool(list((lab.path / "objects").glob("*incoming-*")))  # noqa: E731
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(head.encode() + body)
    assert _until(arriving, True)
    connection.close()
    assert _until(arriving, False)


def test_what_a_killed_push_left_is_swept(lab, services):
    old = lab.path / "objects/tmp_objdir-incoming-x"
    (old / "pack").mkdir(parents=True)
    (old / "pack/tmp_pack_y").write_bytes(b"x")
    fresh = lab.path / "objects/pack/tmp_pack_z"
    fresh.write_bytes(b"x")
    os.utime(old, (1, 1))
    hosting.reconcile(services)
    assert not old.exists() and fresh.exists()


def test_hooks_in_a_repository_never_run(clone_url, tmp_path, lab):
    hooks = lab.path / "hooks"
    hooks.mkdir()
    (hooks / "post-receive").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-receive").chmod(0o755)
    git("clone", "-q", clone_url(), tmp_path / "a")
    git("commit", "-q", "--allow-empty", "-m", "Hello", cwd=tmp_path / "a")
    git("push", "-q", cwd=tmp_path / "a")
    assert not (tmp_path / "ran").exists()


def test_the_published_clients_arrangement_works(server, lab, tmp_path):
    """Cloned under `insteadOf` in the environment: origin stays github.com, and a push goes to us (evidence 4.1)."""
    base = f"http://anyone:{lab.tokens['owner']}@127.0.0.1:{server.port}/git/"
    env = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{base}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
    }
    clone = tmp_path / "a"
    git("clone", "-q", "https://github.com/lab/lab.git", clone, env=env)
    assert git("remote", "get-url", "origin", cwd=clone) == "https://github.com/lab/lab.git"
    git("remote", "set-url", "--push", "origin", f"{base}lab/lab.git", cwd=clone)
    git("commit", "-q", "--allow-empty", "-m", "From the clone", cwd=clone)
    git("push", "-q", "origin", "main", cwd=clone)
    assert git("remote", "get-url", "origin", cwd=clone) == "https://github.com/lab/lab.git"
    assert lab.branches()["main"] == git("rev-parse", "HEAD", cwd=clone)


def test_pushes_alone_are_rewritten_by_push_instead_of(server, lab, tmp_path):
    """The arrangement that lasts: under it `get-url` still says github.com, which the published client insists on."""
    base = f"http://anyone:{lab.tokens['owner']}@127.0.0.1:{server.port}/git/"
    clone = tmp_path / "a"
    git("clone", "-q", f"{base}lab/lab.git", clone)
    git("remote", "set-url", "origin", "https://github.com/lab/lab.git", cwd=clone)
    env = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{base}.pushInsteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
    }
    git("commit", "-q", "--allow-empty", "-m", "From the clone", cwd=clone)
    assert git("remote", "get-url", "origin", cwd=clone, env=env) == "https://github.com/lab/lab.git"
    git("push", "-q", "origin", "main", cwd=clone, env=env)
    assert lab.branches()["main"] == git("rev-parse", "HEAD", cwd=clone)


def test_a_full_repository_takes_no_push(server, services, lab):
    object.__setattr__(services, "settings", services.settings.model_copy(update={"max_push_bytes": 1024}))
    answer = httpx.post(
        f"{server.url}/git/lab/lab.git/git-receive-pack",
        content=b"0000",
        headers={"Content-Type": "application/x-git-receive-pack-request"},
        auth=("any", lab.tokens["owner"]),
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "REPOSITORY_FULL")


def test_many_clients_at_once_wait_for_a_free_process(server, services, clone_url, tmp_path):
    object.__setattr__(services, "settings", services.settings.model_copy(update={"git_processes": 2}))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: git("clone", "-q", clone_url(), tmp_path / f"c{n}"), range(6)))


def test_one_persons_slow_clients_leave_a_process_to_the_others(server, services, lab, clone_url, tmp_path):
    object.__setattr__(services, "settings", services.settings.model_copy(update={"git_processes": 2}))
    token = httpx.BasicAuth("any", lab.tokens["owner"])._auth_header
    head = (
        "POST /git/lab/lab.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {token}\r\nContent-Type: application/x-git-receive-pack-request\r\n"
        "Content-Length: 1000000\r\n\r\n"
    )
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
    for connection in slow:
        connection.sendall(head.encode() + b"0094")
    assert _until(lambda: _processes(lab.path.name), True)
    began = time.monotonic()
    git("clone", "-q", clone_url("member"), tmp_path / "a")
    assert time.monotonic() - began < 20
    for connection in slow:
        connection.close()


def test_a_cgi_head_passes_only_what_clients_need():
    head = b"Status: 403 Forbidden\r\nContent-Type: text/plain\r\nX-Inner: secret\r\n\r\n"
    assert parse_cgi_head(head) == (403, [(b"content-type", b"text/plain")])
    assert parse_cgi_head(b"Content-Type: a/b\r\n\r\n")[0] == 200


async def test_silence_ends_an_exchange(lab):
    exchange = GitExchange(
        repository=lab.path, operation="git-receive-pack", query="", user="u", max_push_bytes=1000, idle_s=0.3
    )
    scope = {
        "type": "http",
        "method": "POST",
        "headers": [(b"content-type", b"application/x-git-receive-pack-request"), (b"content-length", b"100")],
    }
    received, sent = [], []

    async def receive():
        if not received:
            received.append(1)
            return {"type": "http.request", "body": b"0094", "more_body": True}
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    started = time.monotonic()
    await exchange.serve(scope, receive, send)
    assert time.monotonic() - started < 10
    assert not any(message.get("more_body") is False for message in sent)  # the answer is cut, so that git knows
    assert not _processes(lab.path.name)


def _processes(name):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    environ = file.read()
                if name.encode() in environ and b"GIT_PROJECT_ROOT" in environ:
                    found.append(int(entry))
            except OSError:
                continue
    return found


def _until(look, wanted, limit_s=10.0):
    end = time.monotonic() + limit_s
    while bool(look()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return bool(look()) == wanted
