"""Readers of existing mappings: server configurations, streams and account claims."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError, Mistake, SubjectError
from turnout.subjects.errors import ConfigSyntaxError, MappingEntryError, MappingTableError, Reason
from turnout.subjects.functions import is_braced, with_account
from turnout.subjects.pattern import FULL, PARTIAL, check_subject
from turnout.subjects.server_config import ConfigBlock, load_config
from turnout.subjects.transform import SubjectTransform, check_mapping, with_placeholders

_BLOCKS = ("mappings", "maps")
GLOBAL = "$G"
"""The account that a server without accounts has, and that top-level mappings belong to."""


def mappings_from_file(path: Path | str, account: str | None = None) -> ConfigBlock:
    """Return the ``mappings`` block of a nats-server configuration file, as `MappingTable.from_config` takes it.

    The file may also be the JWT of an account, or have a stream, see `mappings_of_document`.

    Args:
        path: the file.
        account: account of the mappings; those at the top level (of the account ``$G``) if not given. Of a stream, the
            part.

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
    config = load_document(path)
    mappings = mappings_of_document(config, account)
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


_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\$[0-9]|\{\s*[A-Za-z-]+\s*\(")
_WILDCARD: Final = re.compile(r"\$[+-]?[0-9]+")


def mapping_warnings(mappings: Mapping[str, object]) -> list[str]:
    """Return a warning for each mapping that is valid and probably means something else than was intended.

    They are sources that nats-server before 2.15.3 matches to other subjects, and tokens of destinations with a
    placeholder and other text, which every version publishes as they are written.

    >>> mapping_warnings({"orders.*": "a.$1", "*foo": "bar"})
    ["'*foo' has a token that only starts with *: a plain token, but for nats-server before 2.15.3 any token"]
    >>> mapping_warnings({"orders.*": "a.new-$1"})[0][:73]
    "'a.new-$1' has a placeholder beside other text in the token 'new-$1', whi"
    """
    sources = [
        f"{source!r} has a token that only starts with *: a plain token, but for nats-server before 2.15.3 any token"
        for source in mappings
        if isinstance(source, str) and any(len(token) > 1 and token[0] == PARTIAL for token in source.split("."))
    ]
    return sources + [
        f"{destination!r} has a placeholder beside other text in the token {token!r}, which is published as it is "
        "written: a placeholder is a whole token, between dots"
        for value in mappings.values()
        for destination in _destinations(value)
        for token in destination.split(".")
        if _PLACEHOLDER.search(token) and not is_braced(token) and not _WILDCARD.fullmatch(token)
    ]


def _destinations(value: object) -> list[str]:
    """Return the destinations of a mapping in any of its forms."""
    if isinstance(value, list | tuple):
        return [destination for entry in value for destination in _destinations(entry)]
    if isinstance(value, Mapping):
        return _destinations(value.get("destination") or value.get("dest"))
    return [value] if isinstance(value, str) else []


def _accounts(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the accounts of a configuration, with those whose JWTs it has, by their names in these."""
    parts = {key.lower(): value for key, value in config.items()}
    accounts, preload = parts.get("accounts", {}), parts.get("resolver_preload")
    found: ConfigBlock = dict(accounts) if isinstance(accounts, Mapping) else {}
    for key, token in preload.items() if isinstance(preload, Mapping) else ():
        claim = decode_claim(str(token), f"resolver_preload.{key}")
        name = claim.get("name")
        found[name if isinstance(name, str) and name not in found else key] = {"mappings": mappings_from_claim(claim)}
    return found


def _blocks(holder: Mapping[str, object], path: str) -> ConfigBlock:
    members: ConfigBlock = {}
    for key, value in holder.items():
        if key.lower() in _BLOCKS:
            if not isinstance(value, Mapping):
                raise ConfigError([Mistake(path + key, f"expected a block of mappings, found {value!r}")])
            members.update(value)
    return members


_DECORATED: Final = re.compile(r"-----BEGIN NATS (\w+) JWT-----\s+(\S+)\s")
_TOKEN: Final = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_MAX_BYTES: Final = 16 << 20
_STREAM_PARTS: Final = ("subject_transform", "mirror", "sources", "republish")


def decode_claim(token: str, path: str) -> ConfigBlock:
    """Return the claim of an account's JWT, whose signature is not verified.

    Args:
        token: the JWT, or the text of a file that has it between two lines, as nsc writes it.
        path: its place, for errors.

    Raises:
        ConfigError: it is none of an account.
    """
    decorated = _DECORATED.search(token)
    plain = (decorated[2] if decorated else token).strip()
    try:
        header, payload, _ = plain.split(".")
        parts = [json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (header, payload)]
    except (ValueError, RecursionError):
        raise ConfigError([Mistake(path, f"expected the JWT of an account, found {plain[:40]!r}")]) from None
    claim = parts[1]
    inner = claim.get("nats") if isinstance(claim, dict) else None
    kind = inner.get("type", "account") if isinstance(inner, dict) else None
    if kind != "account" or not isinstance(claim, dict):
        found = f"one of the type {kind}" if kind else "none"
        raise ConfigError([Mistake(path, f"expected the JWT of an account, found {found}")])
    return claim


def load_document(path: Path | str) -> ConfigBlock:
    """Return a file with mappings as a block: a server's configuration, an account's JWT, or JSON or YAML.

    What it is follows from its content; a name that ends with .yaml, .yml or .json only says what is tried first.

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".conf") as file:
    ...     _ = file.write("mappings { a: b }")
    ...     file.flush()
    ...     load_document(file.name)
    {'mappings': {'a': 'b'}}

    Raises:
        ConfigSyntaxError: it is none of them.
        ConfigError: it is the JWT of something else than an account.
        FileNotFoundError: when there is no such file.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if len(text) <= _MAX_BYTES and (_DECORATED.search(text) or _TOKEN.fullmatch(text.strip())):
        return decode_claim(text, str(path))
    is_yaml = path.suffix.lower() in (".yaml", ".yml", ".json") or text.lstrip().startswith(("apiVersion:", "---"))
    if not is_yaml:
        return load_config(path)
    import yaml

    from turnout.base.yaml_values import position_of

    try:
        document, failure = _yaml_document(text), None
    except yaml.YAMLError as problem:
        document, failure = {}, problem
    if failure is None and not any("{" in str(name) or "=" in str(name) for name in document):
        return document
    # A configuration of a server may be YAML by chance: "mappings { a: b }" has one key in it.
    try:
        return load_config(path)
    except ConfigSyntaxError:
        if failure is None:
            return document
        description, line = position_of(failure)
        raise ConfigSyntaxError(description, file=str(path), line=line or 1, text="") from None


def _yaml_document(text: str) -> ConfigBlock:
    """Return the document of a text; of several, those of NACK as a list of Kubernetes."""
    import yaml

    from turnout.base.yaml_values import load_all

    documents = load_all(text)
    found = [one for one in documents if isinstance(one, dict)]
    if len(found) != len(documents) or not found:
        raise yaml.MarkedYAMLError(problem="expected a block of mappings")
    if odd := [name for one in found for name in one if not isinstance(name, str)]:
        raise yaml.MarkedYAMLError(problem=f"a name is text, found {odd[0]!r}: put it in quotes")
    return found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": found}


def mappings_of_document(document: Mapping[str, object], part: str | None = None) -> ConfigBlock:
    """Return the mappings in a document that `load_document` has returned.

    >>> mappings_of_document({"mappings": {"a": "b"}})
    {'a': 'b'}

    Args:
        document: a configuration, a claim, the answer of ``nats stream info --json``, or a Stream of NACK.
        part: account of a configuration; of a stream ``subject_transform``, ``republish``, ``mirror`` or the name of a
            source.

    Raises:
        ConfigError: there is no such part, or several and none is chosen.
    """
    stream = stream_of_document(document)
    if stream is not None:
        return stream_mappings(stream, part)[1]
    if isinstance(document.get("nats"), Mapping):
        known = (None, document.get("name"), document.get("sub"))
        if part not in known:
            problem = f"expected the account {document.get('name')!r} of the JWT, found {part!r}"
            raise ConfigError([Mistake("account", problem)])
        return mappings_from_claim(document)
    return mappings_in(document, part)


def stream_of_document(document: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the configuration of the only stream in a document, as the server has it; None if it has none.

    Raises:
        ConfigError: it has several streams of NACK.
    """
    items = document.get("items") if document.get("kind") == "List" else [document]
    resources = [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and str(item.get("apiVersion", "")).startswith("jetstream.nats.io/")
    ]
    if resources:
        streams = [item for item in resources if item.get("kind") == "Stream" and isinstance(item.get("spec"), Mapping)]
        if len(streams) != 1:
            raise ConfigError([Mistake("kind", f"expected one Stream of NACK, found {len(streams)}")])
        found = _from_kubernetes(streams[0]["spec"])
        return found if isinstance(found, Mapping) else None
    config = document.get("config", document)
    is_stream = isinstance(config, Mapping) and isinstance(config.get("name"), str)
    known = {"subjects", "retention", *_STREAM_PARTS}
    return config if is_stream and isinstance(config, Mapping) and known & config.keys() else None


def _from_kubernetes(value: object) -> object:
    """Return a part of NACK's spec with the names that the server has."""
    if isinstance(value, list):
        return [_from_kubernetes(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    named = {_CAMEL.sub(r"_\1", str(name)).lower(): _from_kubernetes(item) for name, item in value.items()}
    renamed = {"source": "src", "destination": "dest"}
    is_transform = named.keys() & {"source"} and named.keys() & {"dest", "destination"}
    return {renamed.get(name, name): item for name, item in named.items()} if is_transform else named


_CAMEL: Final = re.compile(r"(?<!^)([A-Z])")


def stream_mappings(config: Mapping[str, object], part: str | None = None) -> tuple[str, ConfigBlock]:
    """Return a part of a stream that has subject transforms, and them as mappings.

    Args:
        config: configuration of the stream.
        part: see `mappings_of_document`; the first one that has some if not given.

    Raises:
        MappingTableError: the server would refuse a transform.
        ConfigError: a part has another form, or there is none of that name.

    >>> source = {"name": "EU", "subject_transforms": [{"src": "orders.>", "dest": "eu.>"}]}
    >>> stream_mappings({"name": "ALL", "sources": [source]})
    ('EU', {'orders.>': 'eu.>'})
    """
    found = stream_transforms(config)
    parts: dict[str, tuple[SubjectTransform, ...]] = {
        name: (one,)
        for name, one in (("subject_transform", found.subject_transform), ("republish", found.republish))
        if one is not None
    }
    parts |= {"mirror": found.mirror} if found.mirror else {}
    parts |= {name: several for name, several in found.sources.items() if several}
    order = [name for name in ("subject_transform", "mirror") if name in parts]
    names = list(dict.fromkeys([*order, *(name for name in found.sources if name in parts), *parts]))
    if not names:
        problem = f"the stream {config.get('name')!r} has no subject transform, nor a mirror or source with one"
        raise ConfigError([Mistake("config", problem)])
    if part is not None and part not in parts:
        guess = did_you_mean(part, names)
        problem = f"the stream has no transforms of {part!r}; it has some of {', '.join(names)}{guess}"
        raise ConfigError([Mistake("account", problem)])
    chosen = names[0] if part is None else part
    return chosen, {one.source: one.destination for one in parts[chosen]}


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
