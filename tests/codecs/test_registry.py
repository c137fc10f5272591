"""Formats that packages offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from turnout.codecs import FORMATS, Codec, CodecKind, Format, Setting, codec_of, registry
from turnout.codecs.plain import Bytes
from turnout.errors import ConfigError


def _codec(url: str | None) -> Codec:
    if url == "down":
        raise OSError("no schema registry there")
    return Bytes()


AVRO = CodecKind("avro", "example.AvroConverter", "Avro", _codec, settings=(Setting("url", "where schemas are", str),))


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
    offer("avro", "AVRO")

    assert isinstance(codec_of(Format.from_config({"format": "avro", "url": "x"})), Bytes)
    with pytest.raises(ConfigError, match=r"did you mean \"avro\"\?"):
        Format.from_config({"format": "avroo"})
    with pytest.raises(ConfigError, match=r"value.ulr: is not a setting of the format avro; did you mean \"url\"\?"):
        Format.from_config({"format": "avro", "ulr": "x"})


def test_a_package_may_refuse_its_settings(offer: Callable[..., None]) -> None:
    """Whatever it raises is a mistake of the route."""
    offer("avro", "AVRO")

    with pytest.raises(ConfigError, match="format: avro refuses its settings: no schema registry there"):
        codec_of(Format.from_config({"format": "avro", "url": "down"}))


def test_what_a_package_offers_has_to_be_a_format(offer: Callable[..., None]) -> None:
    """Of the name of the entry point; the other formats are not disturbed."""
    offer("arvo", "AVRO")

    with pytest.raises(ConfigError, match="expected a CodecKind of the name 'arvo'"):
        Format.from_config({"format": "arvo"})
    assert list(registry.kinds()) == list(FORMATS)


def function(given: Any) -> Codec:
    assert given.options == {"url": "x"}
    return Bytes()


def test_a_function_still_gives_a_codec(offer: Callable[..., None]) -> None:
    """As packages for turnout 0.1 have it: of the settings as they are."""
    offer("avro", "function")

    with pytest.warns(DeprecationWarning, match="offer a CodecKind"):
        assert isinstance(codec_of(Format.from_config({"format": "avro", "url": "x"})), Bytes)
