"""Translation of the property names of Kafka's Java clients to those of librdkafka, which turnout's client is.

Most names are the same. This module has the others: renamed ones, the stores of certificates, ``sasl.jaas.config``,
properties that turnout sets itself, and those that mean nothing outside of Java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from turnout.errors import Mistake
from turnout.kafka.jaas import translated_jaas

SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.sasl.", "enable.ssl.", "https.ca.")
"""Beginnings of the names that belong into a ``security`` block."""

_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_OWN: Final = {
    "bootstrap.servers": "is the option servers",
    "transactional.id": "is set by turnout where exactlyOnce is true",
    "partitioner.class": "is the option partitionBy of the sink",
    "partitioner": "is the option partitionBy of the sink",
    "auto.offset.reset": "is set by turnout: the source has start and failOnDataLoss",
}
"""Properties with an option of turnout in their place."""

_OWN_SILENT: Final = frozenset(
    {
        "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "delivery.report.only.error",
        "enable.idempotence", "interceptor.classes", "group.instance.id",
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
    }
)  # fmt: skip
"""Properties that turnout sets itself, with nothing in their place."""

_JAVA_ONLY: Final = frozenset(
    {
        "max.block.ms", "max.poll.records", "default.api.timeout.ms", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "auto.include.jmx.reporter", "ssl.protocol",
        "ssl.enabled.protocols", "ssl.provider", "ssl.trustmanager.algorithm", "ssl.keymanager.algorithm",
        "ssl.secure.random.implementation", "security.providers", "exclude.internal.topics",
    }
)  # fmt: skip
"""Properties that only Java's client has, without effect on the records."""

_OAUTH_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_LARGEST_KBYTES: Final = 2_147_483_647


class Translated(NamedTuple):
    """Properties as librdkafka names them.

    Attributes:
        properties: names and values.
        ignored: names that only Java's client has.
        mistakes: unusable properties, each with its replacement; no value that may be secret is repeated.
    """

    properties: dict[str, str]
    ignored: tuple[str, ...]
    mistakes: tuple[Mistake, ...]


def translated(settings: Mapping[str, object], path: str = "") -> Translated:
    """Translate properties of a Kafka client, by the names of Java's client or of librdkafka.

    Args:
        settings: names and values.
        path: path of the block in the route file, for mistakes.

    >>> jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="x";'
    >>> translated({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas, "max.poll.records": 500}).properties
    {'sasl.mechanisms': 'SCRAM-SHA-512', 'sasl.username': 'ann', 'sasl.password': 'x'}
    >>> [str(mistake) for mistake in translated({"ssl.truststore.location": "/etc/trust.jks"}, "security").mistakes]
    ... # doctest: +ELLIPSIS
    ['security.ssl.truststore.location: a Java key store cannot be read: export ...']
    """
    texts = {name: _text(value) for name, value in settings.items()}
    properties: dict[str, str] = {}
    ignored: list[str] = []
    mistakes: list[Mistake] = []
    for name, text in texts.items():
        if name in _JAVA_ONLY:
            ignored.append(name)
            continue
        try:
            properties |= _one(name, text, texts)
        except ValueError as wrong:
            mistakes.append(Mistake(f"{path}.{name}" if path else name, str(wrong)))
    return Translated(properties, tuple(ignored), tuple(mistakes))


def _one(name: str, text: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand for one.

    Raises:
        ValueError: none do; names the replacement.
    """
    if name in _OWN:
        raise ValueError(_OWN[name])
    if name in _OWN_SILENT:
        raise ValueError("is set by turnout itself: leave it out")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(text, texts)
    return {_RENAMED.get(name, name): text}


def _jaas(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    return translated_jaas(text)


def _acks(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if text not in ("all", "-1"):
        raise ValueError(f"found {text!r}, expected all: a message counts as delivered when no replica can lose it")
    return {"acks": "all"}


def _truststore(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    if texts.get("ssl.truststore.type", "JKS").upper() == "PEM" or text.endswith((".pem", ".crt")):
        return {"ssl.ca.location": text}
    raise ValueError(
        "a Java key store cannot be read: export the authorities (keytool -exportcert -rfc) and name the file under"
        " ssl.ca.location"
    )


def _keystore(text: str, texts: Mapping[str, str]) -> dict[str, str]:
    kind = texts.get("ssl.keystore.type", "").upper()
    if kind == "PEM" or text.endswith(".pem"):
        return {"ssl.certificate.location": text, "ssl.key.location": text}
    if kind == "PKCS12" or text.endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": text}
    raise ValueError(
        "a Java key store cannot be read: name PEM files under ssl.certificate.location and ssl.key.location, or a"
        " PKCS#12 file here with ssl.keystore.type: PKCS12"
    )


def _nothing(_text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    return {}


def _trust_password(_text: str, texts: Mapping[str, str]) -> dict[str, str]:
    # A PEM file needs none, and a Java store is a mistake already.
    if "ssl.truststore.location" not in texts:
        raise ValueError("means nothing without ssl.truststore.location")
    return {}


def _host_check(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if text.lower() not in ("", "none", "https"):
        raise ValueError(f"found {text!r}, expected https, or nothing to accept any host name")
    return {"ssl.endpoint.identification.algorithm": text.lower() or "none"}


def _login_handler(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if text.rpartition(".")[2] != _OAUTH_HANDLER:
        raise ValueError("Java classes cannot be run here: use sasl.oauthbearer.method: oidc with client credentials")
    return {"sasl.oauthbearer.method": "oidc"}


def _buffer_memory(text: str, _texts: Mapping[str, str]) -> dict[str, str]:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"expected a number of bytes, found {text!r:.40}")
    kbytes = max(1, min(_LARGEST_KBYTES, int(text[:19]) // 1024))
    return {"queue.buffering.max.kbytes": str(kbytes)}


_SPECIAL: Final[dict[str, Callable[[str, Mapping[str, str]], dict[str, str]]]] = {
    "sasl.jaas.config": _jaas,
    "acks": _acks,
    "buffer.memory": _buffer_memory,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.type": _nothing,
    "ssl.truststore.password": _trust_password,
    "ssl.truststore.certificates": lambda text, _: {"ssl.ca.pem": text},
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _nothing,
    "ssl.keystore.certificate.chain": lambda text, _: {"ssl.certificate.pem": text},
    "ssl.keystore.key": lambda text, _: {"ssl.key.pem": text},
    "ssl.endpoint.identification.algorithm": _host_check,
    "sasl.login.callback.handler.class": _login_handler,
    "sasl.login.class": _login_handler,
    "sasl.client.callback.handler.class": _login_handler,
}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
