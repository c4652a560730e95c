"""What builds are told of this machine's network."""

from __future__ import annotations

from pathlib import Path

from deploy.images import network


def test_apt_is_told_of_proxies_and_of_no_places_of_this_machine() -> None:
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


def test_pip_is_told_of_indexes() -> None:
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


def test_the_first_file_of_authorities_that_is_there_is_taken(tmp_path: Path) -> None:
    own = tmp_path / "ca.crt"
    own.touch()
    given = {"PIP_CERT": str(tmp_path / "gone"), "SSL_CERT_FILE": str(own)}
    assert network.ca_file(given) == own
    assert network.ca_file({}) is None


def test_proxies_are_arguments_that_builders_keep_to_themselves() -> None:
    assert network.proxies({"https_proxy": "http://proxy", "HOME": "/root"}) == {
        "https_proxy": "http://proxy"
    }
