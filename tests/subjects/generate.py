"""Transforms, subjects and tables by chance, from a seed: what several implementations are compared on."""

from __future__ import annotations

import random
from typing import Any

from turnout.subjects.tokens import decode

LITERALS = ("a", "b", "orders", "eu-west", "ü", "日本", "x_1", "$SYSTEM", "%s", "a*", "b>")
PIECES = ("a", "bc", "-", "--", "_", "é", "日", "1", "23", "Zz", "%", "x*", "$1")
NUMBERS = (-3, 0, 1, 2, 3, 5, 100)
BUCKETS = (-5, 0, 1, 3, 10, 1000, 2147483647)
DELIMITERS = ("-", "_", "--", "é", "a", "")
CUTS = ("splitFromLeft", "SplitFromRight", "sliceFromLeft", "slicefromright", "left", "Right")


def token(rng: random.Random) -> str:
    """A subject's token: not empty, not a wildcard."""
    found = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6)))
    return found if found not in ("*", ">") else "t"


def source(rng: random.Random) -> str:
    kinds = rng.choices(("*", "literal"), (3, 2), k=rng.randint(1, 5))
    tokens = ["*" if kind == "*" else rng.choice(LITERALS) for kind in kinds]
    return ".".join([*tokens, ">"] if rng.random() < 0.3 else tokens)


def destination(rng: random.Random, source: str, *, chance: bool = True) -> str:
    wildcards = source.split(".").count("*")
    tokens = [_placeholder(rng, wildcards, chance=chance) for _ in range(rng.randint(1, 5))]
    return ".".join([*tokens, ">"] if source.split(".")[-1] == ">" else tokens)


def _placeholder(rng: random.Random, wildcards: int, *, chance: bool) -> str:
    kind = rng.randint(0, 7)
    if kind == 0:
        return rng.choice(LITERALS)
    if kind == 1 and chance:
        return f"{{{{random({rng.choice(BUCKETS)})}}}}"
    if kind == 2 or not wildcards:
        return f"{{{{partition({rng.choice(BUCKETS)})}}}}"
    index = rng.randint(1, wildcards)
    if kind == 3:
        count = rng.randint(1, 3)
        named = ",".join(str(rng.randint(0, wildcards)) for _ in range(count))
        return f"{{{{ Partition( {rng.choice(BUCKETS)} , {named}) }}}}"
    if kind == 4:
        return f"{{{{split({index},{rng.choice(DELIMITERS)})}}}}"
    if kind == 5:
        return rng.choice((f"${index}", f"{{{{wildcard({index})}}}}", "$0"))
    return f"{{{{{rng.choice(CUTS)}({index},{rng.choice(NUMBERS)})}}}}"


def subject(rng: random.Random, source: str) -> str:
    """A literal subject that *source* matches."""
    tokens: list[str] = []
    for want in source.split("."):
        if want == ">":
            tokens += [token(rng) for _ in range(rng.randint(1, 3))]
        else:
            tokens.append(token(rng) if want.startswith("*") else want)
    return ".".join(tokens)


def odd_subjects() -> list[str]:
    """Subjects that are empty, wildcards, blank or not UTF-8."""
    texts = ["", ".", "a.", ".a", "a..b", "*", "a.*", ">", "a.>", "a.b.>", "a b.c", "a", "a.b.c.d.e.f.g"]
    return texts + [decode(data) for data in (b"\xff", b"a.\xc3", b"\xa9\xe6\x97.b.-\xff-x", b"a.--\xf0\x90.\x80")]


def table(rng: random.Random, sources: int) -> dict[str, Any]:
    """A ``mappings`` block that is accepted: overlapping sources, weights, clusters and losses."""
    return {one: _entries(rng, one) for one in (_mapping_source(rng) for _ in range(sources))}


def _mapping_source(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return ".".join(rng.choice(LITERALS) for _ in range(rng.randint(1, 3)))
    if kind < 0.6:
        return f"{rng.choice(LITERALS)}.*x"
    return source(rng)


def _entries(rng: random.Random, source: str) -> Any:
    if rng.random() < 0.4:
        return destination(rng, source)
    entries: dict[str, dict[str, Any]] = {}
    for cluster in ("", "west", "east"):
        left = 100
        for _ in range(rng.randint(0, 3)):
            loss = rng.random() < 0.15 and "*" not in source
            to = source if loss else destination(rng, source)
            weight = rng.choice((0, 1, 10, 33, 50, left))
            if to not in entries and weight <= left:
                left -= weight
                entries[to] = {"destination": to, "weight": f"{weight}%", "cluster": cluster}
    return list(entries.values())
