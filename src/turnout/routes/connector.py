"""Properties of a connector, from a file of Connect or its relatives or inline, and those that a route ignores.

Beside Connect's own JSON and properties these are the resources of Strimzi (KafkaConnector, KafkaMirrorMaker2), and the
properties of Debezium Server and of MirrorMaker; all are read as the properties that Connect would have.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import yaml

from turnout.base.terminal import did_you_mean, nearest
from turnout.base.untrusted import is_text
from turnout.base.yaml_values import load_all, position_of
from turnout.errors import ConfigError, Mistake, shortened
from turnout.routes.variables import Variables, properties
from turnout.transforms.config import OPTIONS as POLICY_OPTIONS
from turnout.transforms.java.values import split_list
from turnout.transforms.options import option_text

_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_LISTS = ("transforms", "predicates")
_KNOWN = (*_LISTS, *_CONVERTERS, *(option.name for option in POLICY_OPTIONS))
_MAX_EXAMINED = 200
"""Names that nothing reads, for which a guess is made."""
_ALIKE = 0.85
"""A name so much like one that is known is taken for a slip, also in a file that holds what others read."""

DEBEZIUM_SERVER: Final = "debezium."
"""Prefix of Debezium Server's properties."""

MIRROR: Final = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
"""Class of the connector by which MirrorMaker copies topics."""

_JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_DEBEZIUM_FORMATS = {
    "json": _JSON_CONVERTER,
    "jsonbytearray": _JSON_CONVERTER,
    "avro": "io.confluent.connect.avro.AvroConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "cloudevents": "io.debezium.converters.CloudEventsConverter",
    "simplestring": "org.apache.kafka.connect.storage.StringConverter",
    "binary": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
"""Converter by the name that ``debezium.format.value`` gives it."""

_QUARKUS = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.]*):([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Connector:
    """The properties of one connector.

    Attributes:
        properties: all of them, as text.
        file: their file; None if in the route itself.
        name: the connector's, where the file says it.
        origins: the names that properties have in the file, where these are not Connect's.
    """

    properties: Mapping[str, str | None]
    file: Path | None = None
    name: str | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def in_place(cls, block: Mapping[str, object]) -> Connector:
        """Return the properties of a block of a route."""
        return cls({str(name): option_text(value) for name, value in block.items()})

    @classmethod
    def read(cls, file: Path) -> Connector:
        """Return the properties of a ``.json`` or a ``.properties`` file that a route takes its transforms from.

        Raises:
            ConfigError: the file is neither, a name is in it twice, or it has no transforms.
            OSError: it cannot be read.
        """
        connector = cls.load(file)
        if not connector.aliases("transforms"):
            guess = nearest("transforms", connector.properties, _ALIKE)
            hint = f'; did you mean "transforms" by {guess!r}?' if guess and guess != "transforms" else ""
            problem = f"{file} defines no transforms: expected a list of aliases under the name 'transforms'{hint}"
            raise ConfigError([Mistake("", problem)])
        return connector

    @classmethod
    def load(cls, file: Path, name: str | None = None) -> Connector:
        """Return the properties of a connector of a file, with transforms or without.

        Args:
            file: a file with connectors.
            name: which of them; not needed for the only one.

        Raises:
            ConfigError: the file has none, a name is in it twice, or which connector is meant is not clear.
            OSError: it cannot be read.
        """
        found = _connectors_in(file)
        named = [connector for connector in found if name is None or connector.name == name]
        if len(named) == 1:
            return named[0]
        names = shortened(", ".join(sorted(connector.name or "without a name" for connector in found)))
        if name is not None:
            problem = f"{file} has no connector {name!r}{did_you_mean(name, [one.name or '' for one in found])}"
            raise ConfigError([Mistake("", f"{problem} (it has {names or 'none'})")])
        raise ConfigError(
            [Mistake("", f"{file} has {len(found)} connectors ({names}): choose one by its name, --connector NAME")]
        )

    def filled(self, variables: Variables) -> tuple[Connector, list[Mistake]]:
        """Return the connector with the variables of its used properties filled in, and a warning for each literal."""
        unused = set(self._unused())
        used = {name: text for name, text in self.properties.items() if name not in unused}
        properties, warnings = variables.of_connector(used)
        return replace(self, properties={**self.properties, **properties}), warnings

    def aliases(self, kind: str) -> list[str]:
        """Return the names listed in ``transforms`` or ``predicates``."""
        return [alias for alias in split_list(self.properties.get(kind) or "") if alias]

    def mistakes(self) -> Iterator[Mistake]:
        """Names that nothing reads and that are slips of ones that are read; in a route's own block all of them."""
        aliases = {kind: self.aliases(kind) for kind in _LISTS}
        for index, name in enumerate(self._unused()):
            near = nearest(name, _KNOWN, _ALIKE) if index < _MAX_EXAMINED else None
            kind, alias = self._unlisted(name)
            if alias and f"{kind}.{alias}.type" not in self.properties:
                listed = aliases[kind]
                guess = did_you_mean(alias, listed) if index < _MAX_EXAMINED else ""
                shown = shortened(", ".join(listed)) or "none"
                yield Mistake(name, f"{alias!r} is not listed in {kind!r}{guess} (listed are {shown})")
            elif near is not None or name.startswith("errors.") or self.file is None:
                guess = did_you_mean(name, _KNOWN) if index < _MAX_EXAMINED else ""
                yield Mistake(name, f"unknown name{guess} (known here: {', '.join(_KNOWN)})")

    def notes(self) -> Iterator[str]:
        """Yield the names of ignored properties."""
        wrong = {mistake.path for mistake in self.mistakes()}
        ignored = [name for name in self._unused() if name not in wrong]
        if ignored:
            where = self.file.name if self.file else "transforms"
            yield f"{where}: these belong to other parts of Connect and are ignored: {', '.join(ignored)}"

    def _unused(self) -> list[str]:
        read = {f"{kind}.{alias}" for kind in _LISTS for alias in self.aliases(kind)} | set(_CONVERTERS)
        return [name for name in self.properties if name not in _KNOWN and read.isdisjoint(_above(name))]

    def _unlisted(self, name: str) -> tuple[str, str]:
        """Return the kind and the alias of an option that belongs to no listed transform or predicate; else nothing."""
        kind, _, rest = name.partition(".")
        alias, dot, _option = rest.partition(".")
        return (kind, alias) if kind in _LISTS and dot else ("", "")


def _above(name: str) -> Iterator[str]:
    """Yield the prefixes of a dotted name."""
    return accumulate(name.split(".")[:-1], "{}.{}".format)


def _connectors_in(file: Path) -> list[Connector]:
    """Return the connectors of a file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as failure:
        problem = f"{file}: found the byte 0x{failure.object[failure.start]:02x}, expected text in UTF-8"
        raise ConfigError([Mistake("", problem)]) from None
    if file.suffix == ".json":
        return [_of_config(config, name, file) for config, name in _of_json(text, file)]
    if file.suffix in (".yaml", ".yml"):
        documents = _documents(text, file)
        plain = [one for one in documents if isinstance(one, dict | list) and "kind" not in one]
        if len(plain) == len(documents) == 1:
            return [_of_config(config, name, file) for config, name in _configs(plain[0], file)]
        return [connector for resource in _resources(documents, file) for connector in _of_resource(resource, file)]
    written = _of_properties(text, file)
    if any(name.startswith(DEBEZIUM_SERVER) for name in written):
        return [_of_debezium_server(written, file)]
    if "clusters" in written:
        return list(_of_mirror_maker(written, file))
    return [Connector(dict(written), file, written.get("name"))]


def _of_config(config: Mapping[str, object], name: str | None, file: Path) -> Connector:
    entries = {str(key): option_text(value) for key, value in config.items()}
    if not is_text("".join(f"{key}{value}" for key, value in (*entries.items(), ("name", name)))):
        raise ConfigError([Mistake("", f"{file}: found half of a character (\\ud800 to \\udfff), expected text")])
    return Connector(entries, file, name)


def _of_json(text: str, file: Path) -> list[tuple[Mapping[str, object], str | None]]:
    """Return the properties and the name of each connector.

    They are in ``{"name": …, "config": {…}}``, as Connect's REST interface takes it, in that of ``?expand=info``, in a
    list or below ``connectors``, or alone.
    """
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        twice.extend(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        return dict(pairs)

    try:
        loaded = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as failure:
        raise ConfigError([Mistake("", f"{file}, line {failure.lineno}: not JSON: {failure.msg}")]) from failure
    except (RecursionError, ValueError):
        raise ConfigError([Mistake("", f"{file}: too deep, or a number too long, for a connector's JSON")]) from None
    found = _configs(loaded, file)
    if twice:
        raise ConfigError([Mistake("", f"{file}: {name!r} occurs twice") for name in twice])
    return found


def _configs(loaded: object, file: Path) -> list[tuple[Mapping[str, object], str | None]]:
    """Return the properties and the name of each connector of a document."""
    found: list[tuple[Mapping[str, object], str | None]] = []
    for name, entry in _entries(loaded):
        config = entry.get("config", entry) if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(config, dict):
            raise ConfigError([Mistake("", f"{file}: expected an object, or one under 'config'")])
        found.append((config, name or option_text(entry.get("name", config.get("name")))))
    if not found:
        raise ConfigError([Mistake("", f"{file}: expected an object, or a list of such")])
    return found


def _entries(loaded: object) -> list[tuple[str | None, object]]:
    """Return the connectors of a document, with the names that it lists them under."""
    if isinstance(loaded, dict) and "config" not in loaded and isinstance(loaded.get("connectors"), dict | list):
        loaded = loaded["connectors"]
    if isinstance(loaded, list):
        return [(None, entry) for entry in loaded]
    if isinstance(loaded, dict) and loaded and all(isinstance(entry, dict) for entry in loaded.values()):
        infos = {name: entry.get("info", entry) for name, entry in loaded.items()}
        if all(isinstance(info, dict) and ("config" in info or "connector.class" in info) for info in infos.values()):
            return list(infos.items())
    return [(None, loaded)]


def _of_properties(text: str, file: Path) -> Mapping[str, str]:
    entries, twice = properties(text)
    if twice:
        raise ConfigError([Mistake("", f"{file}, line {line}: {name!r} occurs twice") for name, line in twice])
    return entries


# Strimzi's resources


def _documents(text: str, file: Path) -> list[object]:
    """Return the documents of a file of YAML."""
    try:
        return load_all(text)
    except yaml.YAMLError as failure:
        problem, line = position_of(failure)
        raise ConfigError([Mistake("", f"{file}{f', line {line}' if line else ''}: not YAML: {problem}")]) from None


def _resources(documents: Sequence[object], file: Path) -> list[Mapping[str, object]]:
    """Return the documents that are resources of Strimzi: connectors, or copies of clusters."""
    kinds = [document.get("kind") if isinstance(document, dict) else None for document in documents]
    found: list[Mapping[str, object]] = [
        one for one, kind in zip(documents, kinds, strict=True) if kind in _OF_KIND and isinstance(one, dict)
    ]
    if not found:
        seen = ", ".join(str(kind) for kind in kinds if kind) or "none"
        problem = f"{file} has no connector: expected a resource of kind {' or '.join(_OF_KIND)}, found {seen}"
        raise ConfigError([Mistake("", problem)])
    return found


def _of_resource(resource: Mapping[str, object], file: Path) -> Iterator[Connector]:
    metadata, spec = _block(resource, "metadata"), _block(resource, "spec")
    name = option_text(metadata.get("name"))
    yield from _OF_KIND[str(resource["kind"])](spec, name, file)


def _of_kafka_connector(spec: Mapping[str, object], name: str | None, file: Path) -> Iterator[Connector]:
    own = {"connector.class": spec.get("class"), "tasks.max": spec.get("tasksMax")}
    known = {key: value for key, value in own.items() if value is not None}
    connector = _of_config({**known, **_block(spec, "config")}, name, file)
    others = {
        f"spec.{key}": option_text(value) for key, value in spec.items() if key not in ("class", "tasksMax", "config")
    }
    yield replace(connector, properties={**connector.properties, **others})


def _of_kafka_mirror_maker_2(spec: Mapping[str, object], name: str | None, file: Path) -> Iterator[Connector]:
    """Yield a connector for each mirror; a target of its own is the cluster that Connect runs on."""
    listed = [*_list(spec, "clusters"), _block(spec, "target")]
    clusters = {str(cluster.get("alias")): cluster for cluster in listed if isinstance(cluster, dict) and cluster}
    mirrors = [mirror for mirror in _list(spec, "mirrors") if isinstance(mirror, dict)]
    for mirror in mirrors:
        target = str(mirror.get("targetCluster") or _block(spec, "target").get("alias") or spec.get("connectCluster"))
        source_block = _block(mirror, "source")
        source = str(mirror.get("sourceCluster") or source_block.get("alias"))
        clusters.setdefault(source, source_block)
        config: dict[str, object] = {"connector.class": MIRROR}
        for side, alias in (("source", source), ("target", target)):
            cluster = clusters.get(alias, {})
            config[f"{side}.cluster.alias"] = alias
            config[f"{side}.cluster.bootstrap.servers"] = cluster.get("bootstrapServers")
            config |= {f"{side}.cluster.{key}": value for key, value in _block(cluster, "config").items()}
            for key in ("tls", "authentication"):
                if key in cluster:
                    config[f"{side}.cluster.{key}"] = json.dumps(cluster[key])
        pairs = {"topicsPattern": "topics", "topicsExcludePattern": "topics.exclude"}
        config |= {option: mirror[key] for key, option in pairs.items() if key in mirror}
        connector = _block(mirror, "sourceConnector")
        config |= _block(connector, "config") | {"tasks.max": connector.get("tasksMax")}
        used = (*pairs, "sourceCluster", "targetCluster", "source", "sourceConnector")
        others = {f"spec.mirrors.{key}": value for key, value in mirror.items() if key not in used}
        others |= {
            f"spec.mirrors.sourceConnector.{key}": connector[key] for key in connector.keys() - {"config", "tasksMax"}
        }
        others |= {
            f"spec.{key}": spec[key] for key in spec.keys() - {"clusters", "target", "mirrors", "connectCluster"}
        }
        config |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in sorted(others.items())}
        own_name = name if len(mirrors) == 1 else f"{name}-{source}"
        yield _of_config({key: value for key, value in config.items() if value is not None}, own_name, file)


_OF_KIND = {"KafkaConnector": _of_kafka_connector, "KafkaMirrorMaker2": _of_kafka_mirror_maker_2}


def _block(parent: Mapping[str, object], key: str) -> dict[str, object]:
    block = parent.get(key)
    return {str(name): value for name, value in block.items()} if isinstance(block, dict) else {}


def _list(parent: Mapping[str, object], key: str) -> list[object]:
    listed = parent.get(key)
    return listed if isinstance(listed, list) else []


# Debezium Server's and MirrorMaker's properties


def _of_debezium_server(written: Mapping[str, str], file: Path) -> Connector:
    """Return what Debezium Server does to records under Connect's names, and everything else under its own."""
    entries: dict[str, str | None] = {}
    origins: dict[str, str] = {}
    lists = tuple(f"{DEBEZIUM_SERVER}{kind}" for kind in _LISTS)
    for original, text in written.items():
        name = original.removeprefix(DEBEZIUM_SERVER) if original.startswith(lists) else original
        side, _, option = original.removeprefix(f"{DEBEZIUM_SERVER}format.").partition(".")
        if original.startswith(f"{DEBEZIUM_SERVER}format.") and side in ("key", "value"):
            name = f"{side}.converter.{option}" if option else f"{side}.converter"
            text = text if option else _DEBEZIUM_FORMATS.get(text.lower(), text)
        # Quarkus writes a default behind a colon.
        entries[name] = _QUARKUS.sub(lambda found: f"${{{found[1].upper().replace('.', '_')}:-{found[2]}}}", text)
        if name != original:
            origins[name] = original
    for side in ("key", "value"):
        if f"{side}.converter" not in entries:
            entries[f"{side}.converter"] = _JSON_CONVERTER
            origins[f"{side}.converter"] = f"{DEBEZIUM_SERVER}format.{side}"
    return Connector(entries, file, written.get("quarkus.application.name"), origins)


def _of_mirror_maker(written: Mapping[str, str], file: Path) -> Iterator[Connector]:
    """Yield a connector for each flow that is enabled.

    Raises:
        ConfigError: none is.
    """
    clusters = split_list(written["clusters"])
    flows: dict[tuple[str, str], dict[str, str]] = {}
    others: dict[str, str] = {}
    for name, text in written.items():
        source, arrow, rest = name.partition("->")
        target, _, option = rest.partition(".")
        if arrow:
            flows.setdefault((source.strip(), target.strip()), {})[option] = text
        elif name.partition(".")[0] not in clusters and name != "clusters":
            others[name] = text
    enabled = {ends: own for ends, own in flows.items() if own.get("enabled", others.get("enabled")) == "true"}
    if not enabled:
        problem = f"{file} enables no flow between the clusters {', '.join(clusters)}: expected A->B.enabled = true"
        raise ConfigError([Mistake("", problem)])
    for (source, target), own in enabled.items():
        config: dict[str, str | None] = {"connector.class": MIRROR}
        origins = {key: f"{source}->{target}.{key}" for key in own}
        for side, alias in (("source", source), ("target", target)):
            config[f"{side}.cluster.alias"] = alias
            origins[f"{side}.cluster.alias"] = "clusters"
            for name, text in written.items():
                if name.startswith(f"{alias}."):
                    inner = f"{side}.cluster.{name.removeprefix(f'{alias}.')}"
                    config[inner], origins[inner] = text, name
        config |= {key: text for key, text in {**others, **own}.items() if key != "enabled"}
        yield Connector(config, file, f"{source}-to-{target}", origins)
