"""What a client on any machine needs to work with this platform: variables, and settings of Git (evidence-platform.md 4.1).

The published client clones from github.com and takes no origin of another host. So Git is told to write such addresses as
`http://github.com:<port>/`, and to reach that name through the platform as its proxy: the origin that Git shows is one of
github.com, while everything goes to the platform, over its own TLS where it has any. No secret is among all this.
"""

from __future__ import annotations

import shlex
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from osmosis_ai.client.address import normalise_platform_url
from osmosis_ai.client.git_login import USERNAME, helper
from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.repository import parse_origin

from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.ops.instance import read_certificate, read_url
from osmosis_platform.settings import Settings

_GITHUB = ("https://github.com/", "git@github.com:", "ssh://git@github.com/")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Where nobody can listen: no request for the name may leave without the proxy, whatever NO_PROXY says.
_NOWHERE = "255.255.255.255"
_PROBE_S = 3.0

# The helper where only the published client is installed: token file, OSMOSIS_TOKEN, its file of logins.
_PORTABLE = (
    '!f() {{ test "$1" = get || exit 0; t=; {file}'
    'test -n "$t" || {{ test "$OSMOSIS_TOKEN_PLATFORM_URL" = {url} && t=$OSMOSIS_TOKEN; }}; '
    'test -n "$t" || t=$(python3 -c {read} {url} 2>/dev/null); '
    'test -n "$t" && echo username={user} && echo "password=$t"; }}; f'
)
_READ_LOGIN = (
    "import json,os,sys;"
    'p=json.load(open(os.path.expanduser("~/.config/osmosis/credentials.json")))["platforms"];'
    'print(p[sys.argv[1]].get("access_token",""))'
)


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The variables and settings for one platform.

    Attributes:
        url: How clients reach it.
        token_file: Read whenever a login is wanted, before any other.
        authority: Certificates that clients must trust (PEM).
        portable: Whether it is for a machine without this package.
    """

    url: str
    token_file: Path | None = None
    authority: Path | None = None
    portable: bool = False

    def lines(self) -> list[str]:
        """Lines for a shell. They hold no secret: the token is read from its file when they are."""
        values = {"OSMOSIS_PLATFORM_URL": self.url}
        if self.portable:
            values["OSMOSIS_TOKEN_STORE"] = "file"  # noqa: S105 - the helper cannot read a keyring
        if self.authority is not None:
            values["SSL_CERT_FILE"] = str(self.authority)
        pairs = [*self.git_settings(), *_rewritten(f"{self._named}/", self.url)]
        values["GIT_CONFIG_COUNT"] = str(len(pairs))
        for index, (key, value) in enumerate(pairs):
            values[f"GIT_CONFIG_KEY_{index}"], values[f"GIT_CONFIG_VALUE_{index}"] = key, value
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        if self.token_file is not None:
            lines.append(f"export OSMOSIS_TOKEN_PLATFORM_URL={shlex.quote(self.url)}")
            lines.append(f'export OSMOSIS_TOKEN="$(cat {shlex.quote(str(self.token_file))})"')
        return lines

    def git_settings(self) -> list[tuple[str, str]]:
        """How Git reaches what it takes for github.com, and gets the login."""
        named, parts = self._named, urlsplit(self.url)
        name, port = named.removeprefix("http://"), named.rpartition(":")[2]
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        settings = [
            (f"credential.{named}.helper", ""),  # ends the list of other helpers: none of them sees the token
            (f"credential.{named}.helper", self._helper()),
            (f"http.{named}.proxy", f"{parts.scheme}://{host}:{port}"),
            (f"http.{named}.curloptResolve", f"{name}:{_NOWHERE}"),
        ]
        if self.authority is not None:
            settings.append((f"http.{named}.proxySSLCAInfo", str(self.authority)))
        return settings

    def write_into(self, clone: Path) -> None:
        """Writes the settings into a clone of a repository of this platform, for every shell; again changes nothing.

        Raises:
            InvalidRequestError: It is no clone, or its origin is elsewhere.
        """
        origin = _git(clone, "config", "--get", "remote.origin.url").rstrip("/")
        try:
            parsed = parse_origin(origin, any_host=True)
        except ValidationError as error:
            raise InvalidRequestError(f"The origin of {clone} cannot be used: {error.message}", field="clone") from None
        hosted = f"{urlsplit(self.url).netloc}{urlsplit(self.url).path}/git/".lower()
        name = parsed.identity.removeprefix(hosted)
        if name.count("/") != 1:
            raise InvalidRequestError(f"The origin of {clone}, {origin}, is not of {self.url}.", field="clone")
        tail = name + origin[len(origin.removesuffix(".git")) :]
        tail = origin[-len(tail) :]  # as the origin spells it
        settings = [*self.git_settings(), *_rewritten(f"{self._named}/{tail.removesuffix('.git')}.git", self.url, tail)]
        for key in dict.fromkeys(key for key, _ in settings):
            _git(clone, "config", "--local", "--unset-all", key, accept=(0, 5))
        for key, value in settings:
            _git(clone, "config", "--local", "--add", key, value)

    @property
    def _named(self) -> str:
        parts = urlsplit(self.url)
        return f"http://github.com:{parts.port or _DEFAULT_PORTS[parts.scheme]}"

    def _helper(self) -> str:
        if not self.portable:
            file = ("--token-file", str(self.token_file)) if self.token_file is not None else ()
            return helper(self.url, *file, "--known-as", self._named)
        file = f"t=$(cat {shlex.quote(str(self.token_file))}); " if self.token_file is not None else ""
        return _PORTABLE.format(file=file, url=shlex.quote(self.url), read=shlex.quote(_READ_LOGIN), user=USERNAME)


def client_environment(
    settings: Settings,
    *,
    url: str | None = None,
    token_file: Path | None = None,
    authority: Path | None = None,
    portable: bool = False,
) -> ClientEnvironment:
    """What clients of a platform need.

    Args:
        settings: Of the platform; used to find its URL and certificate.
        url: How clients reach it, if another way.
        token_file: Read whenever a login is wanted.
        authority: Certificates to trust; default: the running platform's own where this machine does not trust it yet.
        portable: For another machine; files are not looked at then.

    Raises:
        InvalidRequestError: The URL or a file cannot be used.
    """
    try:
        base = normalise_platform_url(url or read_url(settings) or settings.base_url)
    except ValidationError as error:
        raise InvalidRequestError(error.message, field="url") from None
    if not portable:
        token_file = None if token_file is None else token_file.expanduser().absolute()
        for path, what in ((token_file, "token file"), (authority, "file of certificates")):
            _check_readable(path, what)
        if authority is None and urlsplit(base).scheme == "https":
            authority = _untrusted_certificate(base, read_certificate(settings))
        authority = None if authority is None else authority.expanduser().absolute()
    return ClientEnvironment(base, token_file, authority, portable)


def _rewritten(target: str, url: str, tail: str = "") -> list[tuple[str, str]]:
    """Addresses of github.com, and the platform's own, that Git writes as another one."""
    return [(f"url.{target}.insteadOf", f"{address}{tail}") for address in (*_GITHUB, f"{url}/git/")]


def _check_readable(path: Path | None, what: str) -> None:
    if path is None:
        return
    try:
        path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The {what} {path} cannot be read: {error}.") from error


def _untrusted_certificate(base: str, certificate: Path | None) -> Path | None:
    """The platform's certificate file where this machine does not trust it already."""
    if certificate is None or not certificate.is_file():
        return None
    import socket

    parts = urlsplit(base)
    host = parts.hostname or ""
    try:
        with socket.create_connection((host, parts.port or 443), timeout=_PROBE_S) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError:
        return certificate
    except OSError:
        return None
    return None


def _git(clone: Path, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
    try:
        done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InvalidRequestError("git is not on PATH; install it.") from None
    if done.returncode not in accept:
        said = done.stderr.strip() or "it has no origin"
        raise InvalidRequestError(f"{clone} is no clone that can be set up: {said}.", field="clone")
    return done.stdout.strip()
