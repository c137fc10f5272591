"""Every grpcurl body of the original's README, word for word, with a client made from the published proto.

The client's messages are built at run time from a descriptor that protoc makes of the .proto file, as grpcurl
does it: nothing of the generated code is used.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

import turnout.rpc
from tests.contracts.linearizable import check_linearizable
from tests.contracts.store import subscription
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub

SOURCE = Path(turnout.rpc.__file__).parents[2]

CREATE = (
    '{"metadata" :{"description": "my subscription"}, "route": { "destinations": ["dst0"], "condition": '
    '{"kiwiTreeCondition": {"not" :false, "key": "key0", "pattern": "pattern*", "partial": false}}}}'
)
CREATE_ANOTHER = (
    '{"metadata": {"name": "sub1", "description": "my subscription 1"}, "route": {"destinations": ["dst1"], '
    '"condition": {"groupCondition": {"not": false, "logic": 0, "group": [{"kiwiTreeCondition": {"not": false, '
    '"key": "key0", "pattern": "pattern?", "partial": false}}, {"kiwiTreeCondition": {"not": true, "key": "key1", '
    '"pattern": "pattern1", "partial": true}}]}}}}'
)
READ = '{"id": "3426d090-1b8a-4a09-ac9c-41f2de24d5ac"}'
DELETE = '{"id": "f7102c87-3ce4-4bb0-8527-b4644f685b13"}'
SEARCH_BY_CONDITION = '{"limit": 100, "kiwiConditionQuery": {"key": "key0", "pattern": "pattern*", "partial": false}}'
SEARCH_BY_METADATA = '{"limit": 100, "metadata": {"description": "my subscription"}}'


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The descriptors of the published proto."""
    out = tmp_path_factory.mktemp("proto") / "set.pb"
    proto = SOURCE / "turnout/rpc/v1/subscriptions.proto"
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = ["", f"-I{SOURCE}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}", str(proto)]

    assert protoc.main(arguments) == 0

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    return pool


@pytest.fixture
def grpcurl(pool, server):
    """Call a method with a JSON body, and get a JSON body."""
    service = pool.FindServiceByName("subscriptions.Service")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:

        def call(method: str, body: str) -> dict:
            described = service.methods_by_name[method]
            request = message_factory.GetMessageClass(described.input_type)()
            json_format.Parse(body, request, descriptor_pool=pool)
            response = message_factory.GetMessageClass(described.output_type)
            stub = channel.unary_unary(
                f"/{service.full_name}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            answer = stub(request, timeout=10)
            return json.loads(json_format.MessageToJson(answer, descriptor_pool=pool))

        yield call


def status(grpcurl, method: str, body: str) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as refused:
        grpcurl(method, body)
    return refused.value.code().name, refused.value.details()


def test_create(grpcurl):
    """4.1: the answer is a UUID."""
    assert str(uuid.UUID(grpcurl("Create", CREATE)["id"]))


def test_create_and_read_another(grpcurl):
    """4.1, the group: what is read is what was created, with ids."""
    created = grpcurl("Create", CREATE_ANOTHER)["id"]
    response = grpcurl("Read", READ.replace("3426d090-1b8a-4a09-ac9c-41f2de24d5ac", created))
    group = response["route"]["condition"]["groupCondition"]
    first, second = (child["kiwiCondition"] for child in group["group"])

    assert response["metadata"] == {"name": "sub1", "description": "my subscription 1"}
    assert response["route"]["destinations"] == ["dst1"]
    assert group.get("logic", "And") == "And"
    assert (first["key"], first["pattern"]) == ("key0", "pattern?")
    assert (second["key"], second["pattern"], second["not"], second["partial"]) == ("key1", "pattern1", True, True)
    assert all(uuid.UUID(node["id"]) for node in (group, first, second))


def test_read_unknown(grpcurl):
    """4.2: the id of the example is not there."""
    code, details = status(grpcurl, "Read", READ)

    assert code == "NOT_FOUND"
    assert "3426d090-1b8a-4a09-ac9c-41f2de24d5ac" in details


def test_delete_unknown(grpcurl):
    """4.3: the id of the example is not there."""
    assert status(grpcurl, "Delete", DELETE)[0] == "NOT_FOUND"


def test_delete(grpcurl):
    """4.3: the answer is empty, and the subscription is gone."""
    created = grpcurl("Create", CREATE)["id"]

    assert grpcurl("Delete", json.dumps({"id": created})) == {}
    assert status(grpcurl, "Read", json.dumps({"id": created}))[0] == "NOT_FOUND"


def test_a_projection(grpcurl, store):
    """``project`` of a `Create` is stored, and part of the answers of `Read` and `SearchByMetadata`."""
    body = json.loads(CREATE)
    body.update(project="{'to': value.city}", metadata={"owner": "projecting"})
    created = grpcurl("Create", json.dumps(body))["id"]
    (found,) = grpcurl("SearchByMetadata", '{"limit": 10, "metadata": {"owner": "projecting"}}')["page"]

    assert grpcurl("Read", json.dumps({"id": created}))["project"] == "{'to': value.city}"
    assert found["data"]["project"] == "{'to': value.city}"
    assert store.read(created).project == "{'to': value.city}"


def test_a_projection_that_is_no_expression(grpcurl):
    """It is refused with its position, and nothing is stored."""
    body = json.loads(CREATE)
    body.update(project="{'to': value.", metadata={"owner": "projecting wrongly"})

    code, details = status(grpcurl, "Create", json.dumps(body))

    assert code == "INVALID_ARGUMENT"
    assert "project" in details
    assert grpcurl("SearchByMetadata", '{"limit": 10, "metadata": {"owner": "projecting wrongly"}}') == {}


def test_search_by_condition(grpcurl):
    """4.4.1: the first example is found by its pattern, with the id of its leaf; the second one is not."""
    created = grpcurl("Create", CREATE)["id"]
    grpcurl("Create", CREATE_ANOTHER)
    (response,) = grpcurl("SearchByCondition", SEARCH_BY_CONDITION)["page"]
    leaf = response["route"]["condition"]["kiwiCondition"]

    assert response["subscriptionId"] == created
    assert response["conditionId"] == leaf["id"]
    assert response["route"]["destinations"] == ["dst0"]


def test_search_by_metadata(grpcurl):
    """4.4.2: the first example is found by its description; the second one is not."""
    created = grpcurl("Create", CREATE)["id"]
    grpcurl("Create", CREATE_ANOTHER)
    (response,) = grpcurl("SearchByMetadata", SEARCH_BY_METADATA)["page"]

    assert response["id"] == created
    assert response["data"]["metadata"] == {"description": "my subscription"}


def test_pages(grpcurl):
    """5.2.2: limit and the last id of a page give the next one, in the order of ids."""
    ids = sorted(grpcurl("Create", CREATE)["id"] for _ in range(5))
    pages, cursor = [], ""
    for _ in range(3):
        query = {**json.loads(SEARCH_BY_CONDITION), "limit": 2, "cursor": cursor}
        page = grpcurl("SearchByCondition", json.dumps(query))["page"]
        pages += [match["subscriptionId"] for match in page]
        cursor = pages[-1]

    assert pages == ids


def tree(pattern: str, **more) -> dict:
    return {"kiwiTreeCondition": {"key": "k", "pattern": pattern, **more}}


def group(*children, **more) -> dict:
    return {"groupCondition": {"group": list(children), **more}}


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"condition": tree("p")}, "route.destinations: at least one"),
        ({"destinations": ["d"]}, "route.condition: a condition is missing"),
        ({"destinations": ["d"], "condition": {}}, "route.condition: a condition is missing"),
        ({"destinations": [" "], "condition": tree("p")}, "route.destinations[0]"),
        ({"destinations": ["d", "a b"], "condition": tree("p")}, "route.destinations[1]: 'a b' cannot be published to"),
        ({"destinations": ["out.>"], "condition": tree("p")}, "'out.>' cannot be published to: a token cannot begin"),
        ({"destinations": ["x" * 5000], "condition": tree("p")}, "5,000 bytes, at most 2,048"),
        ({"destinations": ["$JS.API.X"], "condition": tree("p")}, "'$JS.API.X' is not allowed"),
        ({"destinations": ["d"], "condition": tree("p", **{"not": True})}, "LIM-1"),
        ({"destinations": ["d"], "condition": group(tree("p"), tree("q"), **{"not": True})}, "LIM-1"),
        ({"destinations": ["d"], "condition": group(tree("p"))}, "two children or more, found 1"),
        ({"destinations": ["d"], "condition": group()}, "empty"),
        (
            {"destinations": ["d"], "condition": group(tree("p"), tree("q"), tree("p"))},
            "route.condition.group[2]: the same as group[0]",
        ),
        (
            {"destinations": ["d"], "condition": group(tree("p"), group(tree("q"), tree("q"), logic="Or"))},
            "route.condition.group[1].group[1]: the same as group[0]",
        ),
        (
            {"destinations": ["d"], "condition": group(tree("p", **{"not": True}), tree("q", **{"not": True}))},
            "every child of the root is negated",
        ),
        ({"destinations": ["d"], "condition": tree("a*b")}, "kiwi bird takes it anywhere"),
        ({"destinations": ["d"], "condition": tree("a\\")}, "ends in a backslash"),
        ({"destinations": ["d"], "condition": {"kiwiTreeCondition": {"pattern": "p"}}}, "needs the key"),
        ({"destinations": ["d"], "condition": group(tree("p"), tree("q"), logic=7)}, "found 7"),
        (
            {"destinations": ["d"], "condition": {"compareCondition": {"key": "k", "op": "~", "number": 1}}},
            "no comparison is written '~'",
        ),
        (
            {"destinations": ["d"], "condition": {"cidrCondition": {"key": "k", "network": "10.0.0.1/8"}}},
            "not a network",
        ),
    ],
)
def test_refused(grpcurl, route, words):
    """A violated rule is INVALID_ARGUMENT, with the path and the reason."""
    code, details = status(grpcurl, "Create", json.dumps({"route": route}))

    assert code == "INVALID_ARGUMENT"
    assert words in details


@pytest.mark.parametrize(
    "condition",
    [
        group(tree("p"), tree("p", partial=True), tree("p", **{"not": True})),
        group(tree("p"), tree("q", **{"not": True}), logic="Xor"),
        {"kiwiCondition": {"key": "k", "pattern": "*a?b*", "ignoreCase": True}},
        group({"compareCondition": {"key": "k", "op": ">=", "number": 3}}, {"existsCondition": {"key": "k"}}, logic=1),
        {"cidrCondition": {"key": "k", "network": "2001:db8::/32"}},
    ],
)
def test_accepted(grpcurl, condition):
    """Unusual but valid subscriptions are accepted and read back unchanged."""
    created = grpcurl("Create", json.dumps({"route": {"destinations": ["d"], "condition": condition}}))["id"]
    response = grpcurl("Read", json.dumps({"id": created}))["route"]["condition"]

    assert without_ids(response) == without_ids(condition)


def without_ids(value):
    """The condition with what input and output write differently made alike."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if not isinstance(value, dict):
        return {"1": "Or"}.get(str(value), value)
    value = {"kiwiCondition" if name == "kiwiTreeCondition" else name: one for name, one in value.items()}
    return {name: without_ids(one) for name, one in value.items() if name not in ("id", "tree")}


def test_explained_matches(server, store, monkeypatch):
    """More matches than are explained at once are RESOURCE_EXHAUSTED; without explanations they are given."""
    monkeypatch.setattr("turnout.rpc.subscriptions.MAX_EXPLAINED", 2)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = MatchingStub(channel)
        for count in range(1, 4):
            store.create(subscription())
            request = matching_pb2.MatchRequest(metadata={"subject": "orders"}, explain=True)
            if count <= 2:
                assert all(match.explanation.holds for match in stub.Match(request, timeout=10).matches)
                continue
            with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
                stub.Match(request, timeout=10)
            request.explain = False
            assert len(stub.Match(request, timeout=10).matches) == count


def test_match_beside_changes(server, store):
    """A call of Match that begins after Create or Delete has returned sees it, whatever other calls do meanwhile."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = MatchingStub(channel)

        def match() -> tuple[set[str], int]:
            answer = stub.Match(matching_pb2.MatchRequest(metadata={"subject": "orders"}), timeout=30)
            return {match.subscription_id for match in answer.matches}, answer.revision

        check_linearizable(lambda id_: store.create(subscription(id=id_)), store.delete, match)
