"""Validation of new subscriptions by the original service's rules, one function each.

The model checks validity; these rules check what may be stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from turnout.conditions import Condition, Element, Group, Kiwi, Regex, all_leaves, leaves, parse
from turnout.conditions.pattern import ANY, parse_pattern
from turnout.conditions.regex import expression_problem
from turnout.errors import MissingExtraError, SubscriptionInvalidError
from turnout.expressions import Expression, ExpressionError
from turnout.subscriptions.destinations import describe_destination, problem_of, problems_of, unfilled

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription


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
    for number, destination in enumerate(subscription.destinations):
        if (problem := unfilled(destination)) is not None:
            yield f"route.destinations[{number}]: {describe_destination(destination)} {problem}"


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
        and not any(map(unfilled, destinations))
    )
