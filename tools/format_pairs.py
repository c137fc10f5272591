"""The table of formats that are read and written, with what each pair changes, for the page on encodings."""

from __future__ import annotations

import re
from string import ascii_lowercase

from turnout.codecs.pairs import BECOME, HAS, NEEDS_SCHEMA, SCALARS, WITH_SCHEMA, Feature, losses

_TABLES = re.compile(r"(?<=<!-- pairs: made by `make reference` -->\n).*?(?=<!-- end of pairs -->)", re.DOTALL)
_LETTERS = dict(zip(Feature, ascii_lowercase, strict=False))
_EXACT = "exact"


def with_pairs(page: str) -> str:
    """The page with the tables that the code says."""
    return _TABLES.sub(lambda _: f"\n{tables()}\n", page, count=1)


def tables() -> str:
    """What each pair changes, by letters, and what the letters mean."""
    writers = [name for name in BECOME if name != "json with schema"]
    lines = [
        f"| read ↓, written → | {' | '.join(map(_name, writers))} |",
        f"| --- |{' --- |' * len(writers)}",
        *(f"| {_name(reader)} | {' | '.join(_cell(reader, writer) for writer in writers)} |" for reader in HAS),
        "",
        f"| | values | {' | '.join(_name(writer) for writer in writers if BECOME[writer])} |",
        f"| --- | --- |{' --- |' * sum(bool(BECOME[writer]) for writer in writers)}",
        *(
            f"| {letter} | {feature} | "
            + " | ".join(BECOME[writer].get(feature, "") for writer in writers if BECOME[writer])
            + " |"
            for feature, letter in _LETTERS.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    format_, _, setting = name.partition(", ")
    if format_ == "numbers":
        return "`long`, `double` and the like"
    if name == "json with schema":
        return "`json` with `schema`"
    return f"`{format_}`" + (f", `{setting}`" if setting else "")


def _cell(reader: str, writer: str) -> str:
    if writer == "protobuf" and reader in SCALARS:
        return "refused"
    letters = " ".join(_LETTERS[feature] for feature, _ in losses(reader, writer)) if reader != writer else ""
    schema = "with a schema" if writer in NEEDS_SCHEMA and reader not in WITH_SCHEMA else ""
    return ", ".join(filter(None, (letters, schema))) or _EXACT
