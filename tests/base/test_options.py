"""Options as values: what is derived from the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from turnout.base.options import Kind, of_text, option, options_of, read_options
from turnout.errors import ConfigError, Mistake


def _port(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"expected a port, found {text!r}")
    return int(text)


def _pair(text: str) -> str:
    raise ConfigError([Mistake("pair.one", f"wrong: {text}"), Mistake("pair.other", "wrong too")])


@dataclass(frozen=True)
class Address:
    """An address.

    Attributes:
        host_name: its host,
            as the resolver knows it.
        port: its port.
    """

    host_name: str = option(of_text(str), "localhost")
    port: int = option(of_text(_port, blank=False), 80, name="PORT")
    password: str = option(of_text(str), "", secret=True)
    labels: Mapping[str, str] = option(Kind(lambda value: {"all": str(value)}), {})
    pair: str = option(of_text(_pair), "")
    is_open: bool = False


def test_names_texts_and_defaults_come_from_the_fields() -> None:
    """A name that is given stays; a field that is no option is none; a text may have several lines."""
    options = options_of(Address)

    assert [one.name for one in options.values()] == ["hostName", "PORT", "password", "labels", "pair"]
    assert options["host_name"].doc == "its host, as the resolver knows it"
    assert {name: one.default for name, one in options.items() if name != "labels"} == {
        "host_name": "localhost",
        "port": 80,
        "password": "",
        "pair": "",
    }
    assert [one.name for one in options_of(Address, str.upper).values()][:2] == ["HOST_NAME", "PORT"]


def test_values_are_read_and_the_others_have_their_defaults() -> None:
    """Secrets are not shown; a default that can change is not shared through the class."""
    mistakes: list[Mistake] = []
    address = Address(**read_options(options_of(Address), {"PORT": "8080", "labels": 1, "password": "x"}, mistakes))

    assert (address.host_name, address.port, address.labels, mistakes) == ("localhost", 8080, {"all": "1"}, [])
    assert "password" not in repr(address)


@pytest.mark.parametrize(
    ("given", "mistakes"),
    [
        ({"hostName": ""}, []),
        ({"PORT": ""}, ["PORT: expected a port, found ''"]),
        (
            {"PORT": "x", "pair": "y"},
            ["PORT: expected a port, found 'x'", "pair.one: wrong: y", "pair.other: wrong too"],
        ),
    ],
)
def test_all_mistakes_are_listed(given: Mapping[str, object], mistakes: list[str]) -> None:
    """A blank text is the default where the kind says so; several mistakes of one option are all there."""
    found: list[Mistake] = []
    read_options(options_of(Address), given, found)

    assert list(map(str, found)) == mistakes
