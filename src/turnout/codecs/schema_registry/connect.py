"""Properties of Confluent's converters that concern the schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnout.codecs.kind import Setting, choice, flag
from turnout.codecs.schema_registry.options import SUBJECTS, RegistryOptions

_STRATEGY, _, _REGISTER, _SERIALIZER = SUBJECTS


def _text(value: object) -> str:
    return str(value)


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
    Setting("schema.registry.url", "the registry's URLs, separated by commas", _text),
    choice("basic.auth.credentials.source", "source of user and password", "URL", "USER_INFO"),
    Setting("basic.auth.user.info", "user and password, with a colon between", _text),
    choice("bearer.auth.credentials.source", "source of the token", "STATIC_TOKEN"),
    Setting("bearer.auth.token", "the token", _text),
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
