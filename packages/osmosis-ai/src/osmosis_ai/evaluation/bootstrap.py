# ruff: noqa: ANN001, ANN201, PTH100, PTH120, PTH123, S606 - pathlib is not worth its import here
"""Runs a rollout's entrypoint on the rollout environment's own Python: `python bootstrap.py ENTRYPOINT`.

A script, not a module of the package: that environment may hold another SDK. Standard library only, and as little of
it as possible, because every rollout server pays for it. Owns: dying with the supervisor, the two identity headers of
/health, naming an `exit()` of the entrypoint. `python bootstrap.py --exec PROGRAM ARGS...` only dies with the
supervisor (for foreign programs).
"""

import os
import signal
import sys
import time

GUARD_VARIABLE = "_OSMOSIS_SUPERVISOR_FD"
INSTANCE_VARIABLE = "_OSMOSIS_ROLLOUT_INSTANCE_ID"
NAME_VARIABLE = "_OSMOSIS_ROLLOUT_ENTRYPOINT"
GRACE_S = 3.5


def watch_supervisor(*, keep_over_exec: bool = False) -> None:
    """Fork a watcher that ends this process group once the supervisor is gone, even by kill -9.

    A process of its own, not a thread: an agent that never lets go of the interpreter lock must die all the same. It
    sees the supervisor's end as end-of-file on an inherited pipe, and ours on a second pipe, which ends the watcher.
    """
    guard = int(os.environ.pop(GUARD_VARIABLE, "-1"))
    if guard < 0:
        return
    life_read, life_write = os.pipe()
    first = os.fork()
    if first:
        os.close(life_read)
        os.close(guard)
        os.set_inheritable(life_write, keep_over_exec)
        os.waitpid(first, 0)
        return
    if os.fork():  # the watcher is nobody's child, so that the entrypoint never meets it in os.wait()
        os._exit(0)
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(life_write)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _watch(guard, life_read)
    finally:
        os._exit(0)


def _watch(guard: int, life: int) -> None:
    import select

    poll = select.poll()
    poll.register(guard, select.POLLIN)
    poll.register(life, select.POLLIN)
    if any(descriptor == life for descriptor, _ in poll.poll()):
        return
    os.kill(0, signal.SIGTERM)
    poll.unregister(guard)
    deadline = time.monotonic() + GRACE_S
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            time.sleep(0.2)  # the server ended; what it left in the group gets no more grace
            break
    os.kill(0, signal.SIGKILL)


def _sdk_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("osmosis-ai")
    except metadata.PackageNotFoundError:
        return "unknown"


class HealthHeaders:
    """An import hook that waits for FastAPI and then marks every app's /health with who answers."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = instance_id.encode()
        self._headers: list[tuple[bytes, bytes]] | None = None

    def find_spec(self, name, path=None, target=None):
        """Find `fastapi.applications` as the other finders would, and patch it once it is executed."""
        if name != "fastapi.applications":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._execute = spec.loader.exec_module
                spec.loader.exec_module = self._execute_and_patch
                return spec
        return None

    def _execute_and_patch(self, module) -> None:
        self._execute(module)
        self.patch(module.FastAPI)

    def patch(self, app_class) -> None:
        """Wrap the class's ASGI call; any other path than /health pays one comparison."""
        call = app_class.__call__

        async def marked(app, scope, receive, send):
            if scope["type"] == "http" and scope["path"] == "/health":
                plain = send

                async def send(message) -> None:
                    if message["type"] == "http.response.start":
                        message = {**message, "headers": [*message.get("headers", ()), *self.headers()]}
                    await plain(message)

            await call(app, scope, receive, send)

        app_class.__call__ = marked

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Instance id and SDK version, looked up at the first /health."""
        if self._headers is None:
            self._headers = [
                (b"x-osmosis-rollout-instance-id", self._instance_id),
                (b"x-osmosis-rollout-sdk-version", _sdk_version().encode()),
            ]
        return self._headers


def run_entrypoint(path: str) -> None:
    """Run the script at `path` as `__main__`, the way `python PATH` would."""
    import types

    path = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(path))
    sys.argv = [path]
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - running the user's script is the task


def main() -> None:
    """Guard this process, then become the entrypoint (or the program after `--exec`)."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # our neighbours must not stand in for modules of the standard library
    if sys.argv[1:2] == ["--exec"]:
        watch_supervisor(keep_over_exec=True)
        os.execvp(sys.argv[2], sys.argv[2:])
    if len(sys.argv) != 2:
        sys.exit("usage: bootstrap.py ENTRYPOINT")
    instance_id = os.environ.get(INSTANCE_VARIABLE)
    if not instance_id:
        sys.exit(f"bootstrap.py needs {INSTANCE_VARIABLE}; it is started by `osmosis eval run`")
    watch_supervisor()
    try:
        import faulthandler

        faulthandler.register(signal.SIGUSR1, all_threads=False)  # where does a blocked agent stand?
    except (ImportError, OSError, RuntimeError, AttributeError):
        pass
    sys.meta_path.insert(0, HealthHeaders(instance_id))
    name = os.environ.pop(NAME_VARIABLE, sys.argv[1])
    try:
        run_entrypoint(sys.argv[1])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else (0 if stop.code is None else 1)
        if code:
            if not isinstance(stop.code, int):
                print(stop.code, file=sys.stderr)
            print(f"{name} called exit({code})", file=sys.stderr, flush=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
