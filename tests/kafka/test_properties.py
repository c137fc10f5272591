from __future__ import annotations

import pytest

from turnout.kafka.properties import translated


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
