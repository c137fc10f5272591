"""``turnout subscriptions`` and ``turnout kiwi-tree`` as a person or a script runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import grpc
import pytest

from turnout.cli.subscriptions import changes
from turnout.errors import StoreUnavailableError
from turnout.nats.wire import Connection, create_stream
from turnout.rpc.v1 import kiwi_tree_pb2, kiwi_tree_pb2_grpc
from turnout.subscriptions import lines
from turnout.subscriptions.sealing import SECRET_KEY

pytestmark = pytest.mark.subscriptions


def created(turnout, *arguments: str, **given) -> str:
    code, out, err = turnout("subscriptions", "create", *arguments, **given)

    assert code == 0, err
    return out.strip()


def condition_of(turnout, id_: str) -> dict:
    return json.loads(turnout("subscriptions", "read", id_)[1])["route"]["condition"]


def test_create_from_text(turnout):
    """The text syntax makes the condition; destinations and metadata come from flags."""
    id_ = created(turnout, "subject:orders* AND NOT location:Helsinki", "--to", "a", "--to", "b", "--meta", "name=n")
    output = json.loads(turnout("subscriptions", "read", id_)[1])
    group = output["route"]["condition"]["groupCondition"]

    assert (output["id"], output["metadata"], output["route"]["destinations"]) == (id_, {"name": "n"}, ["a", "b"])
    assert group["logic"] == "And"
    assert [next(iter(child.values()))["pattern"] for child in group["group"]] == ["orders*", "Helsinki"]


def test_create_from_flags(turnout):
    """Leaves by flags are coupled by one logic."""
    flags = ["--has", "a=x*", "--has-word", "b=y", "--has-not", "c=z=1", "--logic", "xor"]
    group = condition_of(turnout, created(turnout, *flags, "--to", "d"))["groupCondition"]
    first, second, third = (child["kiwiCondition"] for child in group["group"])

    assert group["logic"] == "Xor"
    assert (first["key"], first["pattern"]) == ("a", "x*")
    assert second["partial"] is True
    assert (third["pattern"], third["not"]) == ("z=1", True)


def test_create_from_json(turnout):
    """A body of the original's Create does, given or on standard input; --json prints the id in an object."""
    body = '{"route": {"destinations": ["d"], "condition": {"kiwiTreeCondition": {"key": "k", "pattern": "p*"}}}}'
    for arguments, stdin in (((body,), ""), (("-",), body)):
        id_ = json.loads(created(turnout, "--body", *arguments, "--json", stdin=stdin))["id"]
        assert condition_of(turnout, id_)["kiwiTreeCondition"]["pattern"] == "p*"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "d"], "give the condition once"),
        (["k:v", "--has", "a=b", "--to", "d"], "give the condition once"),
        (["k:v"], "route.destinations: at least one"),
        (["--has-not", "a=b", "--to", "d"], "LIM-1"),
        (["--has", "a", "--to", "d"], "--has: expected name=value, found 'a'"),
        (["k:v", "--to", "d", "--meta", "x"], "--meta: expected name=value"),
        (["--body", "{"], "--body: not JSON"),
        (["--body", "{}", "--to", "d"], "leave the options for its parts out"),
        (["k:v", "--to", "d", "--store", "redis://x"], "no store is named 'redis://x'"),
        (["k:v", "--to", "d", "--store", "grpc://"], "names no host"),
        (["k:v", "--to", "d", "--store", "grpc://h:1?ca=/nowhere"], "/nowhere"),
        (["k:v AND", "--to", "d"], ""),
    ],
)
def test_wrong_requests(turnout, arguments, words):
    """Invalid requests end with 2, a reason on standard error, and nothing stored."""
    code, out, err = turnout("subscriptions", "create", *arguments)

    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_unknown_id(turnout):
    """An unknown id ends with 1."""
    created(turnout, "--has", "k=v", "--to", "d")

    for command in ("read", "delete", "explain"):
        code, _, err = turnout("subscriptions", command, "nobody")
        assert (code, err) == (1, "turnout: no subscription has the id 'nobody'\n")


def test_delete(turnout):
    """Several ids go at once."""
    ids = [created(turnout, "--has", f"k=v{n}", "--to", "d") for n in range(2)]

    assert turnout("subscriptions", "delete", *ids)[0] == 0
    assert turnout("subscriptions", "search")[1] == ""


def test_delete_from_a_file(turnout, tmp_path):
    """Ids of a file or of standard input are deleted together; one that does not exist keeps all others."""
    ids = [created(turnout, "--has", f"k=v{n}", "--to", "d") for n in range(4)]
    file = tmp_path / "ids"
    file.write_text(f"{ids[0]}\n\n{ids[1]}\nnobody\n")

    failed = turnout("subscriptions", "delete", "--ids", str(file))
    file.write_text(f"{ids[0]}\n\n{ids[1]}\n")
    done = turnout("subscriptions", "delete", "--ids", str(file))
    rest = turnout("subscriptions", "delete", "--ids", "-", stdin="\r\n".join(ids[2:]))

    assert (failed[0], failed[2]) == (1, "turnout: no subscription has the id 'nobody'\n")
    assert (done[0], done[2]) == (0, "2 deleted\n")
    assert (rest[0], rest[2]) == (0, "2 deleted\n")
    assert turnout("subscriptions", "delete")[0] == 2
    assert turnout("subscriptions", "delete", "a", "--ids", str(file))[0] == 2


def test_delete_in_batches(turnout, monkeypatch):
    """Each batch is whole or not at all, and an error says how many are deleted for good."""
    monkeypatch.setattr(changes, "_BATCH", 2)
    ids = [created(turnout, "--has", f"k=v{n}", "--to", "d") for n in range(6)]
    failed = turnout("subscriptions", "delete", "--ids", "-", stdin="\n".join([*ids[:3], "nobody", *ids[4:]]))
    done = turnout("subscriptions", "delete", "--ids", "-", stdin="\n".join([*ids[2:], ids[2]]))

    assert (failed[0], failed[2]) == (1, "2 deleted before that\nturnout: no subscription has the id 'nobody'\n")
    assert (done[0], done[2]) == (0, "4 deleted\n")


def test_search(turnout):
    """Search by leaf or by metadata, a page at a time."""
    ids = sorted(created(turnout, "--has", "k=v*", "--to", "d", "--meta", "by=me") for _ in range(3))
    created(turnout, "--has", "k=w", "--to", "d")
    _, out, err = turnout("subscriptions", "search", "--key", "k", "--pattern", "v*", "--limit", "2")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ids[:2]

    found = re.search(r"--cursor (\S+)", err)
    assert found is not None
    cursor = found.group(1)
    page = turnout("subscriptions", "search", "--meta", "by=me", "--limit", "2", "--cursor", cursor, "--json")[1]
    assert [load["id"] for load in json.loads(page)["page"]] == ids[2:]
    assert json.loads(page)["cursor"] == ""
    for wrong in (
        ["--pattern", "v"],
        ["--key", "k", "--partial"],
        ["--kind", "none"],
        ["--leaf", "a:1 AND b:2"],
        ["--text", ""],
    ):
        name = wrong[-1 if "--partial" in wrong else -2].lstrip("-")
        code, _, err = turnout("subscriptions", "search", *wrong)
        assert (code, f"{name}: " in err) == (2, True)


def found(turnout, *options: str) -> str:
    code, out, err = turnout("subscriptions", "search", *options)
    assert code == 0, err
    return "".join(json.loads(line)["id"] for line in out.splitlines())


def test_search_by_any_part(turnout):
    """The options of a search are those of REST, and all that are given count."""
    for id_, condition, to in (("a", "city:Oulu AND n>5", "x.oulu"), ("b", "city:Turku", "y"), ("c", "n>7", "x.c")):
        created(turnout, condition, "--id", id_, "--to", to, "--meta", f"owner={id_}Depot")
    turnout("subscriptions", "pause", "c")

    assert found(turnout, "--key", "city") == "ab"
    assert found(turnout, "--kind", "compare") == "ac"
    assert found(turnout, "--leaf", "n > 7") == "c"
    assert found(turnout, "--destination", "x.*") == "ac"
    assert found(turnout, "--text", "bdepot") == "b"
    assert found(turnout, "--disabled") == "c"
    assert found(turnout, "--key", "n", "--enabled", "--metadata", "owner=aDepot") == "a"


def test_changes_of_a_search(turnout):
    """Pause, resume and label take ids or a search, change all as one, and print what they did as JSON."""
    for id_ in "abc":
        created(turnout, "k:v", "--id", id_, "--to", "d", "--meta", f"of={'me' if id_ < 'c' else 'you'}")
    code, out, err = turnout("subscriptions", "pause", "--metadata", "of=me", "--keep", "--dry-run")

    assert (code, out, err) == (0, "a\nb\n", "2 found, 2 would change; nothing was changed\n")
    assert json.loads(turnout("subscriptions", "pause", "--metadata", "of=me", "--json")[1]) == {
        "changed": ["a", "b"],
        "found": 2,
        "revision": 4,
        "dryRun": False,
    }
    assert turnout("subscriptions", "pause", "--all")[2] == "3 found, 1 changed: paused at revision 5\n"
    assert turnout("subscriptions", "resume", "a", "--json")[1].startswith('{"changed": ["a"]')
    assert turnout("subscriptions", "label", "--text", "c", "--add", "team=x", "--remove", "of")[0] == 0
    assert json.loads(turnout("subscriptions", "read", "c")[1])["metadata"] == {"team": "x"}
    assert [
        turnout("subscriptions", *wrong)[0] for wrong in (["pause"], ["pause", "a", "--key", "k"], ["label", "a"])
    ] == [2] * 3
    assert json.loads(turnout("subscriptions", "delete", "a", "b", "--json")[1]) == {"deleted": ["a", "b"]}


def test_secrets_as_json(turnout):
    """Keys and tokens are in the JSON, and nowhere else."""
    code, out, err = turnout("subscriptions", "secret-key", "--json")
    assert (code, err, list(json.loads(out))) == (0, "", ["key"])

    code, out, err = turnout("subscriptions", "token", "acme", "--right", "read", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert "acme" in answer["entry"]
    assert answer["token"] not in answer["entry"]


def _lines(*subscriptions: tuple[str, str]) -> str:
    condition = {"kiwiCondition": {"key": "city", "pattern": "Oulu"}}
    return "".join(
        json.dumps({"id": id_, "route": {"destinations": [to], "condition": condition}}) + "\n"
        for id_, to in subscriptions
    )


def test_import_that_replaces(turnout):
    """A dry run prints the changes and makes none; what is unchanged keeps its revision, what others own stays."""
    created(turnout, "k:v", "--id", "mine", "--to", "d")
    command = ["subscriptions", "import", "-", "--existing", "replace", "--set", "week"]
    first = turnout(*command, stdin=_lines(("a", "x"), ("b", "x"), ("c", "x")))
    assert first == (0, "", "3 added, 0 changed, 0 removed, 0 unchanged, 1 of others; at revision 2\n")

    new = _lines(("a", "x"), ("b", "y"), ("d", "x"))
    code, out, err = turnout(*command, "--prune", "--dry-run", stdin=new)
    assert (code, out.splitlines()) == (0, ["+ d", "~ b: destinations", "- c"])
    assert err == "1 added, 1 changed, 1 removed, 1 unchanged, 1 of others; nothing was changed\n"

    answer = json.loads(turnout(*command, "--prune", "--json", stdin=new)[1])
    assert answer == {
        "added": ["d"],
        "changed": [{"id": "b", "fields": ["destinations"]}],
        "removed": ["c"],
        "adopted": [],
        "unchanged": 1,
        "kept": 1,
        "revision": 3,
        "dryRun": False,
        "effect": None,
    }
    assert found(turnout) == "abdmine"
    assert json.loads(turnout("subscriptions", "read", "a")[1])["revision"] == 2
    refused = turnout(*command, "--prune", stdin="")
    assert (refused[0], "would remove all" in refused[2]) == (2, True)
    assert turnout(*command, "--prune-all", stdin="")[2].startswith("0 added, 0 changed, 3 removed")
    for wrong in (
        ["--prune"],
        ["--existing", "replace", "--prune"],
        ["--existing", "replace", "--against", "route.yaml"],
    ):
        assert turnout("subscriptions", "import", "-", *wrong)[0] == 2


def test_import_against_the_last_records(turnout, nats_server, tmp_path):
    """A dry run matches the last records of a route with both sets, and prints what `diff` does."""
    (tmp_path / "route.yaml").write_text(
        f"""
name: watched
source: {{format: nats, servers: "{nats_server.url}", stream: WATCHED}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///subscriptions.db", metadata: {{city: value.city}}}}
sink: {{format: nats, servers: "{nats_server.url}"}}
""",
        encoding="utf-8",
    )
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "WATCHED", "subjects": ["watched.>"], "storage": "memory"})
        create_stream(connection, {"name": "WATCHED-OUT", "subjects": ["x", "y", "z"], "storage": "memory"})
        for city in ("Turku", "Oulu", "Oulu"):
            connection.request("watched.a", json.dumps({"city": city}).encode())
    command = ["subscriptions", "import", "-", "--existing", "replace", "--set", "week"]
    turnout(*command, stdin=_lines(("a", "x"), ("b", "x")))
    new = _lines(("a", "x"), ("c", "y"), ("d", "z"))
    against = [*command, "--prune", "--dry-run", "--against", "route.yaml"]

    code, out, err = turnout(*against, stdin=new)
    assert (code, out.splitlines()[:3]) == (0, ["+ c", "+ d", "- b"]), err
    assert "deliveries gained: 4 (c 2, d 2)" in out
    assert "deliveries lost: 2 (b 2)" in out
    effect = json.loads(turnout(*against, "--last", "1", "--json", stdin=new)[1])["effect"]
    assert (effect["totals"]["records"], effect["subscriptions"]["lost"]) == (1, {"b": 1})


def test_messages_have_numbers_as_on_a_route(turnout):
    """They are seen as their texts, null as absent; what no condition could test is named."""
    id_ = created(turnout, "total>=100 AND open:true AND NOT note:x", "--to", "a")
    message = '{"total": 120, "open": true, "note": null, "sku": ["A1", 2]}'

    assert turnout("subscriptions", "match", "--message", message)[1] == f"{id_}  a\n"
    assert turnout("subscriptions", "explain", id_, "--message", message)[1].startswith("matched")
    for wrong, words in (
        (
            '{"total": {"net": 1}}',
            'total: expected a text, a number, true, false, null or a list of them, found {"net": 1}',
        ),
        ('{"sku": [["A1"]]}', "sku: expected a text, a number, true, false, null or a list of them, found"),
        ("[1]", "expected a JSON object, found [1]"),
    ):
        code, _, error = turnout("subscriptions", "match", "--message", wrong)
        assert (code, words in error) == (2, True)


def test_match_and_explain(turnout):
    """Match names the subscriptions and destinations; explain says why, down to the leaf."""
    id_ = created(turnout, "--has", "subject=orders*", "--has-not", "location=Helsinki", "--to", "a", "--to", "b")
    assert turnout("subscriptions", "match", "subject=orders 1")[1] == f"{id_}  a b\n"
    assert turnout("subscriptions", "match", "subject=orders 1", "location=Helsinki")[1] == ""

    several = '{"subject": ["none", "orders"], "location": ["Oulu"]}'
    assert turnout("subscriptions", "match", "--message", several)[1] == f"{id_}  a b\n"
    output = json.loads(turnout("subscriptions", "match", "--message", '{"subject": "orders"}', "--json")[1])
    assert [match["destinations"] for match in output["matches"]] == [["a", "b"]]

    _, out, _ = turnout("subscriptions", "explain", id_, "--message", "-", stdin='{"location": "Helsinki"}')
    assert out.splitlines() == [
        "not matched because",
        "  - AND: 0 of 2 hold",
        "    - subject:orders*: 'subject' is missing",
        "    - NOT location:Helsinki: 'location' is 'Helsinki'",
    ]
    document = json.loads(turnout("subscriptions", "explain", id_, "subject=orders", "--json")[1])
    assert document["matched"]
    assert [child["holds"] for child in document["explanation"]["children"]] == [True, True]


def test_stats(turnout):
    """The index's anchors, the hottest first, and the terms that have none."""
    for number in range(3):
        created(turnout, "--has", "k=same", "--has-not", f"n={number}", "--to", "d")
    created(turnout, "--has", "a=b", "--has-not", "c=d", "--logic", "or", "--to", "d")
    output = json.loads(turnout("subscriptions", "stats", "--json")[1])

    assert (output["subscriptions"], output["revision"]) == (4, 4)
    assert output["always"] == 1
    assert output["hottest"][0] == {"key": "k", "kind": "=", "text": "same", "terms": 3}
    assert "1 terms without an anchor" in turnout("subscriptions", "stats")[1]


def test_import_and_export(turnout, tmp_path):
    """An export imported elsewhere exports the same; an import that is repeated fails or skips."""
    for number in range(5):
        created(turnout, "--has", f"k=v{number}", "--to", "d")
    assert turnout("subscriptions", "export", "all.jsonl") == (0, "", "5 written\n")

    other = ["--store", "sqlite:///other.db"]
    assert turnout("subscriptions", "import", "all.jsonl", *other)[0] == 0
    text = (tmp_path / "all.jsonl").read_text()
    assert turnout("subscriptions", "export", *other)[1] == text
    assert turnout("subscriptions", "import", "-", *other, stdin=text)[0] == 1
    again = turnout("subscriptions", "import", "all.jsonl", "--existing", "skip", "--json", *other)
    assert json.loads(again[1]) == {"created": 0, "skipped": 5}
    assert turnout("subscriptions", "import", "nowhere.jsonl")[0] == 2
    (tmp_path / "bad.jsonl").write_text("{}\n")
    code, _, err = turnout("subscriptions", "import", "bad.jsonl")
    assert (code, "line 1: route" in err) == (2, True)


def test_an_export_that_fails_leaves_the_one_before(turnout, tmp_path, monkeypatch):
    """Half of an export, under its name, would be taken for all of it; only its owner reads one."""
    for number in range(3):
        created(turnout, "--has", f"k=v{number}", "--to", "d")
    turnout("subscriptions", "export", "all.jsonl")
    text = (tmp_path / "all.jsonl").read_text()

    def broken(store):
        yield "{}"
        raise StoreUnavailableError("the store is gone")

    monkeypatch.setattr(lines, "export_lines", broken)
    assert turnout("subscriptions", "export", "all.jsonl")[0] != 0
    assert (tmp_path / "all.jsonl").read_text() == text
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.glob("all.jsonl*")) == [tmp_path / "all.jsonl"]


def test_an_export_to_a_link_is_written_where_it_points(turnout, tmp_path):
    """The link stays."""
    created(turnout, "--has", "k=v", "--to", "d")
    (tmp_path / "latest.jsonl").symlink_to("all.jsonl")

    assert turnout("subscriptions", "export", "latest.jsonl") == (0, "", "1 written\n")
    assert (tmp_path / "latest.jsonl").is_symlink()
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 1


@contextmanager
def serving(*arguments: str, **environment: str):
    """A server process, its port, and what it wrote to standard error."""
    output_lines: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "turnout", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "API_HOST": "127.0.0.1", "API_PORT": "0", **environment},
    )
    assert process.stderr is not None
    try:
        while not (port_line := re.search(r"serving on port (\d+)", output_lines[-1] if output_lines else "")):
            line = process.stderr.readline()
            assert line, output_lines
            output_lines.append(line)
        yield f"127.0.0.1:{port_line.group(1)}", process, output_lines
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        output_lines += process.stderr.readlines()
        process.wait(20)
        process.stderr.close()


def test_serve(turnout, tmp_path):
    """The service is a store for the other commands, and stops with 0 when it is told to."""
    with serving("subscriptions", "serve", DB_URI=f"sqlite:///{tmp_path}/served.db", API_METRICS_PORT="0") as (
        address,
        process,
        output_lines,
    ):
        store = ["--store", f"grpc://{address}"]
        id_ = created(turnout, "--has", "k=v", "--to", "d", *store)
        assert turnout("subscriptions", "match", "k=v", *store)[1] == f"{id_}  d\n"
        assert "+ k:v: 'k' is 'v'" in turnout("subscriptions", "explain", id_, "k=v", *store)[1]
        assert json.loads(turnout("subscriptions", "export", *store)[1])["id"] == id_
        assert turnout("subscriptions", "read", "nobody", *store)[0] == 1
        metrics = next(json.loads(line)["metrics_port"] for line in output_lines if '"metrics_port"' in line)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=10) as page:
            assert "turnout_subscriptions 1.0" in page.read().decode()
    assert process.returncode == 0
    assert any('"stopped"' in line for line in output_lines)
    assert turnout("subscriptions", "read", id_, "--store", f"sqlite:///{tmp_path}/served.db")[0] == 0


def test_serve_with_tokens(turnout, tmp_path):
    """A token file on both sides lets the client in; without it nothing is told."""
    (tmp_path / "tokens").write_text("secret\n")
    with serving("subscriptions", "serve", "--store", f"sqlite:///{tmp_path}/t.db", API_TOKENS_FILE="tokens") as (
        address,
        _,
        _,
    ):
        assert turnout("subscriptions", "search", "--store", f"grpc://{address}?token-file=tokens")[0] == 0
        code, _, err = turnout("subscriptions", "search", "--store", f"grpc://{address}")
    assert (code, "UNAUTHENTICATED" in err) == (1, True)


def test_serve_with_rights(turnout, tmp_path):
    """The service takes only what its patterns allow; an import is stored all or not at all."""
    served = ["subscriptions", "serve", "--store", f"sqlite:///{tmp_path}/r.db"]
    with serving(*served, "--allow-destinations", "deliver.>", "--allow-destinations", "$KV.desk.*") as (address, _, _):
        store = ["--store", f"grpc://{address}"]
        created(turnout, "--has", "k=v", "--to", "deliver.a", "--to", "$KV.desk.7", *store)
        bad = json.loads(turnout("subscriptions", "export", *store)[1])
        bad["id"], bad["route"]["destinations"] = "bad", ["deliver.b", "orders.new"]
        (tmp_path / "bad.jsonl").write_text(json.dumps(bad))
        code, _, err = turnout("subscriptions", "import", "bad.jsonl", *store)
        again = json.loads(turnout("subscriptions", "export", *store)[1])
    assert code == 2
    assert "'orders.new' is not allowed: only deliver.>, $KV.desk.* are" in err
    assert again["route"]["destinations"] == ["deliver.a", "$KV.desk.7"]


@pytest.mark.heavy
def test_serve_beside_kiwi_trees(turnout, tmp_path):
    """With two kiwi-tree services, creating registers the patterns and deleting removes them."""
    with (
        serving("kiwi-tree", "serve", "--file", str(tmp_path / "complete.db")) as (complete, _, _),
        serving("kiwi-tree", "serve") as (partial, _, _),
        serving(
            "subscriptions",
            "serve",
            DB_URI=f"sqlite:///{tmp_path}/s.db",
            API_KIWI_TREE_COMPLETE_URI=complete,
            API_KIWI_TREE_PARTIAL_URI=f"http://{partial}",
        ) as (address, _, _),
        grpc.insecure_channel(complete) as channel,
        grpc.insecure_channel(partial) as other,
    ):
        store = ["--store", f"grpc://{address}"]
        tree, words = kiwi_tree_pb2_grpc.ServiceStub(channel), kiwi_tree_pb2_grpc.ServiceStub(other)
        pair = kiwi_tree_pb2.KeyPatternRequest(key="k", pattern="p*")
        leaf = {"key": "k", "pattern": "p*"}
        group = [{"kiwiTreeCondition": leaf}, {"kiwiTreeCondition": {**leaf, "partial": True}}]
        body = json.dumps({"route": {"destinations": ["d"], "condition": {"groupCondition": {"group": group}}}})

        tree.LockCreate(pair, timeout=10)
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            tree.LockCreate(pair, timeout=10)
        code, _, err = turnout("subscriptions", "create", "--body", body, *store)
        assert (code, "try again" in err) == (1, True)
        tree.UnlockCreate(pair, timeout=10)
        id_ = created(turnout, "--body", body, *store)
        tree.Create(pair, timeout=10)
        assert turnout("subscriptions", "delete", id_, *store)[0] == 0
        for stub in (tree, words):
            with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
                stub.Delete(pair, timeout=10)
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            tree.Create(kiwi_tree_pb2.KeyPatternRequest(key="k", pattern="*p"), timeout=10)


def test_serve_wrong_settings(turnout, monkeypatch):
    """Settings that cannot be end with 2 before anything is opened."""
    monkeypatch.setenv("API_PORT", "grpc")
    code, _, err = turnout("subscriptions", "serve")
    assert (code, "API_PORT: expected a port" in err) == (2, True)

    monkeypatch.delenv("API_PORT")
    monkeypatch.setenv("API_KIWI_TREE_PARTIAL_URI", "x:1")
    code, _, err = turnout("subscriptions", "serve")
    assert (code, "belong together" in err) == (2, True)


def test_create_refuses_what_cannot_be_published_to(turnout):
    """The request was wrong: exit code 2, with the destination and the reason; nothing is stored."""
    code, _, err = turnout("subscriptions", "create", "subject:a", "--to", "deliver..desk")

    assert code == 2
    assert "'deliver..desk' cannot be published to: an empty token at position 8" in err
    assert turnout("subscriptions", "export")[1] == ""


def test_tokens_of_tenants(turnout, tmp_path):
    """A new token's entry in the token file lets its bearer in, to its tenant's subscriptions alone."""
    entries, tokens = [], {}
    for tenant, *more in (("acme", "--destination", "acme.>"), ("bolt",), ("*",)):
        code, entry, printed = turnout("subscriptions", "token", tenant, *more)
        assert code == 0
        entries.append(entry)
        tokens[tenant] = tmp_path / f"token-{len(entries)}"
        tokens[tenant].write_text(printed.rpartition(": ")[2])
    (tmp_path / "tokens.yaml").write_text("".join(entries))
    served = ("subscriptions", "serve", "--store", f"sqlite:///{tmp_path}/t.db", "--tokens", "tokens.yaml")
    with serving(*served) as (address, _, _):
        acme, bolt, whole = (["--store", f"grpc://{address}?token-file={file}"] for file in tokens.values())
        id_ = created(turnout, "--has", "k=v", "--to", "acme.d", *acme)
        assert turnout("subscriptions", "match", "k=v", *acme)[1] == f"{id_}  acme.d\n"
        assert turnout("subscriptions", "match", "k=v", *bolt)[1] == ""
        assert turnout("subscriptions", "read", id_, *bolt)[0] == 1
        assert turnout("subscriptions", "read", f"@acme/{id_}", *whole)[0] == 0
        code, _, err = turnout("subscriptions", "create", "--has", "k=v", "--to", "d", *acme)
        assert (code, "PERMISSION_DENIED" in err) == (1, True)
    assert turnout("subscriptions", "token", "a/b")[0] == 2
    assert turnout("subscriptions", "token", "acme", "--right", "all")[0] == 2


def test_serve_off_loopback(turnout, tmp_path):
    """Another address needs TLS or an explicit word; a token file needs tokens."""
    code, _, err = turnout("subscriptions", "serve", "--host", "0.0.0.0")
    assert (code, "--insecure" in err) == (2, True)
    (tmp_path / "tokens.yaml").write_text("[]")
    code, _, err = turnout("subscriptions", "serve", "--tokens", "tokens.yaml")
    assert (code, "has no tokens" in err) == (2, True)
    with serving("subscriptions", "serve", "--host", "0.0.0.0", "--insecure") as (address, _, _):
        assert turnout("subscriptions", "search", "--store", f"grpc://{address}")[0] == 0


def test_what_serving_leaves(turnout, tmp_path):
    """The files of both services are for their owner alone, while they run and afterwards."""
    left, before = tmp_path / "left", os.umask(0o022)
    left.mkdir()
    try:
        with (
            serving("kiwi-tree", "serve", "--file", f"{left}/tree.db"),
            serving("subscriptions", "serve", "--store", f"sqlite:///{left}/s.db", TMPDIR=str(left)) as (address, _, _),
        ):
            created(turnout, "--has", "k=v", "--to", "d", "--store", f"grpc://{address}")
            running = {file.name: oct(file.stat().st_mode & 0o777) for file in left.iterdir()}
    finally:
        os.umask(before)

    assert {"tree.db", "s.db", "s.db-wal"} <= set(running)
    assert set(running.values()) == {"0o600"}
    assert {oct(file.stat().st_mode & 0o777) for file in left.iterdir()} == {"0o600"}


def test_a_mongodb_that_does_not_answer():
    """A command says what it waits for after a second, and ends in its time with one sentence."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        url = f"mongodb://somebody:secret@{address}/db"
        command = [sys.executable, "-m", "turnout", "subscriptions", "search", "--store", url, "--timeout", "1.5"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (1, "")
    waiting, failure = ended.stderr.splitlines()
    assert waiting == f"waiting for MongoDB at {address} (1.5 s)…"
    assert re.fullmatch(rf"turnout: MongoDB is away: {address}(:| does not) [a-z ]+", failure)


def test_update_and_history(turnout):
    """An update keeps the id and what is not given, is refused for another revision, and is in the history."""
    id_ = created(turnout, "a:1", "--to", "x", "--meta", "owner=ann")
    code, _, err = turnout("subscriptions", "update", id_, "a:2", "--to", "y")
    output = json.loads(turnout("subscriptions", "read", id_)[1])
    refused = turnout("subscriptions", "update", id_, "a:3", "--expected-revision", "1")
    whole = json.dumps({**output, "metadata": {}})
    replaced = turnout("subscriptions", "update", id_, "--body", "-", "--json", stdin=whole)
    history = turnout("subscriptions", "history", id_)[1]

    assert (code, err) == (0, f"{id_} is at revision 2\n")
    assert (output["route"]["destinations"], output["metadata"], output["revision"]) == (["y"], {"owner": "ann"}, 2)
    assert refused[0] == 1
    assert f"'{id_}' is at revision 2, expected revision 1" in refused[2]
    assert json.loads(replaced[1]) == {"id": id_, "revision": 3}
    assert re.findall(r"^revision (\d) .* (created|updated) by", history, re.M) == [
        ("1", "created"),
        ("2", "updated"),
        ("3", "updated"),
    ]
    assert "  - condition: a:1\n  + condition: a:2\n" in history
    assert "  - metadata.owner: ann\n" in history


def test_a_body_of_its_own(turnout, tmp_path) -> None:
    """--project is stored, read, changed, exported and imported, in history, and taken back by an empty text."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    project = "{'city': value.city}"
    id_ = created(turnout, "a:1", "--to", "x", "--project", project)
    read = lambda: json.loads(turnout("subscriptions", "read", id_)[1])  # noqa: E731
    first = read()
    turnout("subscriptions", "export", "all.jsonl")
    imported = turnout("subscriptions", "import", "all.jsonl", "--store", "sqlite:///other.db")
    other = turnout("subscriptions", "read", id_, "--store", "sqlite:///other.db")[1]
    code, _, err = turnout("subscriptions", "update", id_, "--project", "topic + ")
    kept = read()
    turnout("subscriptions", "update", id_, "--to", "y")
    moved = read()
    turnout("subscriptions", "update", id_, "--project", "")
    history = turnout("subscriptions", "history", id_)[1]

    assert (first["project"], imported[0], json.loads(other)["project"]) == (project, 0, project)
    assert (code, "project: " in err) in ((1, True), (2, True)), err
    assert (kept, moved["project"]) == (first, project)
    assert not read().get("project")
    assert f'  - project: "{project}"\n' in history
    code, _, err = turnout("subscriptions", "create", "a:1", "--to", "x", "--project", "1 +")
    assert (code, "project: " in err) in ((1, True), (2, True)), err


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["a:"], 2), (["a:1", "--body", "{}"], 2), (["a:1"], 1)])
def test_bad_updates(turnout, arguments, code):
    """Nothing to change, a bad condition, two sources and an unknown id are refused."""
    created(turnout, "a:1", "--to", "x")

    assert turnout("subscriptions", "update", "nobody", *arguments)[0] == code


def test_an_id_of_ones_own(turnout) -> None:
    """``--id`` is the subscription's; one that is taken is refused, and JSON has its own."""
    assert turnout("subscriptions", "create", "city:Oulu", "--to", "d", "--id", "oulu") == (0, "oulu\n", "")
    assert turnout("subscriptions", "create", "city:Oulu", "--to", "d", "--id", "oulu")[0] == 1
    assert turnout("subscriptions", "create", "--body", "{}", "--id", "oulu")[0] == 2


def test_pause_resume_and_expiry(turnout):
    """A paused or expired subscription matches nothing, and `explain` says why."""
    id_ = created(turnout, "a:1", "--to", "x")
    ask = lambda command, *more: turnout("subscriptions", command, *more, "a=1")[1]  # noqa: E731

    assert turnout("subscriptions", "pause", id_)[0] == 0
    assert ask("match") == ""
    assert "not matched because the subscription is disabled; its condition is true" in ask("explain", id_)
    assert json.loads(turnout("subscriptions", "read", id_)[1])["enabled"] is False
    turnout("subscriptions", "resume", id_)
    turnout("subscriptions", "resume", id_)
    assert id_ in ask("match")
    assert turnout("subscriptions", "update", id_, "--expires", "2020-01-01", "--expires-by", "wall")[0] == 0
    assert ask("match") == ""
    assert "expired at 2020-01-01T00:00:00+00:00 by the clock" in ask("explain", id_)
    turnout("subscriptions", "update", id_, "--expires", "never")
    assert id_ in ask("match")
    assert turnout("subscriptions", "history", id_)[1].count("updated by") == 4
    assert turnout("subscriptions", "update", id_, "--expires", "soon")[0] == 2


def test_starting_points_and_kept_pauses(turnout):
    """They are stored as JSON has them; a second pause gives up nothing that the first one keeps."""
    id_ = created(turnout, "a:1", "--to", "x", "--from", "17")
    read = lambda: json.loads(turnout("subscriptions", "read", id_)[1])  # noqa: E731

    assert (read()["from"], "pause" in read()) == (17, False)
    turnout("subscriptions", "update", id_, "--from", "2026-12-01")
    assert read()["from"] == "2026-12-01T00:00:00+00:00"
    turnout("subscriptions", "update", id_, "--from", "latest")
    turnout("subscriptions", "pause", id_, "--keep")
    turnout("subscriptions", "pause", id_)
    assert ("from" in read(), read()["enabled"], read()["pause"]) == (False, False, {"keep": True})
    turnout("subscriptions", "resume", id_)
    turnout("subscriptions", "pause", id_)
    assert "pause" not in read()
    status, _, error = turnout("subscriptions", "update", id_, "--from", "soon")
    assert status == 2
    assert "from: expected latest, earliest, an ISO 8601 time or a sequence from 1 on, found 'soon'" in error


def test_signed_subscriptions(turnout, monkeypatch):
    """--sign prints a secret once; read shows a marker, which --body keeps, and a second --sign adds a secret."""
    monkeypatch.setenv(SECRET_KEY, turnout("subscriptions", "secret-key")[1].strip())
    code, out, err = turnout("subscriptions", "create", "k:1", "--to", "https://h.example/in", "--id", "a", "--sign")
    shown = turnout("subscriptions", "read", "a")[1]
    assert (code, out) == (0, "a\n")
    assert turnout("subscriptions", "update", "a", "--body", "-", stdin=shown)[0] == 0
    added = json.loads(turnout("subscriptions", "update", "a", "--sign", "--json")[1])["secret"]
    markers = json.loads(turnout("subscriptions", "read", "a")[1])["delivery"]["secrets"]
    history = turnout("subscriptions", "history", "a")[1] + turnout("subscriptions", "history", "a", "--json")[1]
    found = turnout("subscriptions", "search", "--json")[1] + turnout("subscriptions", "search")[1]
    secret = err.strip().removeprefix("the secret, which is not shown again: ")

    assert secret.startswith("whsec_")
    assert added.startswith("whsec_")
    assert markers[1:] == json.loads(shown)["delivery"]["secrets"]
    assert all(marker.startswith("hidden:") for marker in markers)
    for text in (shown, history, found):
        assert "hidden:" in text
        assert not any(word in text for word in ("whsec_", "sealed:"))


def test_the_key_is_rotated(turnout, monkeypatch):
    """Subscriptions are encrypted with the first key, also when others need it no more; exports need the same key."""
    old, new = (turnout("subscriptions", "secret-key")[1].strip() for _ in range(2))
    monkeypatch.setenv(SECRET_KEY, old)
    for id_ in ("a", "b"):
        created(turnout, "k:1", "--to", "d", "--id", id_, "--sign")
    created(turnout, "k:1", "--to", "d", "--id", "c")
    monkeypatch.setenv(SECRET_KEY, new)
    failed = turnout("subscriptions", "reseal", "--json")
    monkeypatch.setenv(SECRET_KEY, f"{new},{old}")
    done = turnout("subscriptions", "reseal", "--json")
    monkeypatch.setenv(SECRET_KEY, new)
    again = turnout("subscriptions", "reseal")
    exported = turnout("subscriptions", "export")[1]
    imported = turnout("subscriptions", "import", "-", "--store", "sqlite:///copy.db", stdin=exported)
    monkeypatch.setenv(SECRET_KEY, old)
    refused = turnout("subscriptions", "import", "-", "--store", "sqlite:///other.db", stdin=exported)

    problem = "none of the keys in TURNOUT_SECRET_KEY decrypts it"
    assert (failed[0], json.loads(failed[1])) == (1, {"resealed": [], "failed": {"a": problem, "b": problem}})
    assert (done[0], json.loads(done[1])) == (0, {"resealed": ["a", "b"], "failed": {}})
    assert (again[0], again[2]) == (0, "0 subscriptions encrypted anew\n")
    assert "whsec_" not in exported
    assert (imported[0], imported[2]) == (0, "3 stored, 0 were there already\n")
    assert (refused[0], refused[2]) == (2, f"turnout: delivery.secrets[0]: {problem}\n")


def test_without_a_key(turnout, monkeypatch):
    """Secrets are refused, and a wrong key stops the service before it starts."""
    monkeypatch.delenv(SECRET_KEY, raising=False)
    code, out, err = turnout("subscriptions", "create", "k:1", "--to", "d", "--sign")
    without = turnout("subscriptions", "reseal")
    monkeypatch.setenv(SECRET_KEY, "wrong")
    serving = turnout("subscriptions", "serve", "--port", "0")

    assert (code, out) == (2, "")
    assert "delivery.secrets[0]: TURNOUT_SECRET_KEY: it is not set" in err
    assert "whsec_" not in err
    assert without[0] == 2
    assert serving[0] == 2
    assert "TURNOUT_SECRET_KEY: key 1: expected 32 bytes in URL-safe base64" in serving[2]


def test_leftovers_of_other_query_languages(turnout, tmp_path):
    """JSON has no quotes that would say they are meant: what stores them warns, with the subscriptions of an import."""
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    line = (
        '{"id": "%s", "route": {"destinations": ["d"], "condition": {"kiwiCondition": {"key": "%s", "pattern": "%s"}}}}'
    )
    (tmp_path / "some.jsonl").write_text(
        "\n".join(line % one for one in [("a", "-city", "x"), ("", "-city", "y"), ("c", "p", ">1")])
    )

    warnings = {
        "import": turnout("subscriptions", "import", str(tmp_path / "some.jsonl"), *store)[2],
        "create": turnout("subscriptions", "create", "--body", line % ("d", "_exists_", "k"), *store)[2],
        "update": turnout("subscriptions", "update", "d", "--body", line % ("d", "p", "'x'"), *store)[2],
    }

    sentence = (
        "warning: -city: '-' is part of the key; a negation is written NOT, or as the field not, in: a, subscription 2"
    )
    assert sentence in warnings["import"].splitlines()
    assert "warning: p: '>1' is compared as a text: write p>1 " in warnings["import"]
    assert "warning: _exists_: is a key; write k exists" in warnings["create"]
    assert "single quotes belong to the text" in warnings["update"]
