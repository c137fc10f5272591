"""Logins and TLS against a broker that asks for them."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.integration.kafka_broker import started_broker
from tests.integration.routes import turnout, write_route
from tests.kafka.test_options import token

from turnout.embedded import free_port
from turnout.errors import StreamError, TurnoutError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.group import GroupReader, OffsetReader
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import LastRecords
from turnout.routes.endpoints import KafkaSource
from turnout.runtime.kafka.open_reader import opened
from turnout.runtime.kafka.source import KafkaSourceOptions

pytestmark = pytest.mark.kafka

MODULES = "org.apache.kafka.common.security"
PROPERTIES = f"""
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SASL://127.0.0.1:%d,TLS://localhost:%d
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:%d,TLS://localhost:%d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config={MODULES}.plain.PlainLoginModule required user_ann="hidden-plain";
listener.name.sasl.scram-sha-512.sasl.jaas.config={MODULES}.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config={MODULES}.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="broker";
listener.name.tls.ssl.client.auth=required
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location=%s/broker.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location=%s/ca.pem
"""


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pems")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for authority in ("ca", "other"):
        files = ("-keyout", f"{authority}.key", "-out", f"{authority}.pem")
        openssl(*new, "-x509", *files, "-days", "1", "-subj", f"/CN={authority} of tests")
    of_clients = "extendedKeyUsage=clientAuth"
    for name, authority, extension in (
        ("broker", "ca", "subjectAltName=DNS:localhost"),
        ("client", "ca", of_clients),
        ("stranger", "other", of_clients),
    ):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension, encoding="utf-8")
        openssl(
            "x509", "-req", "-in", f"{name}.csr",
            "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial",
            "-days", "1", "-out", f"{name}.crt", "-extfile", f"{name}.ext",
        )  # fmt: skip
        parts = [(folder / f"{name}.{end}").read_text(encoding="utf-8") for end in ("key", "crt")]
        (folder / f"{name}.pem").write_text("".join(parts), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory, pems: Path) -> Iterator[tuple[int, int]]:
    """Ports of a broker's listeners with SASL and with mTLS."""
    sasl, tls = free_port(), free_port()
    more = PROPERTIES % (sasl, tls, sasl, tls, pems, pems)
    with started_broker(tmp_path_factory.mktemp("kafka"), more) as started:
        admin = AdminClient({"bootstrap.servers": started.servers})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        given = UserScramCredentialUpsertion("bob", info, b"hidden-scram")
        admin.alter_user_scram_credentials([given])["bob"].result(10)
        yield sasl, tls


def use(options: KafkaOptions) -> None:
    """Publish something, which takes a connection with these options."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("secured", 1, {})
    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["secured"], [b"x"], [None]), lambda index, reason: pytest.fail(str(reason)))
        assert producer.flush().stored == 1


LOGINS = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required username="ann" password="hidden-plain";',
    "SCRAM-SHA-512": f'{MODULES}.scram.ScramLoginModule required username="bob" password="hidden-scram";',
    "OAUTHBEARER": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="eve";',
}


@pytest.mark.parametrize("mechanism", LOGINS)
def test_logins(ports: tuple[int, int], mechanism: str) -> None:
    """Each mechanism logs in with what Java's clients have."""
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": LOGINS[mechanism],
    }

    use(KafkaOptions.of(f"127.0.0.1:{ports[0]}", security))


def test_tokens_from_a_file_are_renewed(
    ports: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stays connected reads the file again before the token ends."""
    file, reads = tmp_path / "token", []

    def read(path: Path, **_: int) -> bytes:
        reads.append(path)
        return token("eve", 10).encode()

    monkeypatch.setattr("turnout.kafka.options.read_file", read)
    url = {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **url}
    options = KafkaOptions.of(f"127.0.0.1:{ports[0]}", security)

    use(options)
    with KafkaProducer(options) as producer:
        before = len(reads)
        while len(reads) < before + 1:
            producer.publish(KafkaMessages(["secured"], [b"x"], [None]), lambda index, reason: pytest.fail(str(reason)))
            assert producer.flush().stored == 1
            # Until then the connection is in use, but it need not be busy for eight seconds.
            time.sleep(0.05)

    assert set(reads) == {file}


@pytest.mark.parametrize(("mechanism", "user"), [("PLAIN", "ann"), ("SCRAM-SHA-512", "bob")])
def test_a_wrong_password(ports: tuple[int, int], mechanism: str, user: str) -> None:
    """It is reported immediately, with the address and without the password; no call waits for its timeout."""
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": "hidden-wrong",
    }
    options = KafkaOptions.of(f"127.0.0.1:{ports[0]}", security, timeout=3.0)

    with KafkaAdmin(options) as admin, pytest.raises(StreamError) as refused:
        admin.topics()
    with KafkaProducer(options) as producer:
        producer.publish(KafkaMessages(["secured"], [b"x"], [None]), lambda index, reason: None)
        with pytest.raises(StreamError):
            producer.flush()

    assert refused.value.code == 401
    assert "hidden" not in str(refused.value)


def mutual(pems: Path, name: str = "client") -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": f"{pems}/ca.pem",
        "ssl.certificate.location": f"{pems}/{name}.crt",
        "ssl.key.location": f"{pems}/{name}.key",
    }


def keystore(pems: Path) -> dict[str, str]:
    """A PEM file with both, by the names of Java's clients."""
    names = {"truststore": "ca", "keystore": "client"}
    return {
        "security.protocol": "SSL",
        **{f"ssl.{store}.type": "PEM" for store in names},
        **{f"ssl.{store}.location": f"{pems}/{name}.pem" for store, name in names.items()},
    }


def pkcs12(pems: Path) -> dict[str, str]:
    pair = ("-in", f"{pems}/client.crt", "-inkey", f"{pems}/client.key", "-passout", "pass:hidden-store")
    subprocess.run(["openssl", "pkcs12", "-export", *pair, "-out", f"{pems}/client.p12"], check=True)
    own = {"ssl.keystore.location": f"{pems}/client.p12", "ssl.keystore.password": "hidden-store"}
    return {"security.protocol": "SSL", "ssl.ca.location": f"{pems}/ca.pem", "ssl.keystore.type": "PKCS12", **own}


def encrypted(pems: Path) -> dict[str, str]:
    command = ["openssl", "pkcs8", "-topk8", "-in", f"{pems}/client.key", "-passout", "pass:hidden-key"]
    subprocess.run([*command, "-out", f"{pems}/locked.key"], check=True)
    return {**mutual(pems), "ssl.key.location": f"{pems}/locked.key", "ssl.key.password": "hidden-key"}


@pytest.mark.parametrize("given", [mutual, keystore, pkcs12, encrypted])
def test_both_certificates(ports: tuple[int, int], pems: Path, given: Callable[[Path], dict[str, str]]) -> None:
    """The broker is checked against the authority, and checks the client; without a certificate there is no way in."""
    security = given(pems)

    use(KafkaOptions.of(f"localhost:{ports[1]}", security))
    bare = {name: value for name, value in security.items() if not name.startswith(("ssl.key", "ssl.cert"))}
    with (
        KafkaAdmin(KafkaOptions.of(f"localhost:{ports[1]}", bare, timeout=3.0)) as admin,
        pytest.raises(TurnoutError, match=f"localhost:{ports[1]}"),
    ):
        admin.topics()


def test_renewed_certificates(
    ports: tuple[int, int],
    pems: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients that stay, and new ones of the same options, show them; a pair that does not fit is not used."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)

    def install(name: str, *ends: str) -> None:
        for end in ends:
            (tmp_path / f"own.{end}").write_bytes((pems / f"{name}.{end}").read_bytes())

    (tmp_path / "ca.pem").write_bytes((pems / "ca.pem").read_bytes())
    install("stranger", "crt", "key")
    security = mutual(tmp_path, "own")
    # As tasks have them.
    options = pickle.loads(pickle.dumps(KafkaOptions.of(f"localhost:{ports[1]}", security, timeout=5.0, patience=3.0)))
    with KafkaAdmin(options) as admin, closing(LastRecords(options)) as records:
        with pytest.raises(TurnoutError):
            admin.topics()
        with pytest.raises(TurnoutError):
            records.before({("secured", 0): 1})
        install("client", "crt")
        with pytest.raises(TurnoutError):
            admin.topics()
        assert "the renewed certificates cannot be used" in caplog.text
        install("client", "key")
        admin.topics()
        use(options)
        assert records.before({("secured", 0): 1})[("secured", 0)].offset == 0
    with KafkaProducer(options) as producer:
        install("stranger", "crt", "key")
        producer.flush()
        producer.publish(KafkaMessages(["secured"], [b"x"], [None]), lambda index, reason: None)
        with pytest.raises(TurnoutError):
            producer.flush()


def test_a_member_of_a_group_shows_renewed_certificates(
    ports: tuple[int, int], pems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins once they fit; renewed another time, it goes on where it was, and so do questions for single records."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    for end in ("crt", "key"):
        (tmp_path / f"own.{end}").write_bytes((pems / f"stranger.{end}").read_bytes())
    (tmp_path / "ca.pem").write_bytes((pems / "ca.pem").read_bytes())
    options = KafkaOptions.of(f"localhost:{ports[1]}", mutual(tmp_path, "own"), timeout=5.0, patience=3.0)
    use(KafkaOptions.of(f"localhost:{ports[1]}", mutual(pems, "client"), timeout=5.0))

    def read(group: GroupReader, seconds: float) -> list[int]:
        deadline, found = time.monotonic() + seconds, list[int]()
        while time.monotonic() < deadline:
            with suppress(TurnoutError):
                records = group.read(0.2)
                for record in records:
                    group.finish(record)
                    found.append(record.offset)
                if found and not records:
                    break
        return found

    def install() -> None:
        for end in ("crt", "key"):
            (tmp_path / f"own.{end}").write_bytes((pems / f"client.{end}").read_bytes())

    with closing(GroupReader(options, "secured", "renewed")) as group, closing(OffsetReader(options, "secured")) as one:
        assert not read(group, 2)
        install()
        first = read(group, 30)
        assert first[0] == 0
        assert one.read(0, [0]).keys() == {0}
        install()
        use(options)
        assert read(group, 30) == [first[-1] + 1]


def test_an_open_split_ends_for_renewed_certificates(
    ports: tuple[int, int], pems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one behind it, of the same options, shows them; what was read is not read again."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    for name in ("ca.pem", "client.crt", "client.key"):
        shutil.copy(pems / name, tmp_path / name)
    security = mutual(tmp_path)
    use(KafkaOptions.of(f"localhost:{ports[1]}", security))
    end = {"format": "kafka", "servers": f"localhost:{ports[1]}", "security": security, "topics": "secured"}
    options = KafkaSourceOptions.of(KafkaSource.model_validate(end))

    ours, theirs = socket.socketpair()
    with ours, theirs, opened(options, {"secured": 1}, {"secured": {"0": 0}}, ours, 0.2) as records:
        for batch in records.batches():
            if batch.num_rows:
                shutil.copy(pems / "client.crt", tmp_path / "client.crt")
        with opened(options, {"secured": 1}, records.next, ours, 0.2) as others:
            assert next(others.batches()).num_rows == 0


def test_a_route_shows_its_certificate(ports: tuple[int, int], pems: Path, tmp_path: Path) -> None:
    """Both ends of a route, its check and its run: what is read from a topic is in the other one."""
    security = mutual(pems)
    options = KafkaOptions.of(f"localhost:{ports[1]}", security)
    with KafkaAdmin(options) as admin, KafkaProducer(options) as producer:
        for topic in ("mutual.in", "mutual.out"):
            admin.create_topic(topic, 1, {})
        producer.publish(KafkaMessages(["mutual.in"], [b"x"], [None]), lambda index, reason: pytest.fail(str(reason)))
        producer.flush()
    end = {"format": "kafka", "servers": f"localhost:{ports[1]}", "security": security}
    route = {
        "name": "mutual",
        "source": {**end, "topics": "mutual.in"},
        "mappings": {"mutual.in": "mutual.out"},
        "sink": end,
    }
    path = write_route(tmp_path, json.dumps(route))

    checked = turnout("check", str(path), "--connect")
    ran = turnout("run", str(path), "--once", "--json", "--master", "local[1]")

    assert (checked.returncode, ran.returncode) == (0, 0), checked.stdout + ran.stderr
    with KafkaAdmin(options) as admin:
        (ends,) = admin.ends([("mutual.out", 0)]).values()
    assert ends.next == 1
    assert "BEGIN" not in checked.stdout + ran.stdout + ran.stderr
