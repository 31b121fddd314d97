"""A real sshd on loopback, with a host key and an account file of a test's own; it runs and logs in as this very user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from published import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd: apt-get install openssh-server")


class SshServer:
    """An sshd that lets in whoever's public key was added.

    Args:
        folder: Where its keys, configuration and log lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.port = free_port()
        self.keys = folder / "authorized_keys"
        self.keys.write_text("")
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:  # where sshd, as root, puts the half that has no rights
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.change_host_key()

    def url(self, path: Path) -> str:
        """How a repository of this machine is reached through it."""
        return f"ssh://{self.user}@127.0.0.1:{self.port}{path}"

    def let_in(self, public_key: str) -> None:
        """Adds a deploy key that may do nothing but fetch."""
        with self.keys.open("a") as file:
            file.write(f"restrict {public_key}\n")

    def change_host_key(self) -> None:
        """Gives it another host key, as somebody in its place would have."""
        self.stop()
        key = self.folder / "host_key"
        key.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, input=b"y\n")
        self._start()

    def fingerprint(self) -> str:
        """Of its host key, as ssh-keygen shows it."""
        shown = subprocess.check_output(["ssh-keygen", "-l", "-f", self.folder / "host_key.pub"], text=True)
        return shown.split()[1]

    def known_hosts(self) -> str:
        """What `ssh-keyscan` would say."""
        return f"[127.0.0.1]:{self.port} {(self.folder / 'host_key.pub').read_text()}"

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        assert SSHD is not None
        options = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.keys,
            "PidFile": "none",
            "StrictModes": "no",  # /tmp is writable for all
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "LogLevel": "DEBUG1",
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        command = [SSHD, "-D", "-f", config, "-E", self.folder / "log"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = self.folder / "log"
                    raise AssertionError(log.read_text() if log.exists() else "sshd did not start") from None
                time.sleep(0.02)
