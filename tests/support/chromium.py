"""A real Chromium for one test: driven over the pipe of its DevTools protocol, so no driver program and no package is needed."""

import json
import os
import select
import shutil
import signal
import subprocess
import time

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check",
    "--password-store=basic", "--remote-debugging-pipe",
]  # fmt: skip


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """One window with one page.

    Attributes:
        problems: What the page's console and its content policy complained about.
    """

    def __init__(self, folder, *, width=1000, height=800):
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()

        def connect():  # the browser reads 3 and writes 4
            high = os.dup(from_us), os.dup(to_us)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [
            find_chromium(),
            *FLAGS,
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        environ = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
        # Python's own files are not inheritable, so nothing else leaks through close_fds=False.
        self._process = subprocess.Popen(
            command, env=environ, close_fds=False, preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(from_us)
        os.close(to_us)
        self._buffer, self._last, self._session = b"", 0, None
        self.problems = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: renderers go too
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def type(self, name, text):
        """Writes into a field, found by its name."""
        self.wait(f"document.querySelector('[name={name}]')?.focus() ?? document.activeElement.name === '{name}'")
        self.call("Input.insertText", text=text)

    def press_enter(self):
        for kind in ("keyDown", "keyUp"):
            key = {
                "key": "Enter",
                "code": "Enter",
                "windowsVirtualKeyCode": 13,
                "text": "\r" if kind == "keyDown" else "",
            }
            self.call("Input.dispatchKeyEvent", type=kind, **key)

    def click(self, label, *, among="button, a"):
        """Clicks a button or link with the mouse, found by its words."""
        find = f"[...document.querySelectorAll({json.dumps(among)})].find(one => one.textContent.trim() === {json.dumps(label)})"
        self.wait(f"!!{find}")
        at = self.run(
            f"(() => {{ const one = {find}; one.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const box = one.getBoundingClientRect();"
            " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def text(self):
        return self.run("document.body.innerText")

    def wait_for(self, words):
        self.wait(f"document.body?.innerText.includes({json.dumps(words)})", hint=words)

    def wait(self, condition, *, timeout_s=30, hint=None):
        until = time.monotonic() + timeout_s
        while True:
            try:
                if self.run(condition):
                    return
            except RuntimeError:
                pass  # the page was changing
            if time.monotonic() > until:
                shown = self.run("location.href + '\\n' + document.body.innerText")
                raise AssertionError(f"the page never came to: {hint or condition}\n{shown}")
            time.sleep(0.05)

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def call(self, method, timeout_s=30, **parameters):
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + timeout_s
        while True:
            answer = self._receive(until - time.monotonic())
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"]["text"])
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])

    def _receive(self, timeout_s):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(timeout_s, 0))
            if not ready:
                raise AssertionError("Chromium does not answer")
            more = os.read(self._in, 1 << 16)
            if not more:
                raise AssertionError(f"Chromium ended with {self._process.wait()}")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)
