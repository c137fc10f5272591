"""Where a chain here is not what it is on Connect: the one reviewed table, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PARITY"]

PARITY: Mapping[str, str] = MappingProxyType(
    {
        "zone and locale": (
            "Connect prints and reads some times in the zone of its JVM, and names of months and days in its locale; "
            "here the zone is UTC and the locale en_US."
        ),
        "time zones by name": (
            "The letter z reads GMT, UTC and offsets; a text with another zone's name (PST) is a failure."
        ),
        "regular expressions": (
            "A pattern may take one second for a topic, and a topic may have 65,536 characters: beyond them the record "
            "fails. \\b sees ASCII words, as in Java 19 and later; \\b{g} is refused. \\p{…} knows the characters of "
            "the installed version of the package regex, Java those of its own Unicode version."
        ),
        "order of a HashMap": (
            "Where two fields of a schemaless map get one name by ReplaceField, the later one in the map's order wins; "
            "Connect's maps have the order of their hashes."
        ),
        "text of numbers": (
            "Floats and doubles are written with the fewest digits that name them, as in Java 19 and later; Java 17 "
            "writes a digit more for a few of them."
        ),
    }
)
"""Reason → what is different."""
