"""Validation of new subscriptions by the original service's rules, one function each.

The model checks validity; these rules check what may be stored.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from turnout.conditions import Condition, Element, Group, Kiwi, Regex, all_leaves, leaves, parse
from turnout.conditions.pattern import ANY, parse_pattern
from turnout.conditions.regex import expression_problem
from turnout.errors import MissingExtraError, SubscriptionInvalidError
from turnout.expressions import Expression, ExpressionError
from turnout.subjects import matches
from turnout.subjects.pattern import (
    Rights,
)
from turnout.subjects.tokens import MAX_BYTES

if TYPE_CHECKING:
    from turnout.subscriptions.lines import PlainLine
    from turnout.subscriptions.model import Subscription


NAMED: Final = "webhook:"
"""Prefix of a destination that is an endpoint of the route by its name."""

MAX_URL: Final = 1_024
"""Longest URL in bytes: as base64 it leaves a subject room for the subscription."""

_ENDPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL_CHARACTERS: Final = re.compile(r"[\x21-\x7e]+")
_HOST_NAME: Final = re.compile(r"(?=.{1,254}$)(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
"""Name that a resolver takes; IPv4 addresses in any form have its characters, too."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_NO_SUBSCRIPTION: Final = "-"


def is_url(destination: str) -> bool:
    """Return True for a destination that is an HTTP URL.

    >>> is_url("https://hooks.example/in"), is_url("sink:orders.new")
    (True, False)
    """
    return destination.startswith(("https://", "http://"))


def is_webhook(destination: str) -> bool:
    """Return True for a URL, or an endpoint by its name."""
    return destination.startswith(("https://", "http://", NAMED))


def webhook_problem(destination: str) -> str | None:
    """Return the reason that no request can be sent to a webhook; None for a valid one.

    >>> webhook_problem("https://hooks.example/in?x=1"), webhook_problem("webhook:billing")
    (None, None)
    >>> webhook_problem("https:///in")
    'is no URL of a webhook: it has no host'
    """
    if destination.startswith(NAMED):
        name = destination.removeprefix(NAMED)
        return None if _ENDPOINT_NAME.fullmatch(name) else f"names no endpoint: found {name!r:.60}"
    problem = _url_problem(destination)
    return None if problem is None else f"is no URL of a webhook: {problem}"


def _url_problem(url: str) -> str | None:
    if len(url) > MAX_URL:
        return f"it has {len(url):,} characters, at most {MAX_URL:,} are taken"
    if not _URL_CHARACTERS.fullmatch(url):
        return "it has spaces, control characters or others beyond ASCII, which a URL has percent-encoded"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        return str(problem)
    if not parts.hostname:
        return "it has no host"
    if not _is_host(parts.hostname, is_literal="[" in parts.netloc):
        return f"its host is no name and no address: found {parts.hostname!r:.60}"
    if port == 0:
        return "no server has the port 0"
    if parts.username is not None or parts.password is not None:
        return "it has a login, which belongs to a named endpoint"
    return "it has a fragment, which is never sent" if parts.fragment else None


def _is_host(host: str, *, is_literal: bool) -> bool:
    if not is_literal:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def delivery_subject(prefix: str, destination: str, subscription: str) -> str:
    """Return the subject of a delivery; ``""`` stands for no subscription.

    >>> delivery_subject("deliver", "webhook:a", "s1")
    'deliver.d2ViaG9vazph.czE'
    """
    return f"{prefix}.{_encoded(destination)}.{_encoded(subscription) if subscription else _NO_SUBSCRIPTION}"


def delivery_address(prefix: str, subject: str) -> tuple[str, str] | None:
    """Return the destination and the subscription of a delivery's subject; None for another subject.

    >>> delivery_address("deliver", "deliver.d2ViaG9vazph.czE")
    ('webhook:a', 's1')
    """
    tokens = subject.removeprefix(f"{prefix}.").split(".")
    if not subject.startswith(f"{prefix}.") or len(tokens) != 2 or not all(map(_TOKEN.fullmatch, tokens)):
        return None
    try:
        return _decoded(tokens[0]), "" if tokens[1] == _NO_SUBSCRIPTION else _decoded(tokens[1])
    except ValueError:
        return None


@lru_cache(100_000)
def _encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decoded(token: str) -> str:
    return urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


FEED = "feed:"
"""Destination of a subscription whose messages are read from its feed, and sent nowhere."""

_SURELY_SHORT = MAX_BYTES // 4
_UNFIT = re.compile("[\\s\x00-\x1f\x7f\ud800-\udfff]")
_PIECE = "[^\\s.*>\x00-\x1f\x7f\ud800-\udfff][^\\s.\x00-\x1f\x7f\ud800-\udfff]*"
_SUBJECT = re.compile(rf"{_PIECE}(?:\.{_PIECE})*")
_SHOWN_CHARACTERS = 80


@lru_cache(maxsize=4_096)
def problem_of(destination: str) -> str | None:
    """Return the reason that no message can be published to a destination; None for a valid one.

    >>> problem_of("deliver.desk.7")
    >>> problem_of("deliver..desk")
    'cannot be published to: an empty token at position 8'
    >>> problem_of("sink:deliver.>")
    "cannot be published to: a token cannot begin with the wildcard '>' (at position 13)"
    """
    if len(destination) > _SURELY_SHORT:
        size = len(destination.encode("utf-8", "replace"))
        if size > MAX_BYTES:
            return f"cannot be published to: it has {size:,} bytes, at most {MAX_BYTES:,} are taken"
    if destination == FEED or (_SUBJECT.fullmatch(destination) and ":" not in destination):
        return None
    if is_url(destination):
        return webhook_problem(destination)
    head, colon, rest = destination.partition(":")
    problem = _problem(destination, 0)
    if problem is None and colon:
        # The part behind a sink's name is a subject of its own.
        problem = _problem(rest, len(head) + 1)
    return None if problem is None else f"cannot be published to: {problem}"


def _problem(subject: str, begun: int) -> str | None:
    if not subject.strip():
        return f"there is no subject behind position {begun}" if begun else "it is blank"
    unfit = _UNFIT.search(subject)
    if unfit is not None:
        return f"no subject can hold {unfit[0]!r} (at position {begun + unfit.start()})"
    for token in subject.split("."):
        if not token:
            return f"an empty token at position {begun}"
        if token[0] in "*>":
            return f"a token cannot begin with the wildcard {token[0]!r} (at position {begun})"
        begun += len(token) + 1
    return None


def describe_destination(destination: str) -> str:
    """Return a destination as errors show it: control characters escaped, and not all of a very long one."""
    if len(destination) <= _SHOWN_CHARACTERS:
        return repr(destination)
    return f"{destination[:_SHOWN_CHARACTERS]!r}… ({len(destination):,} characters)"


def problems_of(subscription: Subscription) -> Iterator[str]:
    """Yield the problems of a subscription's destinations, with their indices."""
    for number, destination in enumerate(subscription.destinations):
        problem = problem_of(destination)
        if problem is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {problem}"


def checked(subscriptions: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the same subscriptions, one after the other: what every store does before it keeps any.

    Raises:
        SubscriptionInvalidError: nothing can be published to a destination; names it and the fault.
    """
    for subscription in subscriptions:
        problems = list(problems_of(subscription))
        if problems:
            raise SubscriptionInvalidError("; ".join(problems))
        yield subscription


def checked_version(id: str, subscription: Subscription) -> Subscription:  # noqa: A002 - the field's own name
    """Return a new version of a subscription under its id: what every store does before an update.

    Raises:
        SubscriptionInvalidError: it has another id, or nothing can be published to a destination.
    """
    if subscription.id not in ("", id):
        raise SubscriptionInvalidError(f"id: expected {id!r}, found {subscription.id!r}: an update keeps the id")
    (version,) = checked([subscription])
    return replace(version, id=id)


def refusals_of(rights: Rights, subscription: Subscription | PlainLine) -> Iterator[str]:
    """Yield the refusal of each destination of a subscription that is not allowed, with its path.

    A destination with a sink's name is checked as a whole, and so is the subject behind the name: a pattern for
    it has the name too (``archive:deliver.>``).
    """
    for number, destination in enumerate(subscription.destinations):
        refusal = rights.refusal(destination) or _refusal_behind_name(rights, destination)
        if refusal is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {refusal}"


def _refusal_behind_name(rights: Rights, destination: str) -> str | None:
    protected = rights.protection(destination.partition(":")[2])
    if protected is None:
        return None
    named = (pattern for pattern in rights.allow or () if pattern.partition(":")[2][:1] not in ("", "*", ">"))
    if any(matches(pattern, destination) for pattern in named):
        return None
    return f"is not allowed: {protected}"


MAX_ID = 256
"""Characters of an id: errors repeat it, and gRPC's trailers have 8 kB for them."""

_TENANT_PREFIX = 65
"""Characters of ``@tenant/`` with the longest name of a tenant."""

MAX_LEAVES = 1_000
"""Leaves of one condition. The original has no bound; a message's verification must have one."""

MAX_NESTING = 40
"""Groups inside groups. Protobuf parsers stop at 100 nested messages, and an answer needs two for each group."""

MAX_PATTERN = 1_024
"""Characters of a leaf's pattern."""

MAX_STARS = 16
"""Stars of a leaf's pattern: each is one more search in a message's value."""

MAX_EXPRESSIONS = 50
"""Regular expressions of one condition, also within elements: each may take 256 KB of memory."""

MAX_DESTINATIONS = 100
"""Destinations of one subscription: a message is sent once to each."""

MAX_TEXT = 65_536
"""Characters of a subscription's texts, all together: id, destinations, metadata, keys and patterns."""


def _destinations(subscription: Subscription) -> Iterator[str]:
    if not subscription.destinations:
        yield "route.destinations: at least one destination is needed"
    if len(subscription.destinations) > MAX_DESTINATIONS:
        count = len(subscription.destinations)
        yield f"route.destinations: {count} destinations, at most {MAX_DESTINATIONS} are taken"
    yield from problems_of(subscription)


def _is_unicode(subscription: Subscription) -> Iterator[str]:
    """Yield a problem for a lone surrogate, which JSON can express, but no store or wire format takes."""
    # Nearly all text is ASCII, which is known without looking at it.
    for text in _texts(subscription):
        if not text.isascii() and _SURROGATE.search(text):
            yield f"{text[:40]!r} has half of a surrogate pair: that is no Unicode text"


def _texts(subscription: Subscription) -> list[str]:
    """Return the subscription's texts, except the condition's."""
    return [
        subscription.id,
        subscription.project,
        *subscription.destinations,
        *subscription.metadata,
        *subscription.metadata.values(),
    ]


_SURROGATE = re.compile("[\ud800-\udfff]")


def _id(subscription: Subscription) -> Iterator[str]:
    id_ = subscription.id
    yield from _id_problems(id_)
    # Those that are stored already can be read and deleted.
    if wrong := _CONTROL.search(id_):
        yield f"id: {id_[:40]!r} has a control character or a line break at {wrong.start()}: no address contains it"
    if _PATH_OF_REST.search(id_):
        yield f"id: {id_[:40]!r} is the path of an operation of the REST interface, or has . or .. as a step"


def _id_problems(id_: str) -> Iterator[str]:
    # To a caller who sees all tenants, a tenant's id has the tenant's name before it.
    limit = MAX_ID + _TENANT_PREFIX if id_.startswith("@") else MAX_ID
    if len(id_) > limit:
        yield f"id: {id_[:40]!r}… has {len(id_)} characters, at most {limit} are taken"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PATH_OF_REST = re.compile(r"\A(conditions/validate|history)\Z|/history\Z|(\A|/)\.\.?(/|\Z)")
"""Ids that no request can name: below ``/v1/subscriptions/`` these are other addresses."""


def check_id(id_: str) -> None:
    """Refuse an id that no subscription may have.

    Raises:
        SubscriptionInvalidError: it is too long; the message has its beginning.
    """
    for problem in _id_problems(id_):
        raise SubscriptionInvalidError(problem)


def _root_is_not_negated(subscription: Subscription) -> Iterator[str]:
    if subscription.condition.negated:
        yield "route.condition: the root cannot be negated (LIM-1): negate something inside a group"


def _size(subscription: Subscription) -> Iterator[str]:
    condition = subscription.condition
    if isinstance(condition, Group) and condition.depth > MAX_NESTING:
        yield f"route.condition: groups nest {condition.depth} deep, at most {MAX_NESTING} are taken"
    count, size = 0, sum(map(len, _texts(subscription)))
    expressions: list[str] = []
    for leaf in leaves(condition):
        count += 1
        size += len(leaf.key)
        if isinstance(leaf, Kiwi):
            size += len(leaf.pattern)
            yield from _pattern(leaf)
        elif isinstance(leaf, Regex):
            size += len(leaf.pattern)
            expressions.append(leaf.pattern)
        elif isinstance(leaf, Element):
            size += len(leaf.where)
            inner = list(all_leaves(parse(leaf.where)))
            count += len(inner) - 1
            expressions += [one.pattern for one in inner if isinstance(one, Regex)]
            yield from (problem for one in inner if isinstance(one, Kiwi) for problem in _pattern(one))
    if count > MAX_LEAVES:
        yield f"route.condition: {count} leaves, at most {MAX_LEAVES} are taken"
    if len(expressions) > MAX_EXPRESSIONS:
        yield f"route.condition: {len(expressions)} regular expressions, at most {MAX_EXPRESSIONS} are taken"
    for pattern in dict.fromkeys(expressions[:MAX_EXPRESSIONS]):
        problem = expression_problem(pattern)
        if problem is not None:
            yield f"route.condition: {problem}"
    if size > MAX_TEXT:
        yield f"{size} characters in all its texts, at most {MAX_TEXT} are taken"


_WILDCARD = re.compile(r"[>#+]")
"""Characters of wildcards that belong to subjects of NATS and topics of MQTT."""


def _pattern(leaf: Kiwi) -> Iterator[str]:
    pattern = leaf.pattern
    if leaf.key in ("subject", "topic") and not leaf.partial and _WILDCARD.search(pattern):
        yield from _subject_wildcards(leaf)
    if len(pattern) > MAX_PATTERN:
        yield f"route.condition: a pattern of {len(pattern)} characters, at most {MAX_PATTERN} are taken"
    # Only where there are many is it worth telling them from escaped ones, which are text.
    if pattern.count("*") > MAX_STARS and (stars := parse_pattern(pattern).count(ANY)) > MAX_STARS:
        yield f"route.condition: {stars} stars in the pattern {pattern[:40]!r}, at most {MAX_STARS} are taken"


def _subject_wildcards(leaf: Kiwi) -> Iterator[str]:
    """Yield a problem for wildcards of NATS or MQTT, which no subject or topic contains."""
    pattern = leaf.pattern
    if pattern == ">" or pattern.endswith(".>"):
        yield (
            f"route.condition: {leaf.key}:{pattern[:80]} compares with the character >, which no subject has: write "
            f"{leaf.key} matches {pattern[:80]}"
        )
    levels = pattern.split("/")
    if "+" in levels or levels[-1] == "#":
        subject = ".".join({"+": "*", "#": ">"}.get(level, level) for level in levels)
        yield (
            f"route.condition: {leaf.key}:{pattern[:80]} has wildcards of MQTT, and compares with their characters: "
            f"write {leaf.key} matches {subject[:80]}"
        )


_VARIABLE = re.compile(r"\$\{[^{}]*\}")


def _delivery(subscription: Subscription) -> Iterator[str]:
    """Yield a problem for a variable in a header of requests: only texts of routes are filled in."""
    for name, value in (subscription.delivery.headers if subscription.delivery else {}).items():
        if (found := _VARIABLE.search(value)) is not None:
            yield (
                f"delivery.headers.{name}: {found[0][:80]} would be sent as it is: variables are filled in in routes "
                "alone, as in the headers of an endpoint of webhooks"
            )


def _project(subscription: Subscription) -> Iterator[str]:
    if subscription.project:
        try:
            Expression(subscription.project).check()
        except (ExpressionError, MissingExtraError) as problem:
            yield f"project: {problem}"


def _groups(subscription: Subscription) -> Iterator[str]:
    for path, group in _nested_groups(subscription.condition, "route.condition"):
        if len(group.children) < 2:
            yield f"{path}: a group needs two children or more, found {len(group.children)}"
        if len(set(group.children)) == len(group.children):
            continue
        first_numbers: dict[Condition, int] = {}
        for number, child in enumerate(group.children):
            first = first_numbers.setdefault(child, number)
            if first != number:
                yield f"{path}.group[{number}]: the same as group[{first}]"


def _root_is_not_all_negations(subscription: Subscription) -> Iterator[str]:
    root = subscription.condition
    if isinstance(root, Group) and all(child.negated for child in root.children):
        yield "route.condition: every child of the root is negated; at least one has to be a proposition"


def _nested_groups(condition: Condition, path: str) -> Iterator[tuple[str, Group]]:
    """Yield every group with its path as its author would name it."""
    if isinstance(condition, Group):
        yield path, condition
        for number, child in enumerate(condition.children):
            # Imports check millions of leaves, which need no path.
            if isinstance(child, Group):
                yield from _nested_groups(child, f"{path}.group[{number}]")


RULES: tuple[Callable[[Subscription], Iterator[str]], ...] = (
    _id,
    _destinations,
    _is_unicode,
    _root_is_not_negated,
    _size,
    _delivery,
    _project,
    _groups,
    _root_is_not_all_negations,
)


def check(subscription: Subscription) -> None:
    """Refuse a subscription that breaks a rule.

    Raises:
        SubscriptionInvalidError: the message has every broken rule, each with its place.
    """
    if is_plain(subscription):
        return
    problems = [problem for rule in RULES for problem in rule(subscription)]
    if problems:
        raise SubscriptionInvalidError("; ".join(problems))


PLAIN_TEXT = 256
"""Characters of all texts of a plain subscription: no more than any of them may have."""


def is_plain(subscription: Subscription) -> bool:
    """Return True for a small subscription of patterns that surely keeps all rules, as most do that are imported.

    False says nothing: the rules decide.
    """
    root = subscription.condition
    children = root.children if type(root) is Group else (root, None)
    if root.negated or len(children) < 2 or subscription.project or subscription.delivery is not None:
        return False
    texts = _texts(subscription)
    promised = False
    for leaf in children:
        if type(leaf) is Kiwi:
            texts += leaf.key, leaf.pattern
            promised = promised or not leaf.negated
        elif leaf is not None:
            return False
    return (
        promised
        and len(children) <= MAX_LEAVES
        and len(set(children)) == len(children)
        and are_plain(texts, subscription.destinations)
    )


def are_plain(texts: Sequence[str], destinations: Collection[str]) -> bool:
    """Return True if all texts of a subscription, its id first, and its destinations keep the rules for certain."""
    text = "".join(texts)
    return (
        len(text) <= PLAIN_TEXT
        and text.isascii()
        and text.isprintable()
        and not _PATH_OF_REST.search(texts[0])
        and not _WILDCARD.search(text)
        and text.count("*") <= MAX_STARS
        and 0 < len(destinations) <= MAX_DESTINATIONS
        and not any(map(problem_of, destinations))
    )
