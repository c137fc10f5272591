"""Masking: fields that a later stage masks are hidden in views before it as well; what a changed chain uncovers."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from turnout.base.multivalued import ANY_KEY, metadata_key, split_kind, text_of_texts
from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, keys_of
from turnout.engine.counts import StageResult
from turnout.engine.explain import LeafReport, RecordExplanation, RequestedSubscription, SentMessage
from turnout.engine.sample_records import Header
from turnout.engine.trace import PredicateAnswer, StageReport
from turnout.errors import ConfigError, Mistake
from turnout.records import Record, Schema
from turnout.records.field_paths import EACH, PathError, has_elements, listed_path, parse_elements, parse_path
from turnout.records.text import iso_of, json_of, readable, text_of
from turnout.records.types import Fields
from turnout.routes import Route
from turnout.transforms import Chain
from turnout.transforms.base import HEADERS, KEY, VALUE, ContentPath, Predicate, fits, same_name
from turnout.transforms.chain import Stage
from turnout.transforms.kafka.headers import DropHeaders
from turnout.transforms.kafka.replace_field import ReplaceField

HIDDEN: Final = "***"
"""Text shown in place of masked content."""

_QUOTING_HEADERS: Final = ("__connect.errors.exception.message", "__connect.errors.exception.stacktrace")
"""Headers of a dead letter whose text may quote the record."""

_FINGERPRINT_KEY: Final = secrets.token_bytes(16)
"""Fingerprints of one process can be compared; the key prevents finding short contents by trial."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Hidden fields of a record. Rather too much is hidden: a name counts in key and value, at any depth.

    Attributes:
        paths: paths of the content that is hidden, and of everything below.
    """

    paths: frozenset[ContentPath] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.paths)

    def masked(self, record: Record) -> JsonObject:
        """Return a record as plain JSON, masked."""
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": self._content(KEY, record.key, record.key_schema),
            "value": self._content(VALUE, record.value, record.value_schema),
            "headers": [
                [header.name, self.header(header.name, _shown_text(header.value, header.schema))]
                for header in record.headers
            ],
            "timestamp": None if record.timestamp is None else iso_of(record.timestamp),
        }

    def plain(self, record: Fields) -> JsonObject:
        """Return a masked record that is plain JSON already, with its key and undecoded parts as text."""
        value = record["value"]
        shown = self.text(VALUE, value) if isinstance(value, str) else self._side(VALUE, value)
        headers = [[name, self.header(name, text)] for name, text in record["headers"]]
        return {**record, "key": self.text(KEY, record["key"]), "value": shown, "headers": headers}

    def text(self, side: str, written: str | bytes | None) -> str | None:
        """Return the text of a key or a value.

        Of a JSON object the hidden fields are hidden. The contents of other text, and of undecoded bytes, are unknown:
        only their size is shown, and a fingerprint that is equal for equal contents in this process.
        """
        if written is None:
            return None
        if not self._names(side) and not self._is_whole(side):
            return written if isinstance(written, str) else written.decode("utf-8", "replace")
        plain = None if self._is_whole(side) else _json_object(written)
        if plain is None:
            return _placeholder(written if isinstance(written, bytes) else written.encode("utf-8", "replace"))
        return _dumped(self._without(side, plain))

    def raw(self, side: str, content: bytes | None) -> bytes | None:
        """Return the bytes of a key or a value; the same bytes where nothing of the side is hidden."""
        if content is None or not (self._names(side) or self._is_whole(side)):
            return content
        return (self.text(side, content) or "").encode()

    def header(self, name: str, text: str | None) -> str | None:
        """Return the text of a header."""
        return HIDDEN if text is not None and self.hides((HEADERS, name)) else text

    def hides(self, path: ContentPath) -> bool:
        """Return True if content at the path, or a part of it, is hidden."""
        root, *names = path
        tainted = self._names(root)
        overlaps = any(fits(hidden, path) or fits(path, hidden) for hidden in self.paths)
        return overlaps or (root != HEADERS and any(_is_named(name, tainted) for name in names))

    def under(self, path: ContentPath, text: str | None) -> str | None:
        """Return the text of a field, as conditions see it."""
        root, *names = path
        if text is None:
            return None
        if root == HEADERS:
            return self.header(names[0], text)
        if not names:
            return self.text(root, text)
        if self._is_whole(root) or any(_is_named(name, self._names(root)) for name in names):
            return HIDDEN
        expected = _is_named(names[-1], self._parents(root))
        inner = _json_of(text)
        if not isinstance(inner, dict | list):
            return HIDDEN if expected else text
        return _dumped(self._without(root, inner, expected=expected))

    def raw_headers(self, headers: Iterable[Header]) -> tuple[Header, ...]:
        """Return the headers of a dead letter; those that may quote the record are hidden as well."""
        hide = HIDDEN.encode()
        return tuple(
            (name, hide if raw is not None and (name in _QUOTING_HEADERS or self.hides((HEADERS, name))) else raw)
            for name, raw in headers
        )

    def failure(self, message: str) -> str:
        """Return why something failed: the message may quote a field."""
        return HIDDEN if self else message

    def _names(self, side: str) -> frozenset[str]:
        return frozenset(path[-1] for path in self.paths if path[0] == side and len(path) > 1)

    def _is_whole(self, side: str) -> bool:
        return (side,) in self.paths

    def _content(self, side: str, content: object, schema: Schema | None) -> object:
        return self.text(side, content) if isinstance(content, bytes) else self._side(side, json_of(content, schema))

    def _side(self, side: str, plain: object) -> object:
        names = self._names(side)
        if plain is None or not (names or self._is_whole(side)):
            return plain
        # Fields are masked, so a value without fields is unexpected, and may be anything.
        return self._without(side, plain) if isinstance(plain, Mapping) and not self._is_whole(side) else HIDDEN

    def _parents(self, side: str) -> frozenset[str]:
        return frozenset(name for path in self.paths if path[0] == side for name in path[1:-1])

    def _without(self, side: str, plain: object, *, expected: bool = False) -> object:
        return _without(plain, self._names(side), self._parents(side), expected=expected)


def _is_named(name: str, names: Iterable[str]) -> bool:
    return any(same_name(name, hidden) for hidden in names)


def _without(plain: object, names: frozenset[str], parents: frozenset[str], *, expected: bool = False) -> object:
    """Return plain JSON without the fields of these names.

    Args:
        plain: the JSON.
        names: of hidden fields.
        parents: names of objects that such fields are expected in; anything else in their place may be such a field.
        expected: whether *plain* is to be such an object.
    """
    if isinstance(plain, Mapping):
        return {
            name: HIDDEN
            if _is_named(name, names)
            else _without(item, names, parents, expected=_is_named(name, parents))
            for name, item in plain.items()
        }
    if isinstance(plain, list):
        return [_without(item, names, parents, expected=expected) for item in plain]
    return HIDDEN if expected and plain is not None else plain


def _dumped(plain: object) -> str:
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    # JSON can name halves of a pair of surrogates, which no UTF-8 can hold.
    return text.encode("utf-8", "backslashreplace").decode()


def _json_object(written: str | bytes) -> JsonObject | None:
    plain = _json_of(written)
    return plain if isinstance(plain, dict) else None


def _json_of(written: str | bytes) -> object:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return None


def _placeholder(content: bytes) -> str:
    fingerprint = hashlib.blake2b(content, digest_size=6, key=_FINGERPRINT_KEY).hexdigest()
    return f"{HIDDEN} ({len(content):,} bytes, fingerprint {fingerprint})"


def _shown_text(value: object, schema: Schema | None) -> str | None:
    return readable(value) if isinstance(value, bytes) else text_of(value, schema)


def hidden_by_stage(chain: Chain) -> list[Hidden]:
    """Return the hidden paths of a record before each stage, and behind the last one.

    The paths that a stage masks are traced back to their origin, and forward to every copy. A stage without a
    predicate masks every record: its masked fields are shown behind it, as they are sent. As long as a mask is to come,
    the names that fields had earlier stay hidden: a field of such a name may be one that was not as expected.
    """
    origins = _followed_back(chain.stages)
    paths = origins[0]
    hidden = [Hidden(frozenset(paths))]
    for stage, masked_later in zip(chain.stages, origins[1:], strict=True):
        paths = _followed_on(stage, paths) | masked_later
        hidden.append(Hidden(frozenset(paths) | (hidden[-1].paths if masked_later else frozenset())))
    return hidden


def hidden_anywhere(chain: Chain) -> Hidden:
    """Return the fields that are hidden at any stage, for a record at an unknown stage."""
    return Hidden(frozenset[ContentPath]().union(*(hidden.paths for hidden in hidden_by_stage(chain))))


def _followed_back(stages: tuple[Stage, ...]) -> list[set[ContentPath]]:
    """Return for each stage the paths of what later stages mask."""
    found: list[set[ContentPath]] = [set()]
    for stage in reversed(stages):
        before = {old for path in found[-1] for old in stage.transform.content_before(path)}
        found.append(before | set(stage.transform.masks()))
    return found[::-1]


def _followed_on(stage: Stage, paths: set[ContentPath]) -> set[ContentPath]:
    """Return where content that is hidden before a stage is behind it."""
    later_paths = {new for path in paths for new in stage.transform.content_after(path)}
    if stage.guards:
        return later_paths | paths
    masked = list(stage.transform.masks())
    return {path for path in later_paths if not any(_is_masked(path, mask) for mask in masked)}


def _is_masked(path: ContentPath, mask: ContentPath) -> bool:
    """Return True if a mask covers a path; a path name with a final ``*`` has to begin with the mask's name.

    Only children of a field have such a name, and a masked field has none.
    """
    pairs = zip(path, mask, strict=False)
    return len(path) >= len(mask) and all(
        name == masked or (name.endswith("*") and name.startswith(masked)) for name, masked in pairs
    )


# --- changes of a chain -----------------------------------------------------------------------------------------------

_Condition: TypeAlias = tuple[tuple[tuple[Predicate, bool], ...], bool]
"""Predicates of a stage, each with its negation, and the negation of the whole."""

_Leak: TypeAlias = tuple[ContentPath, frozenset[_Condition]]
"""Path at which content is delivered, and the conditions of the stages that would have covered it."""

_MAX_LEAKS: Final = 2_000
"""Paths that are followed; of more, nothing is said to be covered."""

_OTHERS: Final = "(any other field)"
"""Stands for the fields that no stage names."""


def uncovered_by(old: Chain, new: Chain) -> Iterator[tuple[ContentPath, str]]:
    """Yield each path in a source record whose content *old* covers and *new* may deliver, and how it was covered.

    A stage covers content by masking it or by removing its field. What is covered for some records counts by the
    stage's predicates: with other predicates it counts as uncovered.

    >>> def chain(**options):
    ...     stage = {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "card"}
    ...     return Chain.from_config({**stage, **{f"transforms.m.{name}": text for name, text in options.items()}})
    >>> list(uncovered_by(chain(), chain(fields="crad"))), list(uncovered_by(chain(), chain(replacement="-")))
    ([(('value', 'card'), 'masked')], [])
    """
    if old.stages == new.stages:
        return
    covered = _covered(old)
    for side in _kept(old):
        for path in ((side, _OTHERS), *_kept(new).get(side, ())):
            covered.setdefault(path, "removed")
    for path, how in sorted(covered.items()):
        before, after = _leaks(old, path), _leaks(new, path)
        # A leak is no worse than an earlier one under the same conditions, or fewer.
        if any(not any(path_now == path_then and then <= now for path_then, then in before) for path_now, now in after):
            yield path, how


def describe_path(path: ContentPath) -> str:
    """Return a path of content as texts for people have it."""
    root, *steps = path
    return f"header {'.'.join(steps)}" if root == "headers" else ".".join(path)


def _covered(chain: Chain) -> dict[ContentPath, str]:
    """Return the paths in a source record of what some stage masks or removes."""
    found: dict[ContentPath, str] = {}
    for stage in reversed(chain.stages):
        found = {before: how for path, how in found.items() for before in stage.transform.content_before(path)}
        found |= dict.fromkeys(_removed(stage), "removed") | dict.fromkeys(stage.transform.masks(), "masked")
    return found


def _removed(stage: Stage) -> list[ContentPath]:
    match stage.transform:
        case ReplaceField() as transform:
            return [(transform.root, *path) for path in transform.exclude]
        case DropHeaders() as transform:
            return [(HEADERS, name) for name in transform.headers]
    return []


def _kept(chain: Chain) -> dict[str, list[ContentPath]]:
    """Return the paths that the chain's stages keep while they remove all others, by side."""
    kept: dict[str, list[ContentPath]] = {}
    for stage in chain.stages:
        transform = stage.transform
        if isinstance(transform, ReplaceField) and transform.include:
            kept.setdefault(transform.root, []).extend((transform.root, *path) for path in transform.include)
    return kept


def _covers(stage: Stage, path: ContentPath) -> bool:
    """Return True if a stage masks or removes what is at a path."""
    transform = stage.transform
    if any(fits(cover, path) for cover in (*transform.masks(), *_removed(stage))):
        return True
    if not isinstance(transform, ReplaceField) or not transform.include or path[0] != transform.root or len(path) < 2:
        return False
    kept = [(transform.root, *name) for name in transform.include]
    return not any(fits(name, path) or fits(path, name) for name in kept)


def _leaks(chain: Chain, path: ContentPath) -> set[_Leak]:
    """Return where content at *path* is behind the chain, unless it is covered everywhere."""
    leaks: set[_Leak] = {(path, frozenset())}
    for stage in chain.stages:
        transform = stage.transform
        condition = tuple((guard.predicate, guard.negate) for guard in stage.guards), stage.negate
        moved: set[_Leak] = set()
        for at, conditions in leaks:
            if _covers(stage, at):
                if stage.guards:
                    moved.add((at, conditions | {condition}))
                continue
            moved |= {(later, conditions) for later in transform.content_after(at)}
            if stage.guards:
                moved.add((at, conditions))
        leaks = moved
        if len(leaks) > _MAX_LEAKS:
            return {(path, frozenset())}
    return leaks


_FAILURE: Final = re.compile(r"((?:(?:KEY|VALUE|HEADER)_CONVERTER|TRANSFORMATION|TASK_PUT|TASK_POLL): ).*", re.DOTALL)
"""A record's failure in the error of a run, from the stage on."""


def masked_sentence(route: Route, sentence: str, *, known: bool = True) -> str:
    """Return a run's failure without quoted parts of a failing record.

    Of an error that is not *known*, one of ours, nothing is said: it may quote anything.
    """
    if not hidden_anywhere(route.chain):
        return sentence
    return _FAILURE.sub(rf"\g<1>{HIDDEN}", sentence) if known else f"it failed ({HIDDEN}; the log says why)"


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
        wanted=tuple(replace(wanted, leaves=masked.leaves(wanted.leaves)) for wanted in explanation.wanted),
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
        (name, HIDDEN if name in _QUOTING_HEADERS and text is not None else hidden.header(name, text))
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
    keys = [key for key in keys_of(condition) if masked.hides(key)]
    problem = "the route masks it, and this token does not give the right to unmasked"
    if keys:
        raise ConfigError([Mistake(f"where: {key}", problem) for key in keys], what="bad condition")
