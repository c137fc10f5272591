"""Draft of a route made from another configuration: its content, the parts taken over, and the parts left out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError, Mistake, RouteError
from turnout.routes.endpoints import FORMATS
from turnout.routes.route import Route
from turnout.routes.yaml_text import Document
from turnout.secrets import masked_url
from turnout.transforms.base import PACKAGE
from turnout.transforms.config import PredicateSpec, StageSpec
from turnout.transforms.options import LIST, STRING, Option, OptionError
from turnout.transforms.registry import PREDICATE_PACKAGES, UnknownNameError, find_predicate, find_transform

_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="unknown" password="unknown";'
"""Placeholder for a login of Kafka's clients, which has a form of its own."""

_ENVIRONMENT = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_URL = re.compile(r"(?<=url: )\$\{[^{}:]*(?::[^-{}][^{}]*)?\}")
_FROM_FILE = re.compile(r"(userInfo: ['\"]?)?\$\{file:[^{}]*\}")


class Adoption(NamedTuple):
    """Part of the original taken over into the route: its original name, and its path in the route."""

    name: str
    path: str


class Omission(NamedTuple):
    """Part of the original left out of the route: its original name, and the reason."""

    name: str
    why: str


class Loss(Omission):
    """Part of the original without which the route means something else."""

    __slots__ = ()


class Change(Omission):
    """Part of the original taken over in another form: its original name, and what it is now."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A route file that is not written yet.

    Attributes:
        document: its contents, in the order of its keys.
        taken: origins of its parts.
        left: parts that were left out, have another form, or are guesses.
        variables: variables to set where the route runs, as their values are secrets.
        file_variables: those of them that name files.
    """

    document: Mapping[str, object]
    taken: tuple[Adoption, ...]
    left: tuple[Omission, ...]
    variables: tuple[str, ...] = ()
    file_variables: tuple[str, ...] = ()

    @property
    def lossy(self) -> bool:
        """True if something was left out without which the route means something else."""
        return any(isinstance(item, Loss) for item in self.left)

    @staticmethod
    def word(item: Omission) -> str:
        """Return the word by which reports call a part that was left out."""
        return "lost" if isinstance(item, Loss) else "changed" if isinstance(item, Change) else "left"

    def text(self, origin: str) -> str:
        """Return the text of the file, with the parts left out in comments above the route."""
        lines = [f"# Made of {origin}."]
        lines += [f"# {self.word(item)}: {item.name}: {item.why}" for item in self.left]
        return "\n".join([*lines, yaml_of(self.document)])

    def mistakes(self, text: str, file: Path | None = None) -> tuple[Mistake, ...]:
        """Return the mistakes that ``turnout check`` would print for the file once the variables are set."""
        # An existing file is a placeholder for one that is not known yet, and so is a text for what a file will have.
        unset = {name: _JAAS if name.endswith("JAAS_CONFIG") else "unknown" for name in _ENVIRONMENT.findall(text)}
        text = _URL.sub("http://unknown", text)
        text = _FROM_FILE.sub(lambda found: f"{found[1]}unknown:unknown" if found[1] else "unknown", text)
        secret = {name: "unknown" for name in self.variables if name not in unset}
        unset |= {**secret, **dict.fromkeys(self.file_variables, __file__)}
        values = {**unset, **os.environ}
        try:
            Route.parse(text, values, file=file)
        except RouteError as wrong:
            return wrong.mistakes
        return ()


def yaml_of(document: Mapping[str, object]) -> str:
    """YAML in the order of the document."""
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120))


def route_name(text: str) -> str:
    """Return the name of a route that is most like a text.

    >>> route_name("orders to lake!")
    'orders-to-lake'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._") or "route"


SINK: Document = {"format": "nats", "servers": "${NATS_URL:-nats://127.0.0.1:4222}"}
"""Default sink of a draft."""

_SCHEMES = {"nats": "nats", "tls": "nats", "kafka": "kafka"}
_FILES = tuple(name for name in FORMATS if name not in ("nats", "kafka"))


def source_of(address: str) -> Document:
    """Return the ``source`` block of an address.

    >>> source_of("nats://127.0.0.1:4222/ORDERS")
    {'format': 'nats', 'servers': 'nats://127.0.0.1:4222', 'stream': 'ORDERS'}
    >>> source_of("kafka://broker:9092/orders,returns")
    {'format': 'kafka', 'servers': 'broker:9092', 'topics': ['orders', 'returns']}
    >>> source_of("parquet:lake/orders")
    {'format': 'parquet', 'path': 'lake/orders'}

    Raises:
        ConfigError: it is no address, or does not name the streams or topics to read.
    """
    end, path = _end(address, "--from")
    if end["format"] == "nats":
        return {**end, "stream": _needed(path, address, "a stream: nats://host:4222/STREAM")}
    if end["format"] == "kafka":
        topics = _needed(path, address, "topics: kafka://host:9092/topic,topic").split(",")
        return {**end, "topics": topics[0] if len(topics) == 1 else topics}
    return end


def sink_of(address: str) -> Document:
    """Return the ``sink`` block of an address.

    >>> sink_of("nats://127.0.0.1:4222")
    {'format': 'nats', 'servers': 'nats://127.0.0.1:4222'}
    >>> sink_of("kafka://broker:9092")
    {'format': 'kafka', 'servers': 'broker:9092'}

    Raises:
        ConfigError: it is no address.
    """
    end, path = _end(address, "--to")
    if end["format"] == "nats" and path:
        return {**end, "stream": path}
    if end["format"] == "kafka" and path:
        problem = f"found {masked_url(address)!r}, expected brokers alone: a message's topic is its destination"
        raise ConfigError([Mistake("--to", problem)])
    return end


def from_environment(end: Document, variable: str | None = None) -> Document:
    """Return the endpoint with its servers as the default of a variable, so that one file serves several deployments.

    Addresses with a password in them are no defaults: the variable has to be set then.
    """
    if "servers" not in end:
        return end
    name = variable or {"nats": "NATS_URL", "kafka": "KAFKA_SERVERS"}[end["format"]]
    servers = end["servers"]
    default = "" if masked_url(servers) != servers else f":-{servers}"
    return {**end, "servers": f"${{{name}{default}}}"}


def _end(address: str, option: str) -> tuple[Document, str]:
    """Return the options shared by source and sink, and the text after the servers."""
    scheme, colon, rest = address.partition(":")
    if scheme in _FILES and colon and rest:
        return {"format": scheme, "path": rest}, ""
    if scheme not in _SCHEMES or not rest.startswith("//"):
        schemes = (*_SCHEMES, *_FILES)
        examples = "nats://host:4222/STREAM, kafka://host:9092/topic or parquet:folder"
        problem = f"found {masked_url(address)!r}, expected {examples}{did_you_mean(scheme, schemes)}"
        raise ConfigError([Mistake(option, problem)])
    authority, _, path = rest.removeprefix("//").partition("/")
    servers = authority if scheme == "kafka" else f"{scheme}://{authority}"
    return {"format": _SCHEMES[scheme], "servers": servers}, path.strip("/")


def _needed(path: str, address: str, expected: str) -> str:
    if not path:
        raise ConfigError([Mistake("--from", f"found {masked_url(address)!r}, expected {expected}")])
    return path


def named_after(file: Path) -> str:
    """Return the name of a route drafted from a file."""
    return file.name.partition(".")[0]


def stage_of(spec: StageSpec) -> Document:
    """Return one item of ``transforms``; invalid parts stay unchanged, for ``turnout check`` to report."""
    type_ = spec.type or ""
    stage: Document = {"name": spec.alias, "type": type_.removeprefix(PACKAGE)}
    stage |= _typed(spec.options, _options_of_transform(type_))
    predicates = [_predicate(predicate) for predicate in spec.predicates]
    if predicates:
        stage["predicate"] = predicates[0] if len(predicates) == 1 else predicates
    return {**stage, "negate": True} if spec.negate else stage


def _predicate(spec: PredicateSpec) -> Document:
    type_ = spec.type or ""
    simple = type_
    for package in PREDICATE_PACKAGES:
        simple = simple.removeprefix(package)
    block = {"type": simple, **_typed(spec.options, _options_of_predicate(type_))}
    return {**block, "negate": True} if spec.negate else block


def _options_of_transform(type_: str) -> Sequence[Option]:
    try:
        return find_transform(type_).kind.options
    except UnknownNameError:
        return ()


def _options_of_predicate(type_: str) -> Sequence[Option]:
    try:
        return find_predicate(type_).options
    except UnknownNameError:
        return ()


def _typed(texts: Mapping[str, str | None], options: Sequence[Option]) -> Document:
    """Switches and numbers as YAML has them; all other options as the texts that they are."""
    kinds = {option.name: option for option in options if option.kind not in (STRING, LIST)}
    return {name: _value(kinds.get(name), text) for name, text in texts.items() if name != "type"}


def _value(option: Option | None, text: str | None) -> object:
    if option is None:
        return text
    try:
        return option.parse(text)
    except OptionError:
        return text
