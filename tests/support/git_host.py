"""A git host of somebody else's, for tests of connected remotes: served by git itself, behind a token."""

import base64
import subprocess
from pathlib import Path

from osmosis_platform.git.backend import GitExchange
from real_git import git

TOKEN = "a-token-that-must-stay-secret"


class GitHost:
    """Somebody else's git host: one repository `team/app`, which wants a token."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.git"
        self.seen: list[str] = []
        git("init", "-q", "--bare", "-b", "trunk", self.path)
        self.commit("rollouts/theirs/main.py", "x = 1\n")

    def commit(self, name, content, branch="trunk"):
        has = subprocess.run(
            ["git", "--git-dir", self.path, "rev-parse", "-q", "--verify", branch], capture_output=True
        )
        start = f"from refs/heads/{branch}^0\n" if has.returncode == 0 else ""
        git("--git-dir", self.path, "fast-import", "--quiet", input=(
            f"commit refs/heads/{branch}\ncommitter Bo <bo@example.com> 1700000000 +0000\ndata 1\nx\n{start}"
            f'M 100644 inline "{name}"\ndata {len(content)}\n{content}\n'
        ))  # fmt: skip
        return git("--git-dir", self.path, "rev-parse", branch)

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        path, headers = scope["path"], dict(scope["headers"])
        self.seen.append(path)
        given = headers.get(b"authorization", b"").decode()
        wanted = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if path.startswith("/moved/"):
            location = path.replace("/moved/", "/team/") + "?" + scope["query_string"].decode()
            await _answer(send, 301, [(b"location", location.encode())])
        elif not path.startswith("/team/app.git/"):
            await _answer(send, 404, [])
        elif given != wanted:
            await _answer(send, 401, [(b"www-authenticate", b'Basic realm="x"')])
        else:
            operation = path.removeprefix("/team/app.git/")
            query = scope["query_string"].decode()
            await GitExchange(self.path, operation, query, "x", 1 << 30).serve(scope, receive, send)


async def _answer(send, status, headers):
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
