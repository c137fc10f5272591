"""Options of a Kafka client, and names of Kafka's properties."""

from __future__ import annotations

import json
import pickle
import shlex
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.kafka.options import ALLOWED, AWS, COMMAND, FILE, KafkaOptions, tokens_of, translated, translated_jaas

OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def token(subject: str, seconds: float) -> str:
    """An unsecured JWT."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds})
    return ".".join([*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    """Its end and its principal are those of the JWT; without a new one the last is used as long as it lasts."""
    file = tmp_path / "token"
    file.write_text(token("eve", 100) + "\n")
    options = KafkaOptions.of("a:9092", OAUTH | {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"})
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None

    first, until, principal, _ = tokens("")
    assert (first, principal) == (file.read_text().strip(), "eve")
    assert 90 < until - time.time() <= 100
    file.write_text(token("eve", 50))
    second = tokens("")
    assert second[0] != first
    file.unlink()
    assert tokens("")[0] == second[0]
    file.write_text(token("eve", -1))
    with pytest.raises(StreamError, match="gives no token: the token has expired"):
        tokens_of(options.properties, options.servers)("")  # type: ignore[misc]


def test_a_command_prints_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an answer of OAuth 2; only a process that allows it runs commands of routes."""
    text = json.dumps({"access_token": "opaque", "expires_in": 60})
    code = f"print({text!r})"
    security = OAUTH | {"sasl.oauthbearer.token.command": shlex.join([sys.executable, "-c", code])}
    with pytest.raises(ConfigError, match=f"only with {ALLOWED}=1"):
        KafkaOptions.of("a:9092", security)

    monkeypatch.setenv(ALLOWED, "1")
    options = KafkaOptions.of("a:9092", security)
    assert COMMAND in options.properties
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None
    found, until, principal, _ = tokens("")

    assert (found, principal) == ("opaque", "")
    assert 50 < until - time.time() <= 60


def test_a_command_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its name and its status, not what it prints."""
    monkeypatch.setenv(ALLOWED, "1")
    command = f"{sys.executable} -c 'print(\"hidden\"); raise SystemExit(3)'"
    tokens = tokens_of({COMMAND: command}, ["a:9092"])
    assert tokens is not None

    with pytest.raises(StreamError, match="gives no token: it ended with 3") as failed:
        tokens("")

    assert "hidden" not in str(failed.value)


def test_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library signs a request for the region in the servers' names."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="needs the extra msk")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    options = KafkaOptions.of("b-1.x.kafka.eu-west-1.amazonaws.com:9098", security)
    assert options.properties == {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", AWS: "{}"}
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None

    signed, until, _, _ = tokens("")

    url = urlsafe_b64decode(signed + "==").decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/")
    assert "X-Amz-Signature=" in url
    assert until > time.time()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("sasl.oauthbearer.token.endpoint.url", "file://host/x", "absolute path"),
        ("sasl.jaas.config", 'x.IAMLoginModule required awsDebugCreds="true";', "awsDebugCreds cannot be used here"),
    ],
)
def test_mistakes(name: str, text: str, problem: str) -> None:
    """They are found before a client is made."""
    with pytest.raises(ConfigError, match=problem):
        KafkaOptions.of("a:9092", OAUTH | {name: text})


def test_a_url_of_a_server_is_librdkafkas() -> None:
    """Only file URLs are read here."""
    url = "https://login/token"
    options = KafkaOptions.of("a:9092", OAUTH | {"sasl.oauthbearer.token.endpoint.url": url})

    assert options.properties["sasl.oauthbearer.token.endpoint.url"] == url
    assert FILE not in options.properties


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
def test_mistakes_of_options(security: dict[str, object], path: str, problem: str) -> None:
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
