"""Finds the address of kube-apiserver and this program's credentials, from a service account or a
kubeconfig.

`kubernetes.aio` reads kubeconfigs, and takes 12 MB of memory. A service account does not need
`kubernetes.aio`: this module reads two files and two variables, as client-go does
(rest.InClusterConfig).
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from kubernetes_client.errors import NoCredentials
from wellknown.quoting import words_of

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SERVER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_ROTATES_S: Final = 60.0
"""Time until a token is read again. The kubelet replaces a token long before its expiry."""

Headers = Callable[[], Awaitable[dict[str, str]]]


@dataclass(frozen=True, slots=True)
class Access:
    """A way to a kube-apiserver."""

    server: str
    """The URL, without a path."""
    tls: ssl.SSLContext
    headers: Headers
    """Returns the current headers that authenticate a call. Raises OSError, NoCredentials."""
    proxy: str | None = None


async def find_access(kubeconfig: Path | str | None, context: str | None = None) -> Access:
    """Reads a context of the kubeconfig, by default the current context. If `kubeconfig` is None, reads
    the service account instead. Raises NoCredentials if this read fails."""
    try:
        _require_a_file(kubeconfig)
        return _of_account() if kubeconfig is None else await _of_kubeconfig(str(kubeconfig), context)
    except (NoCredentials, OSError) as error:
        raise NoCredentials(f"{kubeconfig or 'service account'}: {words_of(error)}") from error


def _require_a_file(kubeconfig: Path | str | None) -> None:
    files = str(kubeconfig).split(os.pathsep)
    if kubeconfig is not None and not any(Path(each).expanduser().exists() for each in files):
        raise NoCredentials("no such file")


def _of_account() -> Access:
    host, port = (os.environ.get(name, "") for name in _SERVER)
    if not host or not port:
        raise NoCredentials(f"{' and '.join(_SERVER)} are not set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = _Token(_ACCOUNT / "token")
    token.read()
    return Access(server, ssl.create_default_context(cafile=_ACCOUNT / "ca.crt"), token.headers)


class _Token:
    """A service account's token. The kubelet replaces the token from time to time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._headers: dict[str, str] = {}
        self._read_at = 0.0

    def read(self) -> None:
        """Raises OSError, NoCredentials."""
        token = self._file.read_text().strip()
        if not token:
            raise NoCredentials(f"{self._file} is empty")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._read_at = monotonic()

    async def headers(self) -> dict[str, str]:
        if monotonic() >= self._read_at + _ROTATES_S:
            self.read()
        return self._headers


async def _of_kubeconfig(kubeconfig: str, context: str | None) -> Access:
    from kubernetes.aio import client, config  # noqa: PLC0415 -- see above

    configuration = client.Configuration()

    async def headers() -> dict[str, str]:
        """Returns headers from the library's own hook. The hook reads rotating tokens again."""
        try:
            bearer = (await configuration.auth_settings()).get("BearerToken")
        except config.ConfigException as error:
            raise NoCredentials(str(error)) from error
        return {bearer["key"]: bearer["value"] or ""} if bearer else {}

    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            kubeconfig, context=context, client_configuration=configuration
        )
    except config.ConfigException as error:
        raise NoCredentials(str(error)) from error
    rest = client.ApiClient(configuration).rest_client
    return Access(configuration.host, rest.ssl_context, headers, rest.proxy)
