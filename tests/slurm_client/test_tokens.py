"""Tests of tokens in files: rotation, and the descriptions of refused tokens."""

import base64
import json
from pathlib import Path

import pytest

from slurm_client.errors import NeedsOperator
from slurm_client.tokens import StaticToken, TokenFile, expiry, user
from tests.clock import Clock

NOW = 1_800_000_000.0


def jwt(**claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "token"


def test_a_file_that_was_replaced_is_read_again(file: Path, tmp_path: Path) -> None:
    file.write_text("  first\n")
    source = TokenFile(file)
    assert source.token() == "first"
    fresh = tmp_path / "fresh"
    fresh.write_text("other")
    fresh.replace(file)
    assert source.token() == "other"


def test_refresh_returns_whether_the_token_has_changed(file: Path) -> None:
    file.write_text("first")
    source = TokenFile(file)
    source.token()
    assert not source.refresh("first")
    file.write_text("second")
    assert source.refresh("first")
    assert source.refresh("first")  # another request has already refreshed the token
    assert not source.refresh("second")


@pytest.fixture
def seldom(file: Path) -> tuple[TokenFile, Clock]:
    """Returns a token file that is read at most once a second, and the clock of this token file."""
    clock = Clock()
    return TokenFile(file, look_every_s=1.0, ticks=clock), clock


def test_the_token_file_is_read_once_a_second_and_after_a_refusal(
    file: Path, seldom: tuple[TokenFile, Clock]
) -> None:
    file.write_text("first")
    source, clock = seldom
    assert source.token() == "first"
    file.write_text("the second")
    clock.now += 0.9
    assert source.token() == "first"
    clock.now += 0.1
    assert source.token() == "the second"
    file.write_text("third")
    assert source.refresh("the second")
    assert source.token() == "third"


def test_a_file_without_a_token_is_read_each_time(file: Path, seldom: tuple[TokenFile, Clock]) -> None:
    source, _ = seldom
    with pytest.raises(NeedsOperator, match=f"{file} cannot be read"):
        source.token()
    for empty in ("", "\n"):
        file.write_text(empty)
        with pytest.raises(NeedsOperator, match="is empty"):
            source.token()
    file.write_text("first")
    assert source.token() == "first"


@pytest.mark.parametrize(
    ("ago", "words"),
    [(5, "5 seconds"), (60, "1 minute"), (200, "3 minutes"), (7300, "2 hours"), (2e5, "2 days")],
)
def test_an_expired_token_is_described_with_the_time_since_expiry(
    file: Path, ago: float, words: str
) -> None:
    file.write_text(jwt(exp=NOW - ago, sun="root"))
    source = TokenFile(file, Clock(NOW))
    source.token()
    assert source.describe() == f"the token in {file} expired {words} ago"


def test_a_valid_token_is_described_with_its_user() -> None:
    text = StaticToken(jwt(exp=NOW + 5, sun="slurm"), Clock(NOW)).describe()
    assert "user slurm" in text
    assert "Slurm's key" in text


def test_claims_are_read_without_checking_the_signature() -> None:
    assert expiry(jwt(exp=12.5)) == 12.5
    assert user(jwt(sun="alice")) == "alice"


@pytest.mark.parametrize("token", ["", "garbage", "a.b.c", "a.####.c", "e30.W10.x"])
def test_an_invalid_jwt_has_no_claims(token: str) -> None:
    assert expiry(token) is None
    assert user(token) is None


def test_the_lifetime_of_a_token_is_read_from_its_claims(file: Path) -> None:
    source = TokenFile(file)
    for claims, expected in (
        ({"iat": 10, "exp": 70.5}, (10.0, 70.5)),
        ({"exp": 70}, (None, 70.0)),
        ({"iat": "soon"}, (None, None)),
    ):
        file.write_text(jwt(**claims))
        assert source.refresh("") is True
        assert source.lifetime() == expected
    file.unlink()
    assert TokenFile(file).lifetime() == (None, None)
