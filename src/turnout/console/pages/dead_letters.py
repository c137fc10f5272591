"""``/dead-letters``: failed records, grouped by stage and reason, each as it was read, and their redrive."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from pydantic import StrictBool

from turnout.base.terminal import plural
from turnout.console.charts import HOUR, bars, counted, moment, pretty
from turnout.console.pages.route import tabs_of
from turnout.console.render import page, page_router, store_name
from turnout.engine.sample_records import SampleRecord
from turnout.history.dead_letters import DeadLetter
from turnout.history.masking import hidden_anywhere
from turnout.history.redrive import masked_report, redrive
from turnout.routes import Route
from turnout.server.rest.dependencies import PartsDep, Reads, Writes, asks_servers, is_masked, redrives
from turnout.server.rest.models import RequestForm, SequenceNumber
from turnout.server.routes.state import Losses
from turnout.server.sandbox import REACH, letter_at, newest, route_of, text_of_bytes, visible

router = page_router()

_WIDTH = 16
"""Bytes in a line of a hex dump."""
_ON_PAGE = 25
_GROUPS_ON_PAGE = 20
_ROUTES_ON_PAGE = 50
_MOST_CHOSEN = 20
"""Maximum number of columns of a table, besides the fixed ones."""

_Item = TypeVar("_Item")


class RedriveRequest(RequestForm):
    """Selection of letters to redrive: one, those of a group, or all; and the dry-run switch."""

    sequence: SequenceNumber | None = None
    stream: str | None = None
    stage: str | None = None
    reason: str | None = None
    where: str = ""
    dry_run: StrictBool = True


@dataclass(frozen=True, slots=True)
class LetterGroup(Generic[_Item]):
    """Letters that failed at one stage, or endpoint, for one reason, the newest first."""

    failed_at: str
    reason: str
    letters: Sequence[_Item]

    @property
    def id(self) -> str:
        """A short name for its stage and reason, independent of its rank among the groups."""
        return hashlib.sha256(f"{self.failed_at}\0{self.reason}".encode()).hexdigest()[:12]


@router.get("/dead-letters")
def overview(
    request: Request, parts: PartsDep, _: Reads, number: Annotated[int, Query(alias="page", ge=1)] = 1
) -> HTMLResponse:
    """Render the routes with dead letters enabled, the largest recent numbers of dead letters first."""
    names = [entry.name for entry in parts.routes.entries() if entry.version and entry.version.route.dead_letter]
    now = time.time()
    hour, day = (parts.state.losses(now - seconds, now) for seconds in (HOUR, 24 * HOUR))
    rows = sorted(((name, hour.get(name, Losses()), day.get(name, Losses())) for name in names), key=_most_first)
    return page(request, "dead_letters.html", rows=Piece.of(rows, number, _ROUTES_ON_PAGE))


def _most_first(row: tuple[str, Losses, Losses]) -> tuple[int, int, int, int, str]:
    name, hour, day = row
    return (-hour.dead_lettered, -hour.undeliverable, -day.dead_lettered, -day.undeliverable, name)


@router.get("/dead-letters/{name}")
@asks_servers
def letters(
    name: str,
    request: Request,
    parts: PartsDep,
    principal: Reads,
    group: str | None = None,
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
    groups_number: Annotated[int, Query(alias="groups", ge=1)] = 1,
    q: str = "",
    where: str = "",
    columns: Annotated[list[str] | None, Query(alias="column", max_length=_MOST_CHOSEN)] = None,
) -> HTMLResponse:
    entry = parts.routes.entry(name)
    route = route_of(entry)
    masked = is_masked(principal)
    waiting = visible(route, newest(route, where=where, masked=masked), masked=masked)
    pending = [letter for letter in waiting if has_text(letter, q)] if q else waiting
    every = grouped(pending, lambda letter: (letter.stage or "", reason_of(letter)))
    chosen = next((candidate for candidate in every if candidate.id == group), None)
    groups = Piece.of(every, groups_number, _GROUPS_ON_PAGE)
    members = Piece.of(chosen.letters if chosen else pending, number, _ON_PAGE)
    rows = [fields_of(letter) for letter in members.items]
    searched = [(name, text) for name, text in (("q", q), ("where", where)) if text]
    # The newest are first.
    begin, end = (pending[-1].stored_seconds, pending[0].stored_seconds) if pending else (0.0, 0.0)
    return page(
        request,
        "route_dead_letters.html",
        tabs_of(entry, "letters"),
        total=len(pending),
        waiting=len(waiting),
        q=q,
        where=where,
        columns=columns or [],
        offered=columns_of(rows),
        rows=rows,
        kept=urlencode([*searched, *(("column", column) for column in columns or ())]),
        reach=REACH,
        groups=groups,
        figures=_over_time(groups.items, begin, end),
        begin=begin,
        end=end,
        chosen=chosen,
        letters=members,
        reason_of=reason_of,
        partition_of=partition_of,
    )


@dataclass(frozen=True, slots=True)
class Piece(Generic[_Item]):
    """Page of a list: its items, its number, and the number of pages."""

    items: Sequence[_Item]
    number: int
    pages: int

    @classmethod
    def of(cls, items: Sequence[_Item], number: int, size: int) -> Piece[_Item]:
        """Return the page with this number; the last page if the number is too large."""
        pages = max(1, -(-len(items) // size))
        number = min(number, pages)
        return cls(items[(number - 1) * size : number * size], number, pages)


def _over_time(groups: Sequence[LetterGroup[DeadLetter]], begin: float, end: float) -> list[Markup]:
    """Return a figure for each group, over the same time and scale; in seconds since the epoch."""
    counts = [counted([letter.stored_seconds for letter in group.letters], begin, end) for group in groups]
    most = max((max(group_counts) for group_counts in counts), default=0)
    return [
        bars(group_counts, most, f"{plural(len(group.letters), 'letter')} between {moment(begin)} and {moment(end)}")
        for group, group_counts in zip(groups, counts, strict=True)
    ]


@router.get("/dead-letters/{name}/{sequence:number}")
@asks_servers
def letter(
    name: str,
    sequence: SequenceNumber,
    request: Request,
    parts: PartsDep,
    principal: Reads,
    stream: str | None = None,
) -> HTMLResponse:
    """Render one letter; *stream* selects one partition of Kafka, ``topic:partition``."""
    entry = parts.routes.entry(name)
    route = route_of(entry)
    (letter,) = visible(route, [letter_at(route, sequence, stream)], masked=is_masked(principal))
    return page(
        request,
        "dead_letter.html",
        tabs_of(entry, "letters"),
        of=store_name(parts, route),
        letter=letter,
        partition=partition_of(letter),
        origin=origin_of(letter.record),
        reason=reason_of(letter),
        key=text_or_hex(letter.record.key),
        value=text_or_hex(letter.record.value),
        headers=[(header, text_or_hex(raw)) for header, raw in letter.record.headers],
        raw=[(header, text_or_hex(raw)) for header, raw in letter.raw],
    )


@router.post("/fragments/dead-letters/{name}/redrive")
@redrives
def redriven(name: str, form: RedriveRequest, request: Request, parts: PartsDep, principal: Writes) -> HTMLResponse:
    """Render the result of a redrive, or of its dry run."""
    route = route_of(parts.routes.entry(name))
    masked = is_masked(principal)
    # The call's time is for the store; letters may take long.
    index = parts.matchers.index(route)
    report = redrive(route, _chosen(route, form, masked=masked), dry_run=form.dry_run, index=index)
    if masked:
        report = masked_report(report, hidden_anywhere(route.chain))
    return page(request, "_redriven.html", report=report, name=name)


def _chosen(route: Route, form: RedriveRequest, *, masked: bool) -> list[DeadLetter]:
    if form.sequence is not None:
        return [letter_at(route, form.sequence, form.stream)]
    ordered = newest(route, where=form.where, masked=masked)[::-1]
    if form.reason is None:
        return ordered
    # Groups are equal if shown equally.
    pairs = zip(ordered, visible(route, ordered, masked=masked), strict=True)
    group = (form.stage or "", form.reason)
    return [letter for letter, as_shown in pairs if (as_shown.stage or "", reason_of(as_shown)) == group]


def partition_of(letter: DeadLetter) -> dict[str, str]:
    """Return the query parameter that names a letter's partition of Kafka; empty for a stream of NATS."""
    return {"stream": letter.stream} if ":" in letter.stream else {}


def origin_of(record: SampleRecord) -> str:
    """Return the position of a record: ``STREAM:SEQ``, of Kafka ``TOPIC:PARTITION:OFFSET``; "" if unknown."""
    if record.offset is None:
        return ""
    return f"{record.stream or f'{record.topic}:{record.partition}'}:{record.offset}"


def reason_of(letter: DeadLetter) -> str:
    """Return the reason why the record was set aside."""
    return letter.reason or ("no subscription matched it" if letter.stage is None else letter.stage)


def grouped(letters: Iterable[_Item], key: Callable[[_Item], tuple[str, str]]) -> list[LetterGroup[_Item]]:
    """Return the letters grouped by where and why they failed, the largest group first."""
    members: dict[tuple[str, str], list[_Item]] = {}
    for letter in letters:
        members.setdefault(key(letter), []).append(letter)
    groups = [LetterGroup(failed_at, reason, in_group) for (failed_at, reason), in_group in members.items()]
    return sorted(groups, key=lambda group: -len(group.letters))


def hex_lines(raw: bytes) -> str:
    r"""Return a hex dump of bytes: offset, hexadecimal, and printable ASCII.

    >>> hex_lines(b"\x00ab")
    '00000000  00 61 62                                         .ab'
    """
    lines = []
    for start in range(0, len(raw), _WIDTH):
        row = raw[start : start + _WIDTH]
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {ascii_}".rstrip())
    return "\n".join(lines)


def text_or_hex(raw: bytes | None) -> str:
    """Return bytes as text if they are text, else as hexadecimal."""
    if raw is None:
        return "null"
    text = text_of_bytes(raw)
    return hex_lines(raw) if text is None else text


_LARGEST_VALUE: Final = 64 << 10
"""Bytes of a value up to which its fields are columns."""
_MOST_COLUMNS: Final = 200


def fields_of(letter: DeadLetter) -> dict[str, str]:
    """Return the header texts of a letter's record, and the fields of a value that is a JSON object, by column."""
    headers = {f"headers.{name}": text_of_bytes(raw or b"") or "" for name, raw in letter.record.headers}
    return headers | {f"value.{name}": pretty(value) for name, value in _object_of(letter.record.value).items()}


def _object_of(value: bytes | None) -> dict[str, object]:
    if value is None or len(value) > _LARGEST_VALUE:
        return {}
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def columns_of(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return the columns that some rows have, by name."""
    return sorted({name for row in rows for name in row})[:_MOST_COLUMNS]


def has_text(letter: DeadLetter, text: str) -> bool:
    """Return True if a text is in a letter's topic, stage, reason, key, value or headers, in any case."""
    record = letter.record
    raw = [record.key, record.value, *(part for _, part in record.headers)]
    texts = [record.topic, letter.stage, letter.reason, *(text_of_bytes(part) for part in raw if part is not None)]
    return any(text.lower() in part.lower() for part in texts if part)
