"""Explanations, dead letters, redrive reports and statuses of a route, without the fields that it masks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from turnout.conditions import Condition, leaves
from turnout.engine.explain import LeafReport, RecordExplanation, RequestedSubscription, SentMessage, Subscriber
from turnout.engine.outcome import StageResult
from turnout.engine.sample_records import Header
from turnout.engine.stage_report import PredicateAnswer, StageReport
from turnout.errors import ConfigError, Mistake
from turnout.history.dead_letters import DeadLetter
from turnout.history.masking import HIDDEN, Hidden, hidden_anywhere, hidden_by_stage
from turnout.history.redrive import RedriveReport
from turnout.multivalued import ANY_KEY, metadata_key, split_kind, text_of_texts
from turnout.records.field_paths import EACH, PathError, has_elements, listed_path, parse_elements, parse_path
from turnout.routes import Route
from turnout.transforms.content_paths import HEADERS, KEY, VALUE, ContentPath

_QUOTING: Final = ("__connect.errors.exception.message", "__connect.errors.exception.stacktrace")
"""Headers of a dead letter whose text may quote the record."""

_FAILURE: Final = re.compile(r"((?:(?:KEY|VALUE|HEADER)_CONVERTER|TRANSFORMATION|TASK_PUT): ).*", re.DOTALL)
"""A record's failure in the error of a run, from the stage on."""


def masked_sentence(route: Route, sentence: str, *, known: bool = True) -> str:
    """Return a run's failure without quoted parts of a failing record.

    Of an error that is not *known*, one of ours, nothing is said: it may quote anything.
    """
    if not hidden_anywhere(route.chain):
        return sentence
    return _FAILURE.sub(rf"\g<1>{HIDDEN}", sentence) if known else f"it failed ({HIDDEN}; the log says why)"


def masked_letter(letter: DeadLetter, hidden: Hidden) -> DeadLetter:
    """Return a dead letter with its record, its reason and its headers masked."""
    if not hidden:
        return letter
    record = replace(
        letter.record,
        key=hidden.raw(KEY, letter.record.key),
        value=hidden.raw(VALUE, letter.record.value),
        headers=_headers(letter.record.headers, hidden),
    )
    reason = None if letter.reason is None else hidden.failure(letter.reason)
    return replace(letter, record=record, reason=reason, raw=_headers(letter.raw, hidden))


def _headers(headers: Iterable[Header], hidden: Hidden) -> tuple[Header, ...]:
    hide = HIDDEN.encode()
    return tuple(
        (name, hide if raw is not None and (name in _QUOTING or hidden.hides((HEADERS, name))) else raw)
        for name, raw in headers
    )


def masked_report(report: RedriveReport, hidden: Hidden) -> RedriveReport:
    """Return the report of a redrive with its letters and their failures masked."""
    results = tuple(
        replace(
            result,
            letter=masked_letter(result.letter, hidden),
            reason=None if result.reason is None else hidden.failure(result.reason),
        )
        for result in report.results
    )
    return replace(report, results=results)


def masked_explanation(explanation: RecordExplanation, route: Route) -> RecordExplanation:
    """Return an explanation with all of its parts masked."""
    hidden = hidden_by_stage(route.chain)
    anywhere = hidden_anywhere(route.chain)
    if not anywhere:
        return explanation
    first, last = hidden[0], hidden[-1]
    masked = _MaskedMetadata(route, last)
    failure = explanation.failure
    return replace(
        explanation,
        record=first.plain(explanation.record),
        stages=tuple(_stages(explanation.stages, hidden, anywhere)),
        metadata=masked_metadata(route, explanation.metadata),
        wanted=tuple(_subscriber(subscriber, masked) for subscriber in explanation.wanted),
        asked=None if explanation.asked is None else _masked_asked(explanation.asked, masked),
        failure=None if failure is None else replace(failure, message=anywhere.failure(failure.message)),
        messages=tuple(_message(sent, anywhere if sent.dead_letter else last) for sent in explanation.messages),
    )


def _stages(reports: Iterable[StageReport], hidden: list[Hidden], anywhere: Hidden) -> Iterator[StageReport]:
    # A failed or dropped record ends here.
    stage = 0
    for report in reports:
        before = hidden[stage]
        stage += report.outcome in (StageResult.APPLIED, StageResult.NOT_MATCHED)
        yield replace(
            report,
            before=before.plain(report.before),
            after=hidden[stage].plain(report.after),
            answers=tuple(_answer(answer, before) for answer in report.answers),
            error=None if report.error is None else anywhere.failure(report.error),
        )


def _answer(answer: PredicateAnswer, hidden: Hidden) -> PredicateAnswer:
    return replace(answer, saw={name: hidden.under(_operand(name), text) for name, text in answer.saw.items()})


def _operand(name: str) -> ContentPath:
    """Return the path that a predicate reads; a name that is not a path into key or value is a header."""
    side, dot, path = name.partition(".")
    return (side, *parse_path(path)) if side in (KEY, VALUE) and (path or not dot) else (HEADERS, name)


def _message(message: SentMessage, hidden: Hidden) -> SentMessage:
    headers = tuple(
        (name, HIDDEN if name in _QUOTING and text is not None else hidden.header(name, text))
        for name, text in message.headers
    )
    if not hidden:
        return message
    # The result of an expression over a hidden field is unknown.
    value = HIDDEN if message.projected and message.value is not None else hidden.text(VALUE, message.value)
    return replace(message, key=hidden.text(KEY, message.key), value=value, headers=headers)


def _texts_in(text: str) -> list[str] | None:
    """Return the texts of an array of JSON; None for anything else."""
    try:
        elements = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(elements, list) and all(isinstance(element, str) for element in elements):
        return elements
    return None


class _MaskedMetadata:
    """Visible part of the metadata that conditions see of a route's records."""

    def __init__(self, route: Route, hidden: Hidden, paths: Mapping[str, str] | None = None) -> None:
        own = route.subscriptions.metadata if route.subscriptions else {}
        self._paths = own if paths is None else paths
        self._hidden = hidden

    def path(self, key: str) -> ContentPath | None:
        """Return the path under a key; None for a part of the record's address."""
        name = metadata_key(key)
        listed = listed_path(self._paths, name)
        if listed is not None:
            root, *steps = _steps(listed)
            # Elements of an array are hidden by the array's name.
            return (root, *(step for step in steps if step is not EACH)) if root in (KEY, VALUE) else None
        if name in ("topic", "subject"):
            return None
        return (KEY,) if name == KEY else (HEADERS, name)

    def text(self, key: str, text: str | None) -> str | None:
        """Return the text under a key."""
        if key == ANY_KEY:
            # Which of the values are hidden ones is not known.
            return HIDDEN if self._hidden and text is not None else text
        path = self.path(key)
        if path is None or text is None:
            return text
        listed = listed_path(self._paths, metadata_key(key)) or ""
        elements = _texts_in(text) if has_elements(_steps(listed)) else None
        if elements is None:
            return self._hidden.under(path, text)
        # Each may be JSON by itself.
        return text_of_texts(tuple(self._hidden.under(path, element) or "" for element in elements))

    def hides(self, key: str) -> bool:
        """Return True if a part of a key's value is hidden."""
        if key == ANY_KEY:
            return bool(self._hidden)
        path = self.path(key)
        return path is not None and self._hidden.hides(path)

    def leaves(self, reports: Iterable[LeafReport]) -> tuple[LeafReport, ...]:
        """Return what leaves of a condition saw."""
        return tuple(replace(report, value=self.text(report.key, report.value)) for report in reports)


def _steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path; only the first one if it cannot be parsed, as below a prefix."""
    try:
        return parse_elements(split_kind(path)[0])
    except PathError:
        return (path.partition(".")[0],)


def _subscriber(subscriber: Subscriber, masked: _MaskedMetadata) -> Subscriber:
    return replace(subscriber, leaves=masked.leaves(subscriber.leaves))


def _masked_asked(explanation: RequestedSubscription, masked: _MaskedMetadata) -> RequestedSubscription:
    return replace(explanation, blame=None if explanation.blame is None else masked.leaves(explanation.blame))


def masked_metadata(route: Route, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return a record's metadata for conditions behind all stages, masked."""
    masked = _MaskedMetadata(route, hidden_by_stage(route.chain)[-1])
    return {key: masked.text(key, text) or "" for key, text in metadata.items()}


def check_condition(route: Route, stage: int, condition: Condition, paths: Mapping[str, str] | None = None) -> None:
    """Refuse a condition on hidden fields, as its matches would reveal their values.

    Args:
        route: route of the records.
        stage: number of its stages that they have passed.
        condition: over the metadata as it is there.
        paths: name → path of the metadata; those of the route's subscriptions if not given.

    Raises:
        ConfigError: names the keys that the condition may not test.
    """
    masked = _MaskedMetadata(route, hidden_by_stage(route.chain)[stage], paths)
    keys = dict.fromkeys(leaf.key for leaf in leaves(condition) if masked.hides(leaf.key))
    problem = "the route masks it, and this token does not give the right to unmasked"
    if keys:
        raise ConfigError([Mistake(f"where: {key}", problem) for key in keys], what="bad condition")
