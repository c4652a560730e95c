"""Tests of builds of images: the builds use the network settings of this machine."""

from __future__ import annotations

from pathlib import Path

from deploy.images import network


def test_apt_configuration_has_proxies_and_no_local_paths() -> None:
    dumped = (
        'APT::Architecture "amd64";\n'
        'Acquire::http::Proxy "http://proxy:3128";\n'
        'Acquire::https::Verify-Peer "true";\n'
        'Dir::State "var/lib/apt";\n'
    )
    assert network.apt_conf(dumped).splitlines() == [
        'Acquire::Check-Valid-Until "false";',
        'Acquire::http::Proxy "http://proxy:3128";',
        'Acquire::https::Verify-Peer "true";',
    ]


def test_pip_configuration_has_the_indexes() -> None:
    listed = (
        ":env:.index-url='https://second/simple'\n"
        "global.cert='/etc/ssl/ca.crt'\n"
        "global.extra-index-url='\\nhttps://third\\nhttps://fourth'\n"
    )
    assert network.pip_conf(listed).splitlines() == [
        "[global]",
        "index-url = https://second/simple",
        "extra-index-url = ",
        "    https://third",
        "    https://fourth",
    ]


def test_first_existing_ca_file_is_used(tmp_path: Path) -> None:
    own = tmp_path / "ca.crt"
    own.touch()
    given = {"PIP_CERT": str(tmp_path / "gone"), "SSL_CERT_FILE": str(own)}
    assert network.ca_file(given) == own
    assert network.ca_file({}) is None


def test_proxies_are_build_arguments() -> None:
    assert network.proxies({"https_proxy": "http://proxy", "HOME": "/root"}) == {
        "https_proxy": "http://proxy"
    }
