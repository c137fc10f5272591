"""Options of a schema registry, as a route or a connector's converter gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from turnout.base.files import read_file
from turnout.base.terminal import did_you_mean
from turnout.codecs.kind import Setting, choice, flag
from turnout.secrets import Secret, masked_url

_MAX_FILE_BYTES: Final = 1 << 20


def schema_file(doc: str) -> Setting:
    """Return the setting ``schema``, which names a file or is the schema itself."""
    return Setting("schema", doc, _name_or_schema, json_schema={"type": ["string", "object", "null"]}, file=True)


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


_NAMES: Final = ("url", "auth", "tls", "timeout", "retries", "wait", "cache")
_TLS: Final = ("ca", "certificate", "key", "keyPassword")
TLS_FILES: Final = ("ca", "certificate", "key")
"""The options under ``tls`` that name files."""

_MAX_SECONDS: Final = 600
_MAX_WAIT: Final = 86_400
_MAX_RETRIES: Final = 20
_MAX_SCHEMAS: Final = 100_000


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Address of a schema registry, credentials and limits.

    Attributes:
        urls: URLs of the servers of one registry; if one fails, the next is used.
        user: of basic authentication.
        password: password of the user.
        token: of bearer authentication.
        ca: file of the certificates to trust, in PEM.
        certificate: file of the client's certificate, in PEM.
        key: file of the certificate's key, in PEM.
        key_password: password of the private key.
        timeout: of one request, in seconds.
        retries: repetitions of a request that failed, with growing delays.
        wait: how long a batch waits for a registry that is down, in seconds; then the run ends.
        cache: schemas that are kept.
        dead_letter: whether a record is dead-lettered while the registry is down, and its batch does not wait.
        of_keys: whether the schemas are those of keys.

    >>> options = RegistryOptions.read({"url": "http://localhost:8081", "auth": {"user": "ann", "password": "x"}})
    >>> options.urls, options.user, options.password, options.timeout
    (('http://localhost:8081',), 'ann', ***, 10.0)
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: Secret | None = None
    timeout: float = 10.0
    retries: int = 3
    wait: float = 60.0
    cache: int = 1000
    dead_letter: bool = False
    of_keys: bool = False

    def __post_init__(self) -> None:
        """Check the options that depend on each other.

        Raises:
            ValueError: names the option; secrets are not shown.
        """
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
        options = _mapping("registry", document, _NAMES)
        auth = _mapping("auth", options.get("auth") or {}, ("user", "password", "userInfo", "token"), secret=True)
        auth |= _user_and_password(auth)
        tls = _mapping("tls", options.get("tls") or {}, _TLS)
        return cls(
            urls=_urls(options.get("url")),
            user=_text("auth.user", auth.get("user"), secret=True),
            password=_secret("auth.password", auth.get("password")),
            token=_secret("auth.token", auth.get("token")),
            ca=_text("tls.ca", tls.get("ca")),
            certificate=_text("tls.certificate", tls.get("certificate")),
            key=_text("tls.key", tls.get("key")),
            key_password=_secret("tls.keyPassword", tls.get("keyPassword")),
            timeout=_number("timeout", options.get("timeout", 10.0), _MAX_SECONDS),
            retries=int(_number("retries", options.get("retries", 3), _MAX_RETRIES, least=0)),
            wait=_number("wait", options.get("wait", 60.0), _MAX_WAIT, least=0),
            cache=int(_number("cache", options.get("cache", 1000), _MAX_SCHEMAS, least=1)),
        )

    @staticmethod
    def file_names(options: object) -> dict[str, str]:
        """Return the options under ``tls`` that name files, with the names."""
        tls = options.get("tls") if isinstance(options, Mapping) else None
        names = {name: tls.get(name) for name in TLS_FILES} if isinstance(tls, Mapping) else {}
        return {name: file for name, file in names.items() if isinstance(file, str)}

    def client_options(self) -> RegistryOptions:
        """Return the options that a client depends on: keys and values of all routes share one."""
        return replace(self, wait=0.0, dead_letter=False, of_keys=False)


def _user_and_password(auth: Mapping[str, object]) -> dict[str, object]:
    """Return user and password of ``userInfo``, which has a colon between them, as one secret may have both."""
    if "userInfo" not in auth:
        return {}
    user, colon, password = str(auth["userInfo"]).partition(":")
    if not (user and colon and password) or "user" in auth or "password" in auth:
        raise ValueError("auth.userInfo: expected a user and a password with a colon between, and neither beside it")
    return {"user": user, "password": password}


def _mapping(name: str, options: object, names: tuple[str, ...], *, secret: bool = False) -> dict[str, object]:
    if not isinstance(options, Mapping):
        shown = "another value" if secret or name == "registry" else repr(options)
        raise ValueError(f"{name}: expected a mapping of {', '.join(names)}, found {shown}")  # noqa: TRY004 - as all here
    for option in options:
        if option not in names:
            hint = did_you_mean(str(option), names)
            raise ValueError(f"{name}: {option} is not known{hint} (known here: {', '.join(names)})")
    return {str(option): value for option, value in options.items() if value is not None}


def _urls(value: object) -> tuple[str, ...]:
    urls = value.split(",") if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not urls or not all(isinstance(url, str) for url in urls):
        raise ValueError("url: expected one or more URLs, http://… or https://…")
    stripped = tuple(url.strip().rstrip("/") for url in urls)
    for url in stripped:
        if not _is_url(url):
            raise ValueError(f"url: expected http://… or https://…, found {masked_url(url)!r}")
    return stripped


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


def _text(name: str, value: object, *, secret: bool = False) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise ValueError(f"{name}: expected text" + ("" if secret else f", found {value!r}"))


def _secret(name: str, value: object) -> Secret | None:
    text = _text(name, value, secret=True)
    return None if text is None else Secret(text)


def _number(name: str, value: object, most: int, least: float = 0.001) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name}: expected a number from {least:g} to {most}, found {value!r}")
    return float(value)


def _described(doc: str, **schema: object) -> dict[str, object]:
    return {**schema, "description": doc}


_TEXT: Final = {"type": "string"}
_AUTH_SCHEMA: Final = {
    "user": _described("user of basic authentication", **_TEXT),
    "password": _described("the user's password", **_TEXT),
    "userInfo": _described("user and password in one text, with a colon between", **_TEXT),
    "token": _described("token of bearer authentication", **_TEXT),
}
_TLS_SCHEMA: Final = {
    "ca": _described("file of the certificates to trust, in PEM", **_TEXT),
    "certificate": _described("file of the client's certificate, in PEM", **_TEXT),
    "key": _described("file of the certificate's key, in PEM", **_TEXT),
    "keyPassword": _described("the key's password", **_TEXT),
}
_SCHEMA: Final = {
    "url": _described(
        "one URL or several of one registry", anyOf=[_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]
    ),
    "auth": _described(
        "credentials: user and password, or a token",
        type=["object", "null"],
        additionalProperties=False,
        properties=_AUTH_SCHEMA,
    ),
    "tls": _described("files for TLS", type=["object", "null"], additionalProperties=False, properties=_TLS_SCHEMA),
    "timeout": _described("seconds for one request", type="number", exclusiveMinimum=0, maximum=_MAX_SECONDS),
    "retries": _described("repetitions of a request that failed", type="integer", minimum=0, maximum=_MAX_RETRIES),
    "wait": _described(
        "seconds that a batch waits for a registry that is down", type="number", minimum=0, maximum=_MAX_WAIT
    ),
    "cache": _described("schemas that are kept", type="integer", minimum=1, maximum=_MAX_SCHEMAS),
}

REGISTRY: Final = Setting(
    "registry",
    "the schema registry: its URL, or `{url, auth, tls, timeout, retries, wait, cache}`",
    RegistryOptions.read,
    json_schema={
        "anyOf": [
            {"type": ["string", "null"]},
            {"type": "object", "additionalProperties": False, "required": ["url"], "properties": _SCHEMA},
        ]
    },
)
"""Setting of codecs that read schemas from a registry; its value is a `RegistryOptions`."""

STRATEGIES: Final = ("topic", "record", "topicRecord")
"""Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""


def _strategy(value: object) -> str:
    """Return the strategy that a route or a class name of Confluent's means."""
    word = str(value).rpartition(".")[2].removesuffix("NameStrategy")
    for strategy in STRATEGIES:
        if word.lower() == strategy.lower():
            return strategy
    raise ValueError(f"expected {', '.join(STRATEGIES)}, found {value!r}")


def _topic(value: object) -> str | None:
    return _text("topic", value)


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
    """Settings of codecs that write schemas to a registry, see `SUBJECTS`."""

    subject_name_strategy: str = "topic"
    topic: str | None = None
    auto_register_schemas: bool = True
    schema_id_serializer: str = "prefix"
    use_latest_version: bool = False
    unknown_fields: str = "REFUSE"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return those among the settings of a codec, by their arguments."""
        names = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in settings.items() if name in names})

    @property
    def drops_unknown(self) -> bool:
        """True if fields that the written schema does not have are left out."""
        return self.unknown_fields == "DROP"

    @property
    def in_header(self) -> bool:
        """True if ids are written to headers."""
        return self.schema_id_serializer == "header"


SUBJECTS: Final = (
    Setting(
        "subject.name.strategy",
        "the registry's subject of schemas that are written: of the `topic`, of the record's name, or of both",
        _strategy,
        "topic",
        {"enum": list(STRATEGIES)},
    ),
    Setting(
        "topic",
        "the topic in the subject's name of written schemas; by default that of the record",
        _topic,
        json_schema={"type": ["string", "null"]},
    ),
    flag(
        "auto.register.schemas",
        "whether a schema that is new is registered; otherwise it has to be in the registry already",
    ),
    Setting(
        "schema.id.serializer",
        "where the id of a schema is written: before the value, or as GUID in a header of the record",
        _serializer,
        "prefix",
        {"enum": list(_SERIALIZERS)},
    ),
)
"""Settings of codecs that write schemas to a registry."""

LATEST: Final = flag(
    "use.latest.version",
    "whether values are written with the subject's last version, whatever schema they have",
    default=False,
)

CONVERSION: Final = (
    LATEST,
    choice(
        "unknown.fields",
        "what happens to a field of a value of another format that the schema does not have",
        "REFUSE",
        "DROP",
    ),
)
"""Settings of codecs that write values of other formats with a schema that is given."""


_STRATEGY, _, _REGISTER, _SERIALIZER = SUBJECTS


def _dual(value: object) -> str:
    """Return the class of a deserializer that looks for ids in headers and before values, as all do here."""
    name = "DualSchemaIdDeserializer"
    if str(value).rpartition(".")[2] != name:
        raise ValueError(f"only {name} is supported")
    return name


def only(name: str, required: bool) -> Setting:
    """Return a property that may only have one value here."""

    def read(value: object) -> bool:
        if str(value).lower() != str(required).lower():
            raise ValueError(f"only {str(required).lower()} is supported")
        return required

    return Setting(name, "", read, required)


CONVERTER: Final = (
    Setting("schema.registry.url", "the registry's URLs, separated by commas", str),
    choice("basic.auth.credentials.source", "source of user and password", "URL", "USER_INFO"),
    Setting("basic.auth.user.info", "user and password, with a colon between", str),
    choice("bearer.auth.credentials.source", "source of the token", "STATIC_TOKEN"),
    Setting("bearer.auth.token", "the token", str),
    Setting("key.subject.name.strategy", "the subject of keys", _STRATEGY.read, _STRATEGY.default),
    Setting("value.subject.name.strategy", "the subject of values", _STRATEGY.read, _STRATEGY.default),
    flag("auto.register.schemas", "whether schemas that are new are registered"),
    *(Setting(f"{side}.{_SERIALIZER.name}", "", _SERIALIZER.read, _SERIALIZER.default) for side in ("key", "value")),
    *(Setting(f"{side}.schema.id.deserializer", "", _dual) for side in ("key", "value")),
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
