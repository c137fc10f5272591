"""Translation of ``sasl.jaas.config``, in which Java's clients have user names, passwords and client secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_HEAD = re.compile(r"\s*+([\w.$]++)\s++(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""\s*+([\w.-]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|'((?:[^'\\]|\\.)*+)'|([^\s;"']++))""")
_END = re.compile(r"\s*+;\s*+")
_ESCAPE = re.compile(r"\\(.)")

_USER_AND_PASSWORD: Final = {"username": "sasl.username", "password": "sasl.password"}
_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION: Final = "extension_"
_UNSECURED: Final = "unsecuredLoginStringClaim_sub"


def translated_jaas(text: str) -> dict[str, str]:
    """Return the properties that stand for a ``sasl.jaas.config``.

    Raises:
        ValueError: it is no such text, or of a login module without an equivalent; says what to write instead, and
            repeats no value.

    >>> text = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="x";'
    >>> translated_jaas(text)
    {'sasl.username': 'ann', 'sasl.password': 'x'}
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError('expected a login module and its options, as in PlainLoginModule required username="…";')
    module, options = head[1].rpartition(".")[2], _options(text, head.end())
    match module:
        case "PlainLoginModule" | "ScramLoginModule":
            return _renamed(module, options, _USER_AND_PASSWORD, required=("username", "password"))
        case "OAuthBearerLoginModule":
            return _oauth(options)
        case "Krb5LoginModule":
            raise ValueError("Kerberos is not supported: use SCRAM, OAUTHBEARER or a client certificate (mTLS)")
        case _:
            modules = "PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule"
            raise ValueError(f"the login module {module} has no equivalent here; there are {modules}")


def _options(text: str, at: int) -> dict[str, str]:
    options = {}
    while (found := _OPTION.match(text, at)) is not None:
        quoted = next((part for part in found.groups()[1:3] if part is not None), None)
        options[found[1]] = found[4] if quoted is None else _ESCAPE.sub(r"\1", quoted)
        at = found.end()
    if _END.fullmatch(text, at) is None:
        raise ValueError(f"cannot be read after character {at}: expected name=\"value\" or a final ';'")
    return options


def _renamed(
    module: str, options: Mapping[str, str], names: Mapping[str, str], required: tuple[str, ...]
) -> dict[str, str]:
    unknown = sorted(options.keys() - names.keys())
    if unknown:
        raise ValueError(f"{module}: {', '.join(unknown)} cannot be used here; there are {', '.join(names)}")
    missing = [name for name in required if name not in options]
    if missing:
        raise ValueError(f"{module}: {' and '.join(missing)} is missing")
    return {names[name]: value for name, value in options.items()}


def _oauth(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a login by client credentials, or of an unsecured token, which brokers take in tests."""
    if _UNSECURED in options:
        others = sorted(options.keys() - {_UNSECURED})
        if others:
            raise ValueError(f"{', '.join(others)} cannot be used beside {_UNSECURED}")
        principal = f"principal={options[_UNSECURED]}"
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": principal}
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    rest = {name: value for name, value in options.items() if not name.startswith(_EXTENSION)}
    properties = _renamed("OAuthBearerLoginModule", rest, _OAUTH, required=("clientId", "clientSecret"))
    properties["sasl.oauthbearer.method"] = "oidc"
    if extensions:
        pairs = ",".join(f"{name}={value}" for name, value in extensions.items())
        properties["sasl.oauthbearer.extensions"] = pairs
    return properties
