"""What hypothesis draws: transforms, subjects and tables that the server accepts, and keys for hashing.

Everything is drawn so that a case is worth running: sources that the subject matches, functions of every kind with
numbers at their limits, characters of several bytes, pieces that look like wildcards, placeholders and formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from turnout.subjects import has_wildcard
from turnout.subjects.pattern import decode

LITERALS = ("a", "b", "orders", "eu-west", "ü", "日本", "x_1", "$SYSTEM", "%s", "a*", "b>")
PIECES = ("a", "bc", "-", "--", "_", "é", "日", "1", "23", "Zz", "%", "x*", "$1")
NUMBERS = (-3, 0, 1, 2, 3, 5, 100)
BUCKETS = (-5, 0, 1, 3, 10, 1000, 2147483647)
DELIMITERS = ("-", "_", "--", "é", "a", "")
CUTS = ("splitFromLeft", "SplitFromRight", "sliceFromLeft", "slicefromright", "left", "Right")

ODD_SUBJECTS = (
    *("", ".", "a.", ".a", "a..b", "*", "a.*", ">", "a.>", "a.b.>", "a b.c", "a", "a.b.c.d.e.f.g"),
    *(decode(data) for data in (b"\xff", b"a.\xc3", b"\xa9\xe6\x97.b.-\xff-x", b"a.--\xf0\x90.\x80")),
)
"""Subjects that are empty, wildcards, blank or not UTF-8."""

seeds = st.integers(0, 2**32 - 1)
draws = st.floats(0, 1, exclude_max=True)

tokens = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
"""A subject's token: not empty, and by its pieces never a wildcard."""

keys = st.binary(max_size=40)
"""Inputs of ``partition``'s hash, UTF-8 or not."""

sources = st.tuples(
    st.lists(st.sampled_from(("*", "*", *LITERALS)) | st.just("*"), min_size=1, max_size=5),
    st.sampled_from(([], [], [">"])),
).map(lambda parts: ".".join(parts[0] + parts[1]))
"""A filter in which wildcards are about as frequent as literals."""


def subjects_of(source: str) -> st.SearchStrategy[str]:
    """Literal subjects that *source* matches."""
    parts: list[st.SearchStrategy[str]] = []
    for want in source.split("."):
        if want == ">":
            parts.append(st.lists(tokens, min_size=1, max_size=3).map(".".join))
        else:
            parts.append(tokens if want.startswith("*") else st.just(want))
    return st.tuples(*parts).map(".".join)


def destinations_of(source: str, *, chance: bool = True) -> st.SearchStrategy[str]:
    """Destinations for *source*, with ``random(n)`` only where *chance* is wanted."""
    wildcards = source.split(".").count("*")
    kinds: list[st.SearchStrategy[str]] = [st.sampled_from(LITERALS), _call("partition({})", BUCKETS)]
    if chance:
        kinds.append(_call("random({})", BUCKETS))
    if wildcards:
        index = st.integers(1, wildcards)
        named = st.lists(st.integers(0, wildcards), min_size=1, max_size=3).map(
            lambda numbers: ",".join(map(str, numbers))
        )
        kinds += [
            st.builds("{{{{ Partition( {} , {}) }}}}".format, st.sampled_from(BUCKETS), named),
            st.builds("{{{{split({},{})}}}}".format, index, st.sampled_from(DELIMITERS)),
            index.map("${}".format) | index.map("{{{{wildcard({})}}}}".format) | st.just("$0"),
            *[st.builds("{{{{{}({},{})}}}}".format, st.sampled_from(CUTS), index, st.sampled_from(NUMBERS))] * 2,
        ]
    tail = [">"] if source.split(".")[-1] == ">" else []
    return st.lists(st.one_of(kinds), min_size=1, max_size=5).map(lambda tokens: ".".join(tokens + tail))


def _call(form: str, numbers: tuple[int, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(numbers).map(lambda number: "{{" + form.format(number) + "}}")


@dataclass(frozen=True)
class Case:
    """A transform and a subject that it matches."""

    source: str
    destination: str
    subject: str


def cases(*, chance: bool = True) -> st.SearchStrategy[Case]:
    """Transforms that the server accepts, each with a subject."""
    return sources.flatmap(
        lambda source: st.builds(Case, st.just(source), destinations_of(source, chance=chance), subjects_of(source))
    )


@st.composite
def mapping_cases(draw: st.DrawFn) -> Case:
    """Like `cases`, for accounts: for a literal source with a partition the server hashes nothing, or the subject."""
    return draw(
        cases(chance=False).filter(lambda case: has_wildcard(case.source) or "artition" not in case.destination)
    )


_MAPPING_SOURCES = st.one_of(
    st.lists(st.sampled_from(LITERALS), min_size=1, max_size=3).map(".".join),
    st.sampled_from(LITERALS).map("{}.*x".format),
    sources,
)


@st.composite
def tables(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 12) -> dict[str, Any]:
    """A ``mappings`` block that is accepted: overlapping sources, weights, clusters and losses."""
    sources = draw(st.lists(_MAPPING_SOURCES, min_size=min_size, max_size=max_size, unique=True))
    return {source: draw(_entries(source)) for source in sources}


@st.composite
def _entries(draw: st.DrawFn, source: str) -> Any:
    """One destination, or weighted ones for several clusters, the source itself (loss) among them."""
    if draw(st.booleans()):
        return draw(destinations_of(source))
    known = st.just(source) if "*" not in source else destinations_of(source)
    choices = st.lists(destinations_of(source) | known, max_size=4, unique=True)
    room = {"": 100, "west": 100, "east": 100}
    entries: list[dict[str, Any]] = []
    for to in draw(choices):
        cluster = draw(st.sampled_from(tuple(room)))
        weight = min(draw(st.sampled_from((0, 1, 10, 33, 50, 100))), room[cluster])
        room[cluster] -= weight
        entries.append({"destination": to, "weight": f"{weight}%", "cluster": cluster})
    return entries


@st.composite
def tables_with_subjects(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 12) -> tuple[dict[str, Any], list[str]]:
    """A table and subjects: some that each source matches, and the sources' own texts."""
    table = draw(tables(min_size=min_size, max_size=max_size))
    subjects = [draw(subjects_of(source)) for source in table]
    return table, [*subjects, *table]
