"""Options of a schema registry, as a route or a connector's converter gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from turnout.base.files import read_file
from turnout.base.options import Kind, Option, option, options_of, read_options
from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.codecs.codec import FLAG, dotted, flag, words
from turnout.errors import Mistake
from turnout.secrets import Secret, masked_url

_MAX_FILE_BYTES: Final = 1 << 20


def schema_file(doc: str) -> Option:
    """Return the setting ``schema``, which names a file or is the schema itself."""
    return Option("schema", Kind(_name_or_schema, {"type": ["string", "object", "null"]}, file=True), doc, None)


def schema_text_of(schema: str | Mapping[str, object]) -> str:
    """Return the text of a schema that is given, or of the file with that name.

    Raises:
        ValueError: the file cannot be read, or is no text.
    """
    if not isinstance(schema, str):
        return json.dumps(schema)
    path = Path(schema)
    try:
        return read_file(path, max_bytes=_MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise ValueError(f"schema: {path} is no text in UTF-8") from None
    except OSError as failure:
        raise ValueError(f"schema: {path}: {failure.strerror}") from failure


def _name_or_schema(value: object) -> str | Mapping[str, object]:
    if isinstance(value, Mapping) and value:
        return value
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the name of a file, or a schema in place, found {value!r}")
    return value


_BLOCKS: Final = {"auth": "credentials: user and password, or a token", "tls": "files for TLS"}


def _urls(value: object) -> tuple[str, ...]:
    urls = value.split(",") if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not urls or not all(isinstance(url, str) for url in urls):
        raise ValueError(_NO_URL)
    stripped = tuple(url.strip().rstrip("/") for url in urls)
    for url in stripped:
        if not _is_url(url):
            raise ValueError(f"expected http://… or https://…, found {masked_url(url)!r}")
    return stripped


_NO_URL: Final = "expected one or more URLs, http://… or https://…"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected text, found {value!r}")
    return value


def _hidden(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected text")
    return value


def _number(most: int, least: float = 0.001) -> Kind[float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"expected a number from {least:g} to {most}, found {value!r}")
        return float(value)

    return Kind(read, {"type": "number", "exclusiveMinimum" if least else "minimum": 0, "maximum": most})


def _whole(most: int, least: int = 0) -> Kind[int]:
    number = _number(most, least)
    return Kind(lambda value: int(number.read(value)), {"type": "integer", "minimum": least, "maximum": most})


_SCHEMA_OF_TEXT: Final = {"type": "string"}
_FILE: Final = Kind(_text, _SCHEMA_OF_TEXT, file=True)
_HIDDEN: Final = Kind(_hidden, _SCHEMA_OF_TEXT)
_SECRET: Final = Kind(lambda value: Secret(_hidden(value)), _SCHEMA_OF_TEXT)
_URLS: Final = Kind(_urls, {"anyOf": [_SCHEMA_OF_TEXT, {"type": "array", "items": _SCHEMA_OF_TEXT, "minItems": 1}]})


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Address of a schema registry, credentials and limits.

    Attributes:
        urls: one URL or several of one registry.
        user: user of basic authentication.
        password: the user's password.
        token: token of bearer authentication.
        ca: file of the certificates to trust, in PEM.
        certificate: file of the client's certificate, in PEM.
        key: file of the certificate's key, in PEM.
        key_password: the key's password.
        timeout: seconds for one request.
        retries: repetitions of a request that failed.
        wait: seconds that a batch waits for a registry that is down.
        cache: schemas that are kept.
        dead_letter: whether a record is dead-lettered while the registry is down, and its batch does not wait.
        of_keys: whether the schemas are those of keys.

    >>> options = RegistryOptions.read({"url": "http://localhost:8081", "auth": {"user": "ann", "password": "x"}})
    >>> options.urls, options.user, options.password, options.timeout
    (('http://localhost:8081',), 'ann', ***, 10.0)
    """

    urls: tuple[str, ...] = option(_URLS, (), name="url")
    user: str | None = option(_HIDDEN, None, name="auth.user")
    password: Secret | None = option(_SECRET, None, name="auth.password", secret=True)
    token: Secret | None = option(_SECRET, None, name="auth.token", secret=True)
    ca: str | None = option(_FILE, None, name="tls.ca")
    certificate: str | None = option(_FILE, None, name="tls.certificate")
    key: str | None = option(_FILE, None, name="tls.key", secret=True)
    key_password: Secret | None = option(_SECRET, None, name="tls.keyPassword", secret=True)
    timeout: float = option(_number(600), 10.0)
    retries: int = option(_whole(20), 3)
    wait: float = option(_number(86_400, 0), 60.0)
    cache: int = option(_whole(100_000, 1), 1000)
    dead_letter: bool = False
    of_keys: bool = False

    def __post_init__(self) -> None:
        """Check the options that depend on each other.

        Raises:
            ValueError: names the option; secrets are not shown.
        """
        if not self.urls:
            raise ValueError(f"url: {_NO_URL}")
        if (self.user is None) != (self.password is None) or None not in (self.user, self.token):
            raise ValueError("auth: expected user and password, or token")
        if self.user is not None and any(urlsplit(url).username for url in self.urls):
            raise ValueError("auth: expected one user, found userinfo credentials in the URL as well")
        for name, value in (("key", self.key), ("keyPassword", self.key_password)):
            if value is not None and self.certificate is None:
                raise ValueError(f"tls.{name}: needs tls.certificate")

    @classmethod
    def read(cls, document: object) -> RegistryOptions:
        """Read a URL, or a mapping with ``url``, ``auth``, ``tls``, ``timeout``, ``retries``, ``wait`` and ``cache``.

        Raises:
            ValueError: names the option and the expected form; secrets are not shown.
        """
        if isinstance(document, RegistryOptions):
            return document
        if isinstance(document, str):
            document = {"url": document}
        mistakes: list[Mistake] = []
        values = read_options(options_of(cls), _flat(document), mistakes)
        if mistakes:
            raise ValueError("; ".join(map(str, mistakes)))
        return cls(**values)

    @staticmethod
    def file_names(options: object) -> dict[str, str]:
        """Return the options under ``tls`` that name files, with the names."""
        tls = options.get("tls") if isinstance(options, Mapping) else None
        names = {one.name.removeprefix("tls.") for one in options_of(RegistryOptions).values() if one.kind.file}
        given = tls.items() if isinstance(tls, Mapping) else ()
        return {name: file for name, file in given if name in names and isinstance(file, str)}

    def client_options(self) -> RegistryOptions:
        """Return the options that a client depends on: keys and values of all routes share one."""
        return replace(self, wait=0.0, dead_letter=False, of_keys=False)


def _declared() -> list[Option]:
    """Return the options of a route's block: one secret may have both user and password."""
    url, user, password, *others = options_of(RegistryOptions).values()
    both = Option("auth.userInfo", _HIDDEN, "user and password in one text, with a colon between")
    return [url, user, password, both, *others]


def _names_in(block: str) -> list[str]:
    names = [one.name.removeprefix(block) for one in _declared() if one.name.startswith(block)]
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _flat(document: object) -> dict[str, object]:
    """Return options by their names with those of the blocks around them."""
    given = _mapping("registry", document, _names_in(""))
    for block in _BLOCKS:
        inner = _mapping(block, given.pop(block, None) or {}, _names_in(f"{block}."), secret=block == "auth")
        given |= {f"{block}.{name}": value for name, value in inner.items()}
    user_info = given.pop("auth.userInfo", None)
    if user_info is not None:
        user, colon, password = str(user_info).partition(":")
        if not (user and colon and password) or "auth.user" in given or "auth.password" in given:
            raise ValueError(
                "auth.userInfo: expected a user and a password with a colon between, and neither beside it"
            )
        given |= {"auth.user": user, "auth.password": password}
    return given


def _mapping(name: str, options: object, names: Sequence[str], *, secret: bool = False) -> dict[str, object]:
    if not isinstance(options, Mapping):
        shown = "another value" if secret or name == "registry" else repr(options)
        raise ValueError(f"{name}: expected a mapping of {', '.join(names)}, found {shown}")  # noqa: TRY004 - as all here
    for given in options:
        if given not in names:
            hint = did_you_mean(str(given), names)
            raise ValueError(f"{name}: {given} is not known{hint} (known here: {', '.join(names)})")
    return {str(given): value for given, value in options.items() if value is not None}


def _json_schema() -> JsonObject:
    """Return the schema of a block with the address, credentials and limits of a registry."""
    schemas: JsonObject = {}
    for one in _declared():
        block, _, name = one.name.rpartition(".")
        if block and block not in schemas:
            schemas[block] = {"type": ["object", "null"], "additionalProperties": False, "properties": {}}
            schemas[block]["description"] = _BLOCKS[block]
        inner = schemas[block]["properties"] if block else schemas
        inner[name] = {**one.kind.json_schema, "description": one.doc}
    return {"type": "object", "additionalProperties": False, "required": ["url"], "properties": schemas}


REGISTRY: Final = Option(
    "registry",
    Kind(RegistryOptions.read, {"anyOf": [{"type": ["string", "null"]}, _json_schema()]}),
    "the schema registry: its URL, or `{url, auth, tls, timeout, retries, wait, cache}`",
    None,
)
"""Setting of codecs that read schemas from a registry; its value is a `RegistryOptions`."""

STRATEGIES: Final = ("topic", "record", "topicRecord")
"""Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""


def _topic(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"topic: expected text, found {value!r}")
    return value


def _strategy(value: object) -> str:
    """Return the strategy that a route or a class name of Confluent's means."""
    word = str(value).rpartition(".")[2].removesuffix("NameStrategy")
    for strategy in STRATEGIES:
        if word.lower() == strategy.lower():
            return strategy
    raise ValueError(f"expected {', '.join(STRATEGIES)}, found {value!r}")


_SERIALIZERS: Final = {"prefix": "PrefixSchemaIdSerializer", "header": "HeaderSchemaIdSerializer"}


def _serializer(value: object) -> str:
    """Return the position of ids that a route or a class name of Confluent's means."""
    word = str(value).rpartition(".")[2]
    for known, class_name in _SERIALIZERS.items():
        if word in (known, class_name):
            return known
    raise ValueError(f"expected {' or '.join(_SERIALIZERS)}, found {value!r}")


@dataclass(frozen=True, slots=True)
class Writing:
    """Settings of codecs that write schemas to a registry.

    Attributes:
        subject_name_strategy: the registry's subject of schemas that are written: of the `topic`, of the record's name,
            or of both.
        topic: the topic in the subject's name of written schemas; by default that of the record.
        auto_register_schemas: whether a schema that is new is registered; otherwise it has to be in the registry
            already.
        schema_id_serializer: where the id of a schema is written: before the value, or as GUID in a header of the
            record.
        use_latest_version: whether values are written with the subject's last version, whatever schema they have.
        unknown_fields: what happens to a field of a value of another format that the schema does not have.
    """

    subject_name_strategy: str = option(Kind(_strategy, {"enum": list(STRATEGIES)}), "topic")
    topic: str | None = option(Kind(_topic, {"type": ["string", "null"]}), None)
    auto_register_schemas: bool = option(FLAG, True)
    schema_id_serializer: str = option(Kind(_serializer, {"enum": list(_SERIALIZERS)}), "prefix")
    use_latest_version: bool = option(FLAG, False)
    unknown_fields: str = option(words("REFUSE", "DROP"), "REFUSE")

    @classmethod
    def of(cls, settings: JsonMapping) -> Self:
        """Return those among the settings of a codec, by their arguments."""
        return cls(**{name: settings[name] for name in options_of(cls, dotted) if name in settings})

    @property
    def drops_unknown(self) -> bool:
        """True if fields that the written schema does not have are left out."""
        return self.unknown_fields == "DROP"

    @property
    def in_header(self) -> bool:
        """True if ids are written to headers."""
        return self.schema_id_serializer == "header"


*SUBJECTS, LATEST, _UNKNOWN = options_of(Writing, dotted).values()
CONVERSION: Final = (LATEST, _UNKNOWN)
"""Settings of codecs that write values of other formats with a schema that is given."""

_STRATEGY, _, _REGISTER, _SERIALIZER = SUBJECTS


def _dual(value: object) -> str:
    """Return the class of a deserializer that looks for ids in headers and before values, as all do here."""
    name = "DualSchemaIdDeserializer"
    if str(value).rpartition(".")[2] != name:
        raise ValueError(f"only {name} is supported")
    return name


def only(name: str, required: bool) -> Option:
    """Return a property that may only have one value here."""

    def read(value: object) -> bool:
        if str(value).lower() != str(required).lower():
            raise ValueError(f"only {str(required).lower()} is supported")
        return required

    return Option(name, Kind(read), "", required)


CONVERTER: Final = (
    Option("schema.registry.url", Kind(str), "the registry's URLs, separated by commas", None),
    Option("basic.auth.credentials.source", words("URL", "USER_INFO"), "source of user and password", "URL"),
    Option("basic.auth.user.info", Kind(str), "user and password, with a colon between", None, secret=True),
    Option("bearer.auth.credentials.source", words("STATIC_TOKEN"), "source of the token", "STATIC_TOKEN"),
    Option("bearer.auth.token", Kind(str), "the token", None, secret=True),
    replace(_STRATEGY, name="key.subject.name.strategy", doc="the subject of keys"),
    replace(_STRATEGY, name="value.subject.name.strategy", doc="the subject of values"),
    flag("auto.register.schemas", "whether schemas that are new are registered"),
    *(replace(_SERIALIZER, name=f"{side}.{_SERIALIZER.name}", doc="") for side in ("key", "value")),
    *(Option(f"{side}.schema.id.deserializer", Kind(_dual), "", None) for side in ("key", "value")),
    only("use.latest.version", False),
    only("normalize.schemas", False),
)
"""Properties of all of Confluent's converters."""


def settings_of(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a codec with a registry that a converter's properties stand for.

    Raises:
        ValueError: there is no URL, or one of the credentials is wrong.
    """
    options: dict[str, object] = {"url": properties.get("schema.registry.url")}
    if options["url"] is None:
        raise ValueError("schema.registry.url is missing")
    user, colon, password = str(properties.get("basic.auth.user.info", "")).partition(":")
    if properties.get("basic.auth.credentials.source") == "USER_INFO" and not colon:
        raise ValueError("basic.auth.user.info: expected a user and a password, with a colon between")
    if colon:
        options["auth"] = {"user": user, "password": password}
    elif "bearer.auth.token" in properties:
        options["auth"] = {"token": properties["bearer.auth.token"]}
    settings: dict[str, object] = {"registry": RegistryOptions.read(options)}
    for side in ("value", "key"):
        for setting in (_STRATEGY, _SERIALIZER):
            value = properties.get(f"{side}.{setting.name}")
            if value is not None:
                settings.setdefault(setting.name, value)
    if _REGISTER.name in properties:
        settings[_REGISTER.name] = properties[_REGISTER.name]
    return settings
