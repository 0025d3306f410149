"""The private Redis of `up` starts again whatever became of its files; a wrong REDIS_URL is a sentence."""

from pathlib import Path

import pytest

from console.cli import private_redis


def test_port_and_password_of_an_earlier_start_are_kept(tmp_path: Path) -> None:
    assert private_redis.prepare(tmp_path).url == private_redis.prepare(tmp_path).url


@pytest.mark.parametrize("port", [b"", b"\xff\xfe", b"0", b"65536", b"99999999999999999999", b"-1", b"six"])
@pytest.mark.parametrize("password", [b"", b"\xff\xfe"])
def test_a_broken_port_or_password_is_made_anew(tmp_path: Path, port: bytes, password: bytes) -> None:
    (tmp_path / "port").write_bytes(port)
    (tmp_path / "password").write_bytes(password)
    made = private_redis.prepare(tmp_path)
    assert made.url == private_redis.prepare(tmp_path).url
    assert 0 < int((tmp_path / "port").read_text()) < 65536
    assert (tmp_path / "password").read_text().isascii()


@pytest.mark.parametrize(
    "url", ["nonsense", "http://127.0.0.1", "redis://127.0.0.1:port/0", "redis://127.0.0.1:1/0"]
)
def test_a_redis_that_cannot_be_reached_is_told_in_words(url: str) -> None:
    told = private_redis.answers(url)
    assert told is not None and told.startswith(("does not answer: ", "is no address of one: "))
    assert not told.endswith(".")
