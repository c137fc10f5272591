"""Jeremy Custenborder's transforms in a JVM, and Jayway's JsonPath, which Confluent's Filter uses.

``python -m tests.transforms.community_host`` writes their answers: the vectors, and ``community/json_paths.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tests.jvm_host import JvmHost
from tests.transforms.debezium_host import VECTORS, DebeziumHost
from tests.transforms.kafka_host import KAFKA, jars

__all__ = ["CONFIGS", "PATHS", "JaywayHost", "JeremysHost", "made_paths", "made_vectors"]

VERSION = "0.1.0.14"
JAYWAY = "2.9.0"
PATHS = Path(__file__).parent / "community" / "json_paths.json"
_PACKAGE = "com.github.jcustenborder.kafka.connect.transform.common."

Json = dict[str, Any]


class JeremysHost(DebeziumHost):
    """A JVM with Jeremy Custenborder's transforms, of the last version in Maven's repository."""

    def class_path(self) -> list[Path]:
        artifact = ("com.github.jcustenborder.kafka.connect", "kafka-connect-transform-common", VERSION)
        return jars(f"jeremys-{VERSION}", (*KAFKA, artifact))


class JaywayHost(JvmHost):
    """A JVM with Jayway's JsonPath."""

    program = Path(__file__).with_name("JaywayHost.java")
    settings = ()

    def class_path(self) -> list[Path]:
        return jars(f"jayway-{JAYWAY}", (("com.jayway.jsonpath", "json-path", JAYWAY), KAFKA[1]))

    def found(self, path: str, document: str) -> Any:
        """Return what is at a path: a value in a list, or the word missing or error."""
        return self._ask({"path": path, "document": document})


_FORMATS = ("LOWER_HYPHEN", "LOWER_UNDERSCORE", "LOWER_CAMEL", "UPPER_CAMEL", "UPPER_UNDERSCORE")
_TOPICS = ("user-events", "user_events", "userEvents", "UserEvents", "USER_EVENTS", "-a--B", "A", "", "éTé_x", "aBC1d")
_PLAIN: Json = {"schema": None, "value": None}
_FIELDS = {
    "int64": ({"type": "int64"}, 5),
    "default": ({"type": "int64", "optional": True, "default": 7}, None),
    "null": ({"type": "int64", "optional": True}, None),
    "time": ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, {"$timestamp": 1559033904863}),
    "text": ({"type": "string"}, "1559033904863"),
    "int32": ({"type": "int32"}, 5),
}


def _record(topic: str, value: Json) -> Json:
    return {
        "kind": "sink", "topic": topic, "partition": 0, "offset": 7, "timestamp": 1, "key": _PLAIN, "value": value,
        "headers": [["h", {"schema": {"type": "string"}, "value": "x"}]],
    }  # fmt: skip


def _timed() -> list[tuple[str, Json]]:
    schema = {"type": "struct", "fields": [{"name": name, "schema": field} for name, (field, _) in _FIELDS.items()]}
    value = {"schema": schema, "value": {name: found for name, (_, found) in _FIELDS.items()}}
    plain: list[Any] = [
        {"int64": 5},
        {"int64": None},
        {"int64": {"$int32": 5}},
        {"int64": {"$timestamp": 9}},
        "x",
        None,
    ]
    return [("a struct", _record("t", value)), *((str(one), _record("t", _PLAIN | {"value": one})) for one in plain)]


CONFIGS: dict[str, list[tuple[str, Json, list[tuple[str, Json]]]]] = {
    "ChangeTopicCase": [
        (f"{one} to {other}", {"from": one, "to": other}, [(topic, _record(topic, _PLAIN)) for topic in _TOPICS])
        for one, other in product(_FORMATS, _FORMATS)
    ]
    + [("no such format", {"from": "CAMEL", "to": "LOWER_CAMEL"}, [])],
    "ExtractTimestamp": [
        *((name, {"field.name": name}, _timed() if name == "int64" else _timed()[:1]) for name in (*_FIELDS, "other")),
        ("no field", {}, []),
    ],
}


def made_vectors(host: JeremysHost, name: str) -> list[Json]:
    """The vectors of a class, as it answers now."""
    made = []
    for shows, options, records in CONFIGS[name]:
        config = {"type": _PACKAGE + name + ("$Value" if name == "ExtractTimestamp" else ""), **options}
        vector = {"basis": f"kafka-connect-transform-common {VERSION}", "schemaless": True, "config": config}
        for kind, record in records or [("", _record("t", _PLAIN))]:
            expect = host.answers(config, record)
            kept = None if "config_error" in expect else record
            made.append({"name": f"{shows}; {kind}", **vector, "record": kept, "expect": expect})
    return made


_DOCUMENTS = (
    '{"a":1,"b":{"c":"x","n":null},"l":[1,2,3],"o":[{"p":1,"q":"u"},{"p":12.5,"q":"v"},{"q":null}],"s":"12","t":true}',
    '{"b":null}',
    '{"b":5,"o":{"p":3,"q":"u"}}',
    '[{"p":1},{"p":2}]',
    '"x"',
    '{"o":[]}',
    '{"a":"1","t":false,"s":"abc","l":[],"e":""}',
    '{"b":[{"c":"x"}],"o":[1,"p",null]}',
)
_PATHS = (
    *("$", "$.a", "$.b", "$.b.c", "$.b.n", "$.b.x", '$["b"]["c"]', "$.l[0]", "$.l[-1]", "$.l[9]", "$.l[0,2]"),
    *("$.l[1:2]", "$.l[*]", "$.b.*", "$.o[*].p", "$[*]", "$[0]", "$.a.b.c", "$.l.x", "$.o[0].q", "$.o[*].q"),
    *("$.o[?(@.p)]", "$.o[?(@.p > 5)]", "$.o[?(@.p == 1)]", "$.o[?(@.p == '1')]", "$.o[?(@.p == 1.0)]"),
    *("$.o[?(@.q == 'u' || @.q == 'v')]", "$.o[?(@.q != 'u')]", "$.o[?(@.q == null)]", "$.o[?(!(@.p))]"),
    *("$.o[?(@.p < 5 && @.q == 'u')]", "$[?(@.a == 1)]", "$[?(@.a == '1')]", "$[?(@.s == 12)]", "$[?(@.s > 5)]"),
    *("$[?(@.t == true)]", "$[?(@.t)]", "$.o[?(@.q =~ /u|V/i)]", "$.o[?(@.q in ['u','w'])]", "$.o[?(!@.p)]"),
    *("$.o[?(@.q nin ['u','w'])]", "$[?(@.l contains 2)]", "$[?(@.s contains '1')]", "$[?(@.l size 3)]"),
    *("$[?(@.l empty true)]", "$[?(@.e empty true)]", "$[?(@.a === 1)]", "$[?(@.a === '1')]", "$[?(@.a !== 1)]"),
    *("$.b[?(@.c == 'x')]", "$.x[?(@.c == 'x')]", "$.b.x[?(@.c == 'x')]", "$.o[?(@.p >= 1)].q", "$[?(@.p==1)]"),
    *("$.o[?(@.q > 'u')]", "$.o[?(@.p != null)]", "$[?(@.a < 2)]", "$.o[?(@ == 1)]", "$.o[?('u' == @.q)]"),
    *(
        "$.o[?(1 == @.p)]",
        "$.o[?(@.zz == @.yy)]",
        "$.o[?(@.q == @.q)]",
        "$.o[?(@.p=='1.0')]",
        "$.o[?(@.p != 1 && @.q)]",
    ),
)


def made_paths(host: JaywayHost) -> list[list[Any]]:
    """Each path with each document, and what Jayway finds there now."""
    return [[path, document, host.found(path, document)] for path, document in product(_PATHS, _DOCUMENTS)]


def _write(file: Path, items: Sequence[Any]) -> None:
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    with JeremysHost() as jeremys:
        for class_name in CONFIGS:
            _write(VECTORS / f"{class_name}.json", made_vectors(jeremys, class_name))
    with JaywayHost() as jayway:
        _write(PATHS, made_paths(jayway))
