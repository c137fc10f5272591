"""Table of differences from Kafka Connect, with the reason of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
            "writes a digit more for a few of them. MaskField's replacement for an integer without bounds has 10,000 "
            "digits at most."
        ),
        "NaN and infinities": (
            "They survive: JSON has them as the texts NaN, Infinity and -Infinity, as JsonConverter writes them, "
            "and a field of floats reads these texts as the numbers; JsonConverter reads its own texts as 0. A "
            "measurement is not to turn into another one."
        ),
        "schemaless dates": (
            "A date object without a schema becomes an ISO 8601 text in JSON; JsonConverter fails, as nothing "
            "says which number is meant. A text can be read by people and by TimestampConverter, and the record "
            "is not lost."
        ),
        "Cast of Date and Decimal": (
            "Cast of a whole key or value keeps the name of its schema (a Date cast to int64 is an int64 named "
            "Date), as Connect's does. JsonConverter then fails, as it looks for a date object; here the number "
            "is written, so that the cast does not lose every record."
        ),
        "look-behind": (
            "(?<=…) and (?<!…) may be of any length; Java refuses one without an obvious greatest length. The "
            "package regex has no such limit, a refusal would have to be made up, and what Java takes means the "
            "same."
        ),
        "nested fields": (
            "field.syntax.version (KIP-821) is known to ExtractField alone in Kafka 4.3, whose other transforms pass "
            "it over. Here Cast, HeaderFrom, HoistField, InsertField, MaskField, ReplaceField, TimestampConverter and "
            "ValueToKey have it too, and HoistField has hoisted, as the accepted KIP says; open questions are "
            "written under Nested fields."
        ),
        "maps of a literal": (
            "InsertHeader's literal stays text where its map has arrays or maps as keys, or keys that are equal "
            "in Python and not in Java ({true: 0, 1: 0}), as no dict holds them, and where more than a hundred "
            "arrays and maps are inside each other, as reading them takes the stack."
        ),
    }
)
"""Reason → the difference."""
