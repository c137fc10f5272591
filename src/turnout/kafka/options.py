"""Options of a Kafka client as one value that can be sent to another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from turnout.base.files import read_file
from turnout.errors import ConfigError, Mistake
from turnout.kafka.properties import SECURITY_PREFIXES, translated

_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Properties that name a PEM file → those with its text, so that workers need no file."""

_MOST_PEM_BYTES: Final = 1 << 20

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Servers, security and client properties, by librdkafka's names; secrets are not part of the ``repr``.

    Attributes:
        servers: ``host:port`` of each bootstrap server.
        properties: client properties.
        ignored: names of given properties that only Java's client has.
        timeout: seconds to wait for one answer.
        patience: seconds to retry while no broker answers.

    >>> KafkaOptions.of("a:9092, b:9092", {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    KafkaOptions(servers=('a:9092', 'b:9092'), ignored=(), timeout=10.0, patience=60.0)
    """

    servers: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignored: tuple[str, ...] = ()
    timeout: float = 10.0
    patience: float = 60.0

    @classmethod
    def of(
        cls,
        servers: str | Sequence[str],
        security: Mapping[str, object] | None = None,
        client: Mapping[str, object] | None = None,
        **more: float,
    ) -> Self:
        """Options from properties as a route has them; PEM files are read on this machine.

        Args:
            servers: addresses, as a list or a text with commas.
            security: properties of the ``security`` block, by the names of Java's clients or of librdkafka.
            client: other client properties, likewise.
            more: attributes of this class.

        Raises:
            ConfigError: lists every mistake; no value that may be secret is repeated.
        """
        names = servers.split(",") if isinstance(servers, str) else servers
        # Java's clients accept a protocol before the host, and use only host and port.
        hosts = tuple(name.strip().rpartition("://")[2] for name in names if name.strip())
        secured, others = translated(security or {}, "security"), translated(client or {}, "options")
        mistakes = [*secured.mistakes, *others.mistakes, *security_mistakes(security or {})]
        properties = {**others.properties, **secured.properties}
        for name in _FILES.keys() & properties.keys():
            try:
                properties |= _read(name, properties.pop(name))
            except (OSError, ValueError) as failure:
                reason = getattr(failure, "strerror", None) or failure
                mistakes.append(Mistake(f"security.{name}", f"the file cannot be read: {reason}"))
        if mistakes:
            raise ConfigError(mistakes, what="Kafka client")
        return cls(hosts, properties, (*secured.ignored, *others.ignored), **more)

    @property
    def isolation(self) -> str:
        """Isolation level of consumers: ``read_committed``, unless a property has another."""
        return self.properties.get("isolation.level", "read_committed")


def security_mistakes(security: Mapping[str, object]) -> list[Mistake]:
    """Return the mistakes of a ``security`` block that need no file and no server."""
    mistakes = list(translated(security, "security").mistakes)
    strange = [name for name in security if not name.startswith(SECURITY_PREFIXES)]
    mistakes += [
        Mistake(f"security.{name}", "is no property of security: it belongs under options") for name in strange
    ]
    for name, allowed in (("security.protocol", SECURITY_PROTOCOLS), ("sasl.mechanism", MECHANISMS)):
        text = str(security.get(name, allowed[0])).upper()
        if text not in allowed:
            mistakes.append(Mistake(f"security.{name}", f"found {text!r:.40}, expected one of {', '.join(allowed)}"))
    uses_sasl = any(name.startswith(("sasl.", "enable.sasl.")) for name in security)
    if uses_sasl and not str(security.get("security.protocol", "")).upper().startswith("SASL_"):
        problem = "has to be SASL_SSL or SASL_PLAINTEXT, as properties of SASL are given"
        mistakes.append(Mistake("security.security.protocol", problem))
    return list(dict.fromkeys(mistakes))


def _read(name: str, path: str) -> dict[str, str]:
    """Return the property with a file's text; a folder of authorities is kept as a path."""
    file = Path(path).expanduser()
    if file.is_dir() or path == "probe":
        return {name: path}
    return {_FILES[name]: read_file(file, max_bytes=_MOST_PEM_BYTES).decode("utf-8")}
