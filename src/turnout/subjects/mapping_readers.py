"""Readers of existing mappings: server configurations, streams and account claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError, Mistake, SubjectError
from turnout.subjects.errors import MappingEntryError, MappingTableError, Reason
from turnout.subjects.functions import with_account
from turnout.subjects.server_config import ConfigBlock, load_config
from turnout.subjects.tokens import FULL, PARTIAL, check_subject
from turnout.subjects.transform import SubjectTransform, check_mapping, with_placeholders

_BLOCKS = ("mappings", "maps")
GLOBAL = "$G"
"""The account that a server without accounts has, and that top-level mappings belong to."""


def mappings_from_file(path: Path | str, account: str | None = None) -> ConfigBlock:
    """Return the ``mappings`` block of a nats-server configuration file, as `MappingTable.from_config` takes it.

    Args:
        path: the file.
        account: account of the mappings; those at the top level (of the account ``$G``) if not given.

    Raises:
        ConfigSyntaxError: when the file cannot be read as a configuration.
        ConfigError: when there is no such account, a block is not one, or there are no mappings where they are looked
            for.
        FileNotFoundError: when there is no such file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "nats-server.conf"
    ...     _ = file.write_text('accounts { SHOP { mappings { "orders.*": "eu.orders.$1" } } }')
    ...     mappings_from_file(file, account="SHOP")
    ...
    {'orders.*': 'eu.orders.$1'}
    """
    config = load_config(path)
    mappings = mappings_in(config, account)
    if not mappings:
        raise ConfigError([Mistake("", f"{path} has no mappings {_elsewhere(config, account)}")])
    return mappings


def _elsewhere(config: Mapping[str, object], account: str | None) -> str:
    """Describe the searched location for an error message, and list the accounts with mappings."""
    holders = [name for name in accounts_with_mappings(config) if name != GLOBAL]
    if not holders:
        return "in it" if account is None else f"in the account {account!r}, nor in any other"
    holder_text = "at its top" if account in (None, GLOBAL) else f"in the account {account!r}"
    return f"{holder_text}; these accounts have some: {', '.join(holders)}"


def accounts_with_mappings(config: Mapping[str, object]) -> list[str]:
    """Return the accounts with mappings in a parsed configuration; ``$G`` means the top level.

    Raises:
        ConfigError: when a block of mappings is none.
    """
    top = [GLOBAL] if _blocks(config, "") else []
    holders = {name: account_of(config, name) for name in _accounts(config)}
    return [*top, *(name for name, holder in holders.items() if _blocks(holder, f"accounts.{name}."))]


def account_of(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the block of an account in a parsed configuration; empty if the account is missing."""
    holder = _accounts(config).get(name)
    return holder if isinstance(holder, Mapping) else {}


def mappings_in(config: Mapping[str, object], account: str | None = None) -> ConfigBlock:
    """Return the ``mappings`` block of a parsed configuration; empty if it is missing.

    Raises:
        ConfigError: when there is no such account, or a block is not one.

    >>> config = {"accounts": {"EU": {"mappings": {"orders": "eu.orders"}}}}
    >>> mappings_in(config, "EU"), mappings_in(config)
    ({'orders': 'eu.orders'}, {})
    """
    if account is None or account == GLOBAL:
        return _of_account(_blocks(config, ""), GLOBAL)
    accounts = _accounts(config)
    holder = accounts.get(account)
    if not isinstance(holder, Mapping):
        names = ", ".join(accounts) or "none"
        problem = f"there is no account {account!r}; there are: {names}{did_you_mean(account, accounts)}"
        raise ConfigError([Mistake("accounts", problem)])
    return _of_account(_blocks(holder, f"accounts.{account}."), account)


def _of_account(mappings: ConfigBlock, account: str) -> ConfigBlock:
    """Return mappings with the functions of their account resolved."""

    def resolved(value: object) -> object:
        if isinstance(value, str):
            return with_account(value, account)
        if isinstance(value, list | tuple):
            return [resolved(item) for item in value]
        if isinstance(value, Mapping):
            return {name: resolved(item) for name, item in value.items()}
        return value

    return {with_account(source, account): resolved(value) for source, value in mappings.items()}


def older_meanings(mappings: Mapping[str, object]) -> list[str]:
    """Return a warning for each source that nats-server before 2.15.3 matches to other subjects.

    >>> older_meanings({"orders.*": "a.$1", "*foo": "bar"})
    ["'*foo' has a token that only starts with *: a plain token, but for nats-server before 2.15.3 any token"]
    """
    return [
        f"{source!r} has a token that only starts with *: a plain token, but for nats-server before 2.15.3 any token"
        for source in mappings
        if isinstance(source, str) and any(len(token) > 1 and token[0] == PARTIAL for token in source.split("."))
    ]


def _accounts(config: Mapping[str, object]) -> Mapping[str, object]:
    accounts = next((value for key, value in config.items() if key.lower() == "accounts"), {})
    return accounts if isinstance(accounts, Mapping) else {}


def _blocks(holder: Mapping[str, object], path: str) -> ConfigBlock:
    members: ConfigBlock = {}
    for key, value in holder.items():
        if key.lower() in _BLOCKS:
            if not isinstance(value, Mapping):
                raise ConfigError([Mistake(path + key, f"expected a block of mappings, found {value!r}")])
            members.update(value)
    return members


def mappings_from_claim(claim: Mapping[str, object]) -> ConfigBlock:
    """Return the ``mappings`` of a decoded account claim (JWT), as `MappingTable.from_config` takes them.

    Args:
        claim: the claim's JSON, or its ``nats`` part. In a claim a weight that is 0 or absent means 100.

    Raises:
        ConfigError: when the claim has another form.

    >>> mappings_from_claim({"nats": {"mappings": {"orders.*": [{"subject": "eu.orders.$1"}]}}})
    {'orders.*': [{'destination': 'eu.orders.$1', 'weight': 100, 'cluster': ''}]}
    """
    inner = claim.get("nats", claim)
    mappings = inner.get("mappings") if isinstance(inner, Mapping) else None
    if mappings is None:
        return {}
    if not isinstance(mappings, Mapping):
        raise ConfigError([Mistake("nats.mappings", f"expected an object, found {mappings!r}")])
    block: ConfigBlock = {
        source: [_from_claim(source, entry) for entry in _list(source, destinations)]
        for source, destinations in mappings.items()
    }
    # An account of a JWT has its public key as its name.
    account = claim.get("sub")
    return _of_account(block, account) if isinstance(account, str) and account else block


def _list(source: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise ConfigError([Mistake(f'nats.mappings."{source}"', f"expected a list of destinations, found {value!r}")])
    return value


def _from_claim(source: str, entry: object) -> ConfigBlock:
    if not isinstance(entry, Mapping) or set(entry) - {"subject", "weight", "cluster"}:
        problem = f"expected an object with subject, weight and cluster, found {entry!r}"
        raise ConfigError([Mistake(f'nats.mappings."{source}"', problem)])
    return {
        "destination": entry.get("subject", ""),
        "weight": entry.get("weight") or 100,
        "cluster": entry.get("cluster", ""),
    }


@dataclass(frozen=True, slots=True)
class StreamTransforms:
    """Subject transforms of a JetStream stream; None and empty where it has none.

    Attributes:
        subject_transform: on messages as they are stored. Other subjects are kept.
        republish: on stored messages as they are sent out again. Other messages are not republished.
        mirror: on messages from the mirrored stream.
        sources: by the name of the source stream, on messages from it. What none of them matches is not
            taken from that stream at all. A ``filter_subject`` is a transform that changes nothing.

    >>> source = {"name": "EU", "subject_transforms": [{"src": "orders.>", "dest": "eu.>"}]}
    >>> (transform,) = stream_transforms({"name": "ALL", "sources": [source]}).sources["EU"]
    >>> transform.apply("orders.17")
    'eu.17'
    """

    subject_transform: SubjectTransform | None = None
    republish: SubjectTransform | None = None
    mirror: tuple[SubjectTransform, ...] = ()
    sources: Mapping[str, tuple[SubjectTransform, ...]] = field(default_factory=dict)


def stream_transforms(config: Mapping[str, object]) -> StreamTransforms:
    """Return the transforms of a stream's configuration (the JSON of ``$JS.API.STREAM.CREATE`` or ``INFO``).

    Raises:
        MappingTableError: with one error for each part that the server would refuse (10155, 10156).
        ConfigError: when a part has another form.

    >>> config = {"name": "S", "subject_transform": {"src": "in.*", "dest": "kept.{{wildcard(1)}}"}}
    >>> stream_transforms(config).subject_transform.apply("in.a")
    'kept.a'
    """
    config = _object("config", config.get("config", config))
    reader = _TransformReader()
    subject_transform = reader.one("subject_transform", config.get("subject_transform"))
    republish = reader.one("republish", config.get("republish"))
    mirror = reader.several("mirror", _object("mirror", config.get("mirror") or {}))
    sources: dict[str, tuple[SubjectTransform, ...]] = {}
    for number, entry in enumerate(_items("sources", config.get("sources"))):
        source = _object(f"sources[{number}]", entry)
        name = _text_at(f"sources[{number}].name", source.get("name"))
        # A stream may be a source several times, each with filters of its own.
        sources[name] = sources.get(name, ()) + reader.several(f"sources[{number}]", source)
    if reader.errors:
        raise MappingTableError(reader.errors)
    return StreamTransforms(subject_transform, republish, mirror, sources)


class _TransformReader:
    """Reads transforms and collects an error for each that the server would refuse."""

    def __init__(self) -> None:
        self.errors: list[MappingEntryError] = []

    def one(self, path: str, value: object) -> SubjectTransform | None:
        """Parse the transform of an object with src and dest; None if it is missing or invalid."""
        if value is None:
            return None
        holder = _object(path, value, "an object with src and dest")
        source = _text_at(f"{path}.src", holder.get("src")) or FULL
        destination = _text_at(f"{path}.dest", holder.get("dest")) or with_placeholders(source)
        try:
            check_subject(source)
        except SubjectError as failure:
            self.errors.append(MappingEntryError(Reason.BAD_SOURCE, f"{path}: {failure}", cause=failure, source=source))
            return None
        try:
            return check_mapping(source, destination)
        except SubjectError as failure:
            self.errors.append(
                MappingEntryError(Reason.BAD_DESTINATION, f"{path}: {failure}", cause=failure, source=source)
            )
            return None

    def several(self, path: str, holder: Mapping[str, object]) -> tuple[SubjectTransform, ...]:
        """Return the transforms of a source or mirror; its filter alone is a transform that changes nothing."""
        entries = _items(f"{path}.subject_transforms", holder.get("subject_transforms"))
        if not entries and holder.get("filter_subject"):
            entries = [{"src": holder["filter_subject"]}]
        transforms = [self.one(f"{path}.subject_transforms[{n}]", entry) for n, entry in enumerate(entries)]
        return tuple(transform for transform in transforms if transform is not None)


def _object(path: str, value: object, expected: str = "an object") -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError([Mistake(path, f"expected {expected}, found {value!r}")])
    return value


def _items(path: str, value: object) -> list[object]:
    if not isinstance(value, list | tuple | None):
        raise ConfigError([Mistake(path, f"expected a list, found {value!r}")])
    return list(value or ())


def _text_at(path: str, value: object) -> str:
    if not isinstance(value, str | None):
        raise ConfigError([Mistake(path, f"expected a text, found {value!r}")])
    return value or ""
