"""Every error that turnout raises on purpose.

::

    TurnoutError
    ├── SubjectError(ValueError)         .text .position      bad subject, pattern or mapping function
    ├── ConditionError(ValueError)       .text .position      a condition or pattern that cannot be read
    ├── ConfigError(ValueError)          .mistakes            a chain, setting or option that cannot be built
    ├── RouteError(ValueError)           .mistakes            a route file, every mistake with its path
    ├── NotCompilableError               .node                valid, but Spark cannot say it
    ├── RecordError                      .exception           one record that cannot be handled
    ├── SubscriptionError
    │   ├── SubscriptionNotFoundError(LookupError)   .id
    │   ├── SubscriptionExistsError                  .id
    │   ├── SubscriptionConflictError                .id .expected .found
    │   ├── SubscriptionInvalidError(ValueError)
    │   ├── QuotaExceededError                       .quota .limit .used
    │   ├── HistoryForgottenError(LookupError)       the store does not know so far back
    │   └── StoreUnavailableError                    a retry may help
    ├── StreamError                      .code .err_code      JetStream said no
    ├── ConnectionLostError(ConnectionError)                  the server is away
    ├── RunError                                              a route that was stopped by a failure
    └── MissingExtraError(ImportError)   .extra               an optional dependency is not installed

Packages refine these in their own ``errors`` module (``turnout.subjects.errors`` has one class per
reason of nats-server, ``turnout.nats.protocol.errors`` one per answer of JetStream) but never start a second tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from turnout.base.terminal import plural
from turnout.secrets import masked_url

__all__ = [
    "ConditionError",
    "ConfigError",
    "ConnectionLostError",
    "HistoryForgottenError",
    "MissingExtraError",
    "Mistake",
    "NotCompilableError",
    "QuotaExceededError",
    "RecordError",
    "RouteError",
    "RunError",
    "StoreUnavailableError",
    "StreamError",
    "SubjectError",
    "SubscriptionConflictError",
    "SubscriptionError",
    "SubscriptionExistsError",
    "SubscriptionInvalidError",
    "SubscriptionNotFoundError",
    "TurnoutError",
]

_MAX_MESSAGE_CHARACTERS: Final = 1000


def message_of(failure: BaseException) -> str:
    """Return the message of an error as it is shown: without logins, and of bounded length."""
    text = masked_url(str(failure))
    return text if isinstance(failure, _MistakesError) else shortened(text, _MAX_MESSAGE_CHARACTERS)


def chain_of(failure: BaseException | None, *, contexts: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes, each once: one can be raised from itself.

    Args:
        failure: the error.
        contexts: continue with the error that was handled at the time, where one has no cause.
    """
    seen: set[int] = set()
    while failure is not None and id(failure) not in seen:
        seen.add(id(failure))
        yield failure
        failure = failure.__cause__ or (failure.__context__ if contexts else None)


class TurnoutError(Exception):
    """The root: catch this to catch everything that turnout raises on purpose.

    >>> from turnout.conditions import parse
    >>> try:
    ...     parse("city:")
    ... except TurnoutError as error:
    ...     type(error).__name__, isinstance(error, ValueError)
    ...
    ('ConditionError', True)
    """


class SubjectError(TurnoutError, ValueError):
    """Raised when a subject, a wildcard filter or a mapping function cannot be read.

    Attributes:
        text: the whole text that was given.
        position: position of the error in the text, in characters from 0; None if it is the text as a whole.

    >>> from turnout.subjects import SubjectTransform
    >>> try:
    ...     SubjectTransform.parse("orders.*", "eu.{{wildcard(x)}}")
    ... except SubjectError as error:
    ...     error.text, error.position
    ...
    ('eu.{{wildcard(x)}}', 3)
    """

    def __init__(self, message: str, *, text: str, position: int | None = None) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class ConditionError(TurnoutError, ValueError):
    """Raised when a condition, or a pattern inside one, cannot be read.

    Attributes:
        text: the pattern or the condition's text.
        position: position of the error, in characters from 0; None if it is the text as a whole.

    >>> from turnout.conditions import parse
    >>> try:
    ...     parse("city:Oulu AND")
    ... except ConditionError as error:
    ...     error.text, error.position
    ...
    ('city:Oulu AND', 13)
    """

    def __init__(self, message: str, *, text: str = "", position: int | None = None) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class _MistakesError(TurnoutError, ValueError):
    """Base of ConfigError and RouteError: one message that lists every mistake."""

    def __init__(self, mistakes: Iterable[Mistake], *, what: str) -> None:
        found = tuple(mistakes)
        count = len(found)
        if count > MOST_MISTAKES:
            more = f"and {count - MOST_MISTAKES:,} more mistakes"
            found = (*found[:MOST_MISTAKES], replace(found[MOST_MISTAKES], path="", problem=more, line=None))
        self.mistakes: tuple[Mistake, ...] = found
        head = f"{what}: {plural(count, 'mistake')}"
        super().__init__("\n".join([head, *(f"  {mistake}" for mistake in self.mistakes)]))


class ConfigError(_MistakesError):
    """Raised when a chain, an option or a setting cannot be built; lists every mistake.

    >>> raise ConfigError([Mistake("history", "found 65, expected 1 to 64"), Mistake("bucket", "is missing")])
    Traceback (most recent call last):
        ...
    turnout.errors.ConfigError: bad configuration: 2 mistakes
      history: found 65, expected 1 to 64
      bucket: is missing
    """

    def __init__(self, mistakes: Iterable[Mistake], *, what: str = "bad configuration") -> None:
        super().__init__(mistakes, what=what)


class RouteError(_MistakesError):
    """Raised when a route file is wrong; lists every mistake with its path in the file.

    >>> from turnout import Route
    >>> Route.parse("name: 5")
    Traceback (most recent call last):
        ...
    turnout.errors.RouteError: the route cannot be used: 2 mistakes
      source: is required and missing
      name: found 5, expected text (line 1)
    """

    def __init__(self, mistakes: Iterable[Mistake], *, what: str = "bad route") -> None:
        super().__init__(mistakes, what=what)


class NotCompilableError(TurnoutError):
    """Raised when something valid has no Spark form.

    Attributes:
        node: the thing that has none.

    >>> str(NotCompilableError("random()", "columns that identify a record are needed"))
    "'random()' has no Spark form: columns that identify a record are needed"
    """

    def __init__(self, node: object, reason: str) -> None:
        super().__init__(f"{node!r} has no Spark form: {reason}")
        self.node = node


class RecordError(TurnoutError):
    """Raised when a codec, a predicate or a transform cannot handle a record; nothing but that record is concerned.

    Attributes:
        exception: the Java class that Kafka Connect would have thrown, for error headers and logs.

    >>> error = RecordError("Field does not exist: city")
    >>> str(error), error.exception
    ('Field does not exist: city', 'org.apache.kafka.connect.errors.DataException')
    """

    def __init__(self, message: str, exception: str = "org.apache.kafka.connect.errors.DataException") -> None:
        super().__init__(message)
        self.exception = exception


class SubscriptionError(TurnoutError):
    """Raised when stored subscriptions cannot be read or changed.

    >>> from turnout.subscriptions import open_store
    >>> try:
    ...     open_store("memory://none").delete("unknown")
    ... except SubscriptionError as error:
    ...     type(error).__name__
    ...
    'SubscriptionNotFoundError'
    """


class SubscriptionNotFoundError(SubscriptionError, LookupError):
    """Raised when no subscription has the requested id.

    >>> from turnout.subscriptions import open_store
    >>> open_store("memory://empty").read("unknown")
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionNotFoundError: no subscription has the id 'unknown'
    """

    def __init__(self, id: str, hint: str = "") -> None:
        super().__init__(f"no subscription has the id {id!r}{hint}")
        self.id = id


class SubscriptionExistsError(SubscriptionError):
    """Raised when a subscription with the same id is stored already.

    >>> from turnout.conditions import parse
    >>> from turnout.subscriptions import Subscription, open_store
    >>> open_store("memory://twice").create_many(2 * [Subscription(["d"], parse("a:1"), id="one")])
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionExistsError: a subscription with the id 'one' exists already
    """

    def __init__(self, id: str) -> None:
        super().__init__(f"a subscription with the id {id!r} exists already")
        self.id = id


class SubscriptionConflictError(SubscriptionError):
    """Raised when an update expects another version of a subscription than there is; nothing was changed.

    Attributes:
        expected: revision that the caller had read.
        found: revision of the version that is stored.

    >>> from turnout.subscriptions import Subscription, open_store
    >>> store = open_store("memory://conflict")
    >>> id_ = store.create(Subscription(["d"], "a:1", id="one"))
    >>> store.update("one", Subscription(["e"], "a:2"), expected_revision=7)
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionConflictError: 'one' is at revision 1, expected revision 7: read it again
    """

    def __init__(self, id: str, expected: int, found: int) -> None:
        super().__init__(f"{id!r} is at revision {found}, expected revision {expected}: read it again")
        self.id = id
        self.expected = expected
        self.found = found


class SubscriptionInvalidError(SubscriptionError, ValueError):
    """Raised when a subscription breaks a rule of the service; the message names the rule and the place.

    >>> from turnout.conditions import exists
    >>> from turnout.subscriptions import Subscription
    >>> from turnout.subscriptions.validation import check
    >>> check(Subscription([], exists("city")))
    Traceback (most recent call last):
        ...
    turnout.errors.SubscriptionInvalidError: route.destinations: at least one destination is needed
    """


class QuotaExceededError(SubscriptionError):
    """Raised when a tenant's subscriptions would exceed a quota; nothing was changed.

    Attributes:
        quota: its name.
        limit: its value.
        used: the tenant's use after the change.

    >>> str(QuotaExceededError("leaves", 100, 103))
    'the quota of leaves is 100, and 103 would be used'
    """

    def __init__(self, quota: str, limit: int, used: int) -> None:
        super().__init__(f"the quota of {quota} is {limit}, and {used} would be used")
        self.quota = quota
        self.limit = limit
        self.used = used

    def __reduce__(self) -> tuple[type[QuotaExceededError], tuple[str, int, int]]:
        return type(self), (self.quota, self.limit, self.used)


class HistoryForgottenError(SubscriptionError, LookupError):
    """Raised when a store no longer has its content of a requested revision or time.

    >>> from turnout.subscriptions import open_store
    >>> try:
    ...     open_store("memory://short").as_of(17)
    ... except HistoryForgottenError as error:
    ...     str(error).partition(":")[2]
    ' it remembers revisions 0 to 0'
    """


class StoreUnavailableError(SubscriptionError):
    """Raised when the store cannot be reached or is locked; the same call may work later."""


class StreamError(TurnoutError):
    """Raised when JetStream returns an error; the requested operation was not done.

    Attributes:
        code: the HTTP-like code (404), 0 if there is none.
        err_code: JetStream's own code (10059), 0 if there is none.

    >>> error = StreamError("stream not found", code=404, err_code=10059)
    >>> str(error), error.code, error.err_code
    ('stream not found', 404, 10059)
    """

    def __init__(self, message: str, *, code: int = 0, err_code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.err_code = err_code


class ConnectionLostError(TurnoutError, ConnectionError):
    """Raised when a server cannot be reached, or is lost and not available again in time.

    >>> isinstance(ConnectionLostError("the connection is closed"), ConnectionError)
    True
    """


class RunError(TurnoutError):
    """Raised when a running route stops because of a failure; delivered messages stay delivered.

    >>> from turnout.engine import Program
    >>> from turnout.engine.sample_records import SampleRecord, record_batch
    >>> from turnout.routes import Route
    >>> text = '{name: r, value: {format: json}, source: {format: nats, servers: "nats://a", stream: S}, sink: %s}'
    >>> route = Route.parse(text % '{format: nats, servers: "nats://a"}')
    >>> try:
    ...     record = SampleRecord.of({"topic": "a", "offset": 8, "value": "{"}, stream="S")
    ...     Program.of(route).run(record_batch([record]))
    ... except RunError as error:
    ...     str(error).split(": ")[:2]
    ...
    ['topic a, partition 0, offset 8', 'VALUE_CONVERTER']
    """


class MissingExtraError(TurnoutError, ImportError):
    r"""Raised when an optional dependency is not installed; the message names the cure.

    >>> str(MissingExtraError("mongo", "pymongo"))
    '\'pymongo\' is not installed: pip install "turnout[mongo]"'
    """

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f'{module!r} is not installed: pip install "turnout[{extra}]"')
        self.extra = extra


MOST_MISTAKES: Final = 50
"""Mistakes that one error lists; a file with thousands of them is wrong as a whole."""
_MAX_VALUE_CHARACTERS: Final = 500
_MAX_PATH_CHARACTERS: Final = 200


def shortened(text: str, most: int = _MAX_VALUE_CHARACTERS) -> str:
    """Return a text of *most* characters at most: of a longer one the beginning and the end, with logins masked.

    >>> shortened("found '" + "x" * 5000 + "', expected a number", 60)
    "found 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx [...] xpected a number"
    """
    if len(text) <= most:
        return text
    # Half a login could not be found again.
    text = masked_url(text)
    mark = " [...] "
    end = most // 3 - len(mark) + 3
    return text if len(text) <= most else f"{text[: most - end - len(mark)]}{mark}{text[-end:]}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Mistake in a configuration.

    Attributes:
        path: the place, as its author would name it: ``transforms.late.type`` or ``sink.servers[0]``.
        problem: the fault, with the value found and the expected form.
        line: the line of the file, from 1, where one is known.

    >>> str(Mistake("sink.servers[0]", "found 'nats', expected a URL", line=7))
    "sink.servers[0]: found 'nats', expected a URL (line 7)"
    """

    path: str
    problem: str
    line: int | None = None

    def __str__(self) -> str:
        path = shortened(self.path, _MAX_PATH_CHARACTERS) or "(the whole)"
        return f"{path}: {shortened(self.problem)}" + (f" (line {self.line})" if self.line else "")

    def shortened(self) -> Self:
        """Return the same with a path and a problem of bounded length."""
        return replace(self, path=shortened(self.path, _MAX_PATH_CHARACTERS), problem=shortened(self.problem))
