from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from turnout.errors import ConfigError
from turnout.kafka.options import KafkaOptions


def test_files_are_read_where_the_options_are_made(tmp_path: Path) -> None:
    """PEM files become texts, so that a worker needs none; nothing secret is shown, and all of it is pickled."""
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text(f"pem of {name}", encoding="utf-8")
    security = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "cert.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.key.password": "hidden",
    }

    options = KafkaOptions.of("PLAINTEXT://a:1, b:2", security)

    assert options.servers == ("a:1", "b:2")
    assert options.properties["ssl.ca.pem"] == "pem of ca"
    assert options.properties["ssl.certificate.pem"] == "pem of cert"
    assert "hidden" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("security", "path", "problem"),
    [
        ({"linger.ms": 1}, "security.linger.ms", "belongs under options"),
        ({"security.protocol": "TLS"}, "security.security.protocol", "expected one of PLAINTEXT"),
        ({"sasl.mechanism": "GSSAPI", "security.protocol": "SASL_SSL"}, "security.sasl.mechanism", "SCRAM-SHA-512"),
        ({"sasl.username": "a"}, "security.security.protocol", "has to be SASL_SSL"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "security.ssl.ca.location", "No such file"),
    ],
)
def test_mistakes(security: dict[str, object], path: str, problem: str) -> None:
    """A block that cannot work is refused before a client is made, with the property's path."""
    with pytest.raises(ConfigError) as refused:
        KafkaOptions.of("a:1", security)

    assert path in [mistake.path for mistake in refused.value.mistakes]
    assert problem in str(refused.value)
