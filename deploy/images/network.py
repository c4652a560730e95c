"""Passes this machine's network settings to builds, as secrets and as build arguments. No image contains
these settings."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

_CA: Final = "/run/secrets/ca.crt"
"""Path of the CA bundle in a build step."""
_CA_VARIABLES: Final = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_OF_APT: Final = re.compile(r"^Acquire::https?::.*$", re.MULTILINE)
_OF_PIP: Final = re.compile(
    r"^[^.]*\.(index-url|extra-index-url|trusted-host|timeout)=(.*)$", re.MULTILINE
)


def secrets(folder: Path) -> dict[str, Path]:
    """Writes the files of the secrets: apt.conf, pip.conf and, if this machine has its own CA bundle,
    ca.crt. Returns the paths by name."""
    texts = {"apt.conf": apt_conf(_output("apt-config", "dump")), "pip.conf": pip_conf(_pip_config())}
    authorities = ca_file(os.environ)
    if authorities is not None:
        texts["ca.crt"] = authorities.read_text()
        texts["pip.conf"] += f"cert = {_CA}\n"
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the proxies, as build arguments. Every builder of images knows these arguments, and stores
    none of their values in an image."""
    return {name: environment[name] for name in _PROXIES if name in environment}


def apt_conf(dumped: str) -> str:
    """Returns an apt.conf with the proxies in the output of `apt-config dump`. apt does not check the
    age of the mirror's files, because this machine's clock may be ahead of the mirror's clock."""
    return "\n".join(['Acquire::Check-Valid-Until "false";', *_OF_APT.findall(dumped), ""])


def pip_conf(listed: str) -> str:
    """Returns a pip.conf with the indexes in the output of `pip config list`. If an option occurs
    twice, the last value counts."""
    options = {match[1]: match[2].strip("'\"") for match in _OF_PIP.finditer(listed)}
    return "\n".join(["[global]", *_lines(options.items()), ""])


def ca_file(environment: Mapping[str, str]) -> Path | None:
    """Returns the path of the CA bundle that an environment variable names. Without such a variable,
    returns None for the default CAs."""
    given = (environment[name] for name in _CA_VARIABLES if environment.get(name))
    return next((Path(path) for path in given if Path(path).is_file()), None)


def _lines(options: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in options:
        yield f"{name} = " + value.replace("\\n", "\n    ")


def _pip_config() -> str:
    return _output(sys.executable, "-m", "pip", "config", "list")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
