"""The same transforms and mappings on a real nats-server: it must do what the library does."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tests.examples import drawn
from tests.integration.nats_socket import NatsSocket
from tests.subjects import strategies
from tests.vectors.mappings import config_of
from tests.vectors.subject_transform import name_of

from turnout.embedded import NatsServer, _version, find_nats_server
from turnout.errors import SubjectError
from turnout.subjects import MappingTable, SubjectTransform, is_publishable, mappings_in, parse_config
from turnout.subjects.functions import account_hash
from turnout.subjects.pattern import decode, encode

VECTORS = Path(__file__).parents[1] / "vectors" / "subjects"
MESSAGES = 1_000


def _vectors(file: str) -> dict[str, Any]:
    vectors: dict[str, Any] = json.loads((VECTORS / file).read_text(encoding="utf-8"))
    return vectors


@lru_cache(maxsize=1)
def _server_version() -> tuple[int, ...]:
    return _version(find_nats_server())


def _holds(vector: dict[str, Any]) -> bool:
    """Return whether a vector holds for the library, and for the server that is there."""
    version = _server_version()
    since, until = (
        tuple(map(int, text.split("."))) if (text := vector.get(name)) else None for name in ("since", "until")
    )
    return until is None and (since is None or version >= since)


@pytest.fixture(scope="module")
def jetstream() -> Iterator[NatsSocket]:
    with NatsServer() as server, NatsSocket(server.port) as client:
        yield client


def _stored_as(client: NatsSocket, transform: dict[str, str], subject: str) -> str | int:
    """The subject under which a stream with *transform* stores a message, or the error code of its creation."""
    config = {
        "name": "S",
        "subjects": [subject],
        "storage": "memory",
        "allow_direct": True,
        "subject_transform": transform,
    }
    _, answer = client.request(b"$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
    error = json.loads(answer).get("error")
    if error:
        return int(error["err_code"])
    try:
        client.request(encode(subject), b"x")
        headers, _ = client.request(b"$JS.API.DIRECT.GET.S", b'{"seq":1}')
    finally:
        client.request(b"$JS.API.STREAM.DELETE.S")
    lines = [line.partition(b": ") for line in headers.split(b"\r\n")]
    return decode(next(value for name, _, value in lines if name == b"Nats-Subject"))


def _ours(source: str, destination: str, subject: str) -> str:
    """Return the subject that a stream stores: the subject itself if the transform does not match."""
    try:
        return SubjectTransform.parse(source, destination).apply(subject)
    except LookupError:
        return subject


def test_streams_store_every_vector_as_the_library_says(jetstream: NatsSocket) -> None:
    """Each vector that can be a stream's subject_transform: the stored subject, or that it is refused."""
    compared, differences = 0, []
    for v in _vectors("subject-transform.json")["vectors"]:
        chance = "random(" in v["destination"].lower()
        usable = "stream" in v["live"] and "stream" not in v.get("live_differs", {}) and not chance
        usable = usable and _holds(v)
        if not usable or not is_publishable(v["subject"]) or not v["destination"]:
            continue
        theirs = _stored_as(jetstream, {"src": v["source"], "dest": v["destination"]}, v["subject"])
        try:
            ours: str | int = _ours(v["source"], v["destination"], v["subject"])
        except SubjectError:
            ours = 0
        compared += 1
        if ours != (0 if isinstance(theirs, int) else theirs):
            differences.append((name_of(v), ours, theirs))

    assert differences == []
    assert compared > 180


def test_streams_store_generated_transforms_as_the_library_says(jetstream: NatsSocket) -> None:
    """500 transforms, with characters of several bytes cut through."""
    differences = []
    for case in drawn(strategies.cases(chance=False), 500):
        theirs = _stored_as(jetstream, {"src": case.source, "dest": case.destination}, case.subject)
        ours = _ours(case.source, case.destination, case.subject)
        if ours != theirs:
            differences.append((case, ours, theirs))

    assert differences == []


def _accounts(tables: list[dict[str, Any]]) -> str:
    """A configuration with one account for each table of mappings."""
    accounts = {
        f"A{n}": {"users": [{"user": f"a{n}", "password": "x"}], "mappings": table} for n, table in enumerate(tables)
    }
    return json.dumps({"accounts": accounts}, indent=1, ensure_ascii=False)


def _delivered(port: int, account: int, subject: str, messages: int = 1) -> Counter[str]:
    """The subjects on which messages arrive that an account's client publishes; "" counts those that do not."""
    with NatsSocket(port, f"a{account}", "x") as client:
        client.subscribe(b">")
        client.flush()
        for _ in range(messages):
            client.publish(encode(subject), b"x")
        counts = Counter(decode(to) for to, _, data in client.flush() if data == b"x")
    if counts.total() < messages:
        counts[""] = messages - counts.total()
    return counts


@pytest.mark.heavy
def test_accounts_deliver_generated_mappings_as_the_library_says() -> None:
    """300 accounts of a server with one mapping each: where a published message arrives."""
    cases = drawn(strategies.mapping_cases(), 300)
    tables: list[dict[str, Any]] = [{case.source: case.destination} for case in cases]
    text = _accounts(tables)
    differences = []
    with NatsServer(config=text, jetstream=False) as server:
        for number, (table, case) in enumerate(zip(tables, cases, strict=True)):
            expected = MappingTable.from_config(table).apply(case.subject)
            # A mapped subject with an empty token is delivered to nobody; one with a "*" that split() cut free is.
            ours = "" if expected is None or "" in expected.split(".") else expected
            theirs = _delivered(server.port, number, case.subject)
            if theirs != Counter({ours: 1}):
                differences.append((case, ours, theirs))

    assert differences == []
    parsed = parse_config(text)
    assert [mappings_in(parsed, f"A{n}") for n in range(len(cases))] == tables


@pytest.mark.parametrize("cluster", ["", "west", "south"])
def test_accounts_share_messages_out_as_the_library_says(cluster: str) -> None:
    """Weights, clusters, completion and loss: the shares of 1,000 messages, within five standard deviations."""
    cases = _vectors("mappings.json")["distribution"]
    arguments = ["--cluster_name", cluster] if cluster else []
    wrong = []
    with NatsServer(config=_accounts([config_of(v) for v in cases]), jetstream=False, arguments=arguments) as server:
        for number, v in enumerate(cases):
            table = MappingTable.from_config(config_of(v))
            ours = Counter(table.apply(v["publish"], cluster, (n + 0.5) / 100) or "" for n in range(100))
            theirs = _delivered(server.port, number, v["publish"], MESSAGES)
            for subject in set(ours) | set(theirs):
                share = ours[subject] / 100
                spread = 5 * (MESSAGES * share * (1 - share)) ** 0.5
                if abs(theirs[subject] - MESSAGES * share) > spread:
                    wrong.append((v["name"], subject, ours[subject], theirs[subject]))

    assert wrong == []


def test_the_server_accepts_and_refuses_the_configurations_that_we_do(tmp_path: Path) -> None:
    """Each validation vector through ``nats-server -t``; but for the empty destination, which crashes it later."""

    def accepted(numbered: tuple[int, dict[str, Any]]) -> bool:
        number, vector = numbered
        file = tmp_path / f"{number}.conf"
        file.write_text(vector["config"], encoding="utf-8")
        return subprocess.run([find_nats_server(), "-t", "-c", file], capture_output=True, check=False).returncode == 0

    def ours(vector: dict[str, Any]) -> bool:
        try:
            MappingTable.from_config(mappings_in(parse_config(vector["config"])))
        except SubjectError:
            return False
        return True

    cases = [v for v in _vectors("mappings.json")["validation"] if not v.get("server_crash")]
    with ThreadPoolExecutor(2) as pool:
        theirs = list(pool.map(accepted, enumerate(cases)))

    assert {v["name"]: ours(v) for v in cases} == {v["name"]: their for v, their in zip(cases, theirs, strict=True)}
    assert not all(theirs)


# What the server writes for each of our reasons, when it refuses an import.
SAYS = {
    "not_using_all_wildcards": "not using all of the token wildcard(s)",
    "not_supported_for_import": "the only mapping function allowed for import",
    "unknown_function": "unknown function",
}


def test_the_server_refuses_the_imports_that_strict_transforms_refuse(tmp_path: Path) -> None:
    """Each strict vector as a stream import between two accounts, and for the same reason."""
    compared, differences = 0, []
    for v in _vectors("subject-transform.json")["vectors"]:
        if "import" not in v["live"] or "live_differs" in v:
            continue
        imported = {"stream": {"account": "A", "subject": v["source"]}, "to": v["destination"]}
        accounts = {"A": {"exports": [{"stream": ">"}]}, "B": {"imports": [imported]}}
        file = tmp_path / "import.conf"
        file.write_text(json.dumps({"accounts": accounts}, ensure_ascii=False), encoding="utf-8")
        completed = subprocess.run([find_nats_server(), "-t", "-c", file], capture_output=True, text=True, check=False)
        try:
            SubjectTransform.parse(v["source"], v["destination"], strict=True)
            agrees = completed.returncode == 0
        except SubjectError as failure:
            agrees = completed.returncode != 0 and SAYS[getattr(failure, "reason", "")] in completed.stderr
        compared += 1
        if not agrees:
            differences.append((name_of(v), completed.stderr))

    assert differences == []
    assert compared > 15


def test_a_token_that_starts_with_a_star_and_an_accounts_hash_on_the_server() -> None:
    """From 2.15.3 on accounts map as the library does; older servers are asked for nothing."""
    if _server_version() < (2, 15, 3):
        pytest.skip("needs nats-server 2.15.3 or newer, on PATH")
    tables: list[dict[str, Any]] = [
        {"*foo": "bar"}, {"a.*b": "a.bar"}, {"foo.*": "x.{{account-hash()}}.$1"}, {"{{account-hash()}}.a": "b"},
    ]  # fmt: skip
    text = _accounts(tables)
    config = parse_config(text)
    differences = []
    with NatsServer(config=text, jetstream=False) as server:
        for number in range(len(tables)):
            table = MappingTable.from_config(mappings_in(config, f"A{number}"))
            for subject in ("xyz", "*foo", "a.zzz", "a.*b", "foo.1", f"{account_hash(f'A{number}')}.a"):
                ours = table.apply(subject) or ""
                theirs = _delivered(server.port, number, subject)
                if theirs != Counter({ours: 1}):
                    differences.append((tables[number], subject, ours, theirs))

    assert differences == []
