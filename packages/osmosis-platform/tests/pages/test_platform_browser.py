"""From the printed link to a device that is signed in, with a real browser and the real command."""

import os
import re
import subprocess
import sys
import time

import httpx
import pytest
from chromium import Chromium, find_chromium

PASSWORD = "a few easy words"


@pytest.fixture
def link(tmp_path):
    """The set-up link of a platform's first start."""
    command = [
        sys.executable,
        "-m",
        "osmosis_platform.cli.main",
        "up",
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        "0",
    ]
    environ = os.environ | {
        "HOME": str(tmp_path),
        "OSMOSIS_PLATFORM_WORKERS": "0",
        "OSMOSIS_PLATFORM_ALLOW_PRIVATE_REMOTES": "1",
    }
    with (tmp_path / "out").open("w+") as out, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=log)
        try:
            until = time.monotonic() + 60
            while not (found := re.search(r"http://\S+/setup#\S+", (tmp_path / "out").read_text())):
                assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.1)
            yield found[0]
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_from_the_printed_link_to_a_device_that_is_signed_in(link, tmp_path):
    base = link.partition("/setup")[0]
    with Chromium(tmp_path / "browser") as browser:
        browser.open(link)
        browser.wait(
            "location.hash === '' && document.activeElement.name === 'email'"
        )  # the token left the address bar
        browser.type("email", "ada@example.com")
        browser.type("password", PASSWORD)
        browser.type("workspace", "difference")
        browser.press_enter()
        browser.wait_for("git clone")
        browser.click("Sign out")
        browser.wait_for("You are signed out")

        begun = httpx.post(f"{base}/api/cli/device/authorize", json={"deviceName": "Ada's laptop"}).json()
        browser.open(begun["verification_uri_complete"])
        browser.type("email", "ada@example.com")
        browser.type("password", PASSWORD)
        browser.click("Sign in")
        browser.wait_for("Ada's laptop")
        assert begun["user_code"] in browser.text()
        browser.click("Approve")  # the browser asks to tick the box first
        browser.run("document.querySelector('[name=compared]').click()")
        browser.click("Approve")
        browser.wait_for("The device is signed in")

        browser.call("Emulation.setScriptExecutionDisabled", value=True)  # pages are for browsers without scripts, too
        browser.open(f"{base}/difference/integrations/git/connect")
        browser.type("url", "git@localhost:team/app.git")
        browser.click("Connect")
        browser.wait_for("ssh-ed25519")
        browser.run("document.querySelector('.confirm summary').scrollIntoView()")
        browser.click("Disconnect", among="summary")
        browser.click("Disconnect it")
        browser.wait_for("Hosted by this platform")
        assert browser.problems == []
    granted = httpx.post(f"{base}/api/cli/device/token", json={"device_code": begun["device_code"]})
    assert granted.status_code == 200
    assert link.partition("#")[2] not in (tmp_path / "log").read_text()
