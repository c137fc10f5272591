"""Formats that packages offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from turnout.codecs import FORMATS, Codec, CodecKind, Format, Kind, Option, codec_of, registry
from turnout.codecs.plain import Bytes
from turnout.errors import ConfigError


def _codec(url: str | None) -> Codec:
    if url == "down":
        raise OSError("no schema registry there")
    return Bytes()


THRIFT = CodecKind(
    "thrift",
    "example.ThriftConverter",
    "Thrift",
    _codec,
    settings=(Option("url", Kind(str), "where schemas are", None),),
)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Offers an attribute of this module as the format of another package."""

    def offered(name: str, attribute: str) -> None:
        point = EntryPoint(name, f"{__name__}:{attribute}", "turnout.codecs")
        monkeypatch.setattr(registry, "plugins", lambda: {name: point})
        monkeypatch.setattr(EntryPoint, "load", lambda point: globals()[point.attr])

    registry._loaded.cache_clear()
    yield offered
    registry._loaded.cache_clear()


def test_a_package_may_offer_a_format(offer: Callable[..., None]) -> None:
    """An entry point of the group ``turnout.codecs`` is a kind like turnout's own, with settings that are checked."""
    offer("thrift", "THRIFT")

    assert isinstance(codec_of(Format.from_config({"format": "thrift", "url": "x"})), Bytes)
    with pytest.raises(ConfigError, match=r"did you mean \"thrift\"\?"):
        Format.from_config({"format": "thrifty"})
    with pytest.raises(ConfigError, match=r"value.ulr: is not a setting of the format thrift; did you mean \"url\"\?"):
        Format.from_config({"format": "thrift", "ulr": "x"})


def test_a_package_may_refuse_its_settings(offer: Callable[..., None]) -> None:
    """Any exception becomes a mistake of the route."""
    offer("thrift", "THRIFT")

    with pytest.raises(ConfigError, match="format: thrift refuses its settings: no schema registry there"):
        codec_of(Format.from_config({"format": "thrift", "url": "down"}))


def test_what_a_package_offers_has_to_be_a_format(offer: Callable[..., None]) -> None:
    """Of the name of the entry point; the other formats are not disturbed."""
    offer("trift", "THRIFT")

    with pytest.raises(ConfigError, match="expected a CodecKind of the name 'trift'"):
        Format.from_config({"format": "trift"})
    assert list(registry.kinds()) == list(FORMATS)


def function(given: Any) -> Codec:
    assert given.options == {"url": "x"}
    return Bytes()


def test_a_function_still_gives_a_codec(offer: Callable[..., None]) -> None:
    """Packages for turnout 0.1 use this form: a function of the settings."""
    offer("thrift", "function")

    with pytest.warns(DeprecationWarning, match="offer a CodecKind"):
        assert isinstance(codec_of(Format.from_config({"format": "thrift", "url": "x"})), Bytes)
