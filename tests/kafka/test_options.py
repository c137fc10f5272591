"""Options of a Kafka client, and names of Kafka's properties."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from turnout.errors import ConfigError
from turnout.kafka.options import KafkaOptions, translated, translated_jaas


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


MODULES = "org.apache.kafka.common.security"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'{MODULES}.scram.ScramLoginModule REQUIRED\n username="a=b" password=\'it"s\';',
            {"sasl.username": "a=b", "sasl.password": 'it"s'},
        ),
        (
            f'{MODULES}.plain.PlainLoginModule required password="a\\"b\\\\" username=ann ;',
            {"sasl.username": "ann", "sasl.password": 'a"b\\'},
        ),
        (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId=id clientSecret=s scope=x extension_p=q;",
            {
                "sasl.oauthbearer.client.id": "id",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "x",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.extensions": "p=q",
            },
        ),
        (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann";',
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"},
        ),
    ],
)
def test_login_modules(text: str, expected: dict[str, str]) -> None:
    """Options of Java's login modules are the properties that stand for them; quotes and escapes are Java's."""
    assert translated_jaas(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "use SCRAM, OAUTHBEARER"),
        ("com.example.OwnLoginModule required;", "OwnLoginModule has no equivalent"),
        (f'{MODULES}.plain.PlainLoginModule required username="hidden";', "password is missing"),
        (f"{MODULES}.plain.PlainLoginModule required username=a password=hidden user_b=hidden;", "user_b"),
        (f'{MODULES}.plain.PlainLoginModule required username="hidden', "cannot be read after character"),
        (f'{MODULES}.plain.PlainLoginModule required password="hidden" username="a"', "final ';'"),
    ],
)
def test_texts_without_an_equivalent(text: str, problem: str) -> None:
    """An untranslatable text is refused with its replacement, and without its values."""
    with pytest.raises(ValueError, match=problem) as refused:
        translated_jaas(text)

    assert "hidden" not in str(refused.value)


def test_long_text() -> None:
    """A megabyte without an end is refused in a time that grows as its length does."""
    begun = time.process_time()
    with pytest.raises(ValueError, match="cannot be read"):
        translated_jaas("PlainLoginModule required " + 'username="' + "\\" * 1_000_001)

    assert time.process_time() - begun < 5


def test_names_of_javas_client() -> None:
    """Renamed properties have librdkafka's name, units are converted, and those of Java alone are told."""
    given = {
        "max.request.size": 2_000_000,
        "buffer.memory": "33554432",
        "max.poll.records": 500,
        "linger.ms": 7,
        "enable.ssl.certificate.verification": False,
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca",
        "ssl.keystore.certificate.chain": "-----BEGIN",
    }

    found = translated(given)

    assert found.properties == {
        "message.max.bytes": "2000000",
        "queue.buffering.max.kbytes": "32768",
        "linger.ms": "7",
        "enable.ssl.certificate.verification": "false",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/etc/ca",
        "ssl.certificate.pem": "-----BEGIN",
    }
    assert (found.ignored, found.mistakes) == (("max.poll.records",), ())


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("bootstrap.servers", "a:1", "is the option servers"),
        ("enable.auto.commit", "true", "is set by turnout itself"),
        ("acks", "1", "expected all"),
        ("ssl.truststore.location", "/etc/trust.jks", "ssl.ca.location"),
        ("ssl.keystore.location", "/etc/key.jks", "ssl.certificate.location"),
        ("ssl.truststore.password", "hidden", "means nothing without"),
        ("ssl.endpoint.identification.algorithm", "hosts", "expected https"),
        ("sasl.login.callback.handler.class", "com.example.Own", "Java classes cannot be run"),
        ("buffer.memory", "1e9", "expected a number of bytes"),
        ("sasl.jaas.config", "x required password=hidden;", "has no equivalent"),
    ],
)
def test_properties_without_an_equivalent(name: str, value: str, problem: str) -> None:
    """A property that cannot be used is a mistake under its own name, with what to write instead."""
    [mistake] = translated({name: value}, "security").mistakes

    assert mistake.path == f"security.{name}"
    assert problem in mistake.problem
    assert "hidden" not in mistake.problem
