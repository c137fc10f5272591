"""``turnout`` itself: its version, its help, and completion for shells."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turnout as package
from turnout.cli import app
from turnout.cli.exits import BAD, echo_lines

ROUTE = """
name: small
source: {format: nats, servers: "nats://127.0.0.1:1", stream: S}
value: {format: json}
transforms: [{type: MaskField$Value, fields: a, predicate: {type: HasHeaderKey, name: h}}]
mappings: {"in.*": "out.{{wildcard(1)}}"}
sink: {format: nats, servers: "nats://127.0.0.1:1"}
"""

TYPED = """
name: typed
source: {format: nats, servers: "nats://127.0.0.1:1", stream: S}
value: {format: json, schema: "city STRING, total DOUBLE, plane STRUCT<tail: STRING>, at STRING"}
transforms:
  - {type: DropHeaders, headers: a}
  - {type: InsertHeader, header: a, value.literal: b}
  - {type: InsertField$Value, topic.field: from, timestamp.field: time}
  - {type: ReplaceField$Value, renames: "city:town"}
  - {type: MaskField$Value, fields: town, predicate: {type: TopicNameMatches, pattern: "in.b"}}
  - {type: Cast$Value, spec: "total:float32"}
  - {type: Flatten$Value, delimiter: _}
  - {type: TimestampConverter$Value, field: at, format: "yyyy-MM-dd", target.type: Timestamp}
mappings: {"in.*": "out.{{wildcard(1)}}"}
sink: {format: nats, servers: "nats://127.0.0.1:1"}
"""


def test_version(turnout) -> None:
    """``--version`` prints what ``turnout.__version__`` is, and nothing else is done."""
    assert turnout("--version") == (0, f"turnout {package.__version__}\n", "")


def test_completion(turnout) -> None:
    """Shells can be told how to complete commands and options."""
    _, out, _ = turnout("--help")

    assert "--install-completion" in out


def test_commands_are_listed_by_group(turnout) -> None:
    """In the order of a user's first day; every group has commands."""
    _, out, _ = turnout("--help")
    found = [out.index(f" {group} ─") for group in app.GROUPS]

    assert found == sorted(found)
    assert {entry.group for entry in app.COMMANDS.values()} == set(app.GROUPS)


def test_former_names_are_names_of_options() -> None:
    """What replaces a former name exists, and the former one does not any more."""
    for name, renamed in app.RENAMED.items():
        command = app.all_commands()[name]
        known = {option for parameter in command.params for option in parameter.opts}

        assert set(renamed.values()) <= known
        assert not set(renamed) & known


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(one, marks=pytest.mark.heavy) for one in ("latin-1", "utf-8"))]
)
def test_any_encoding_of_the_output(tmp_path, encoding) -> None:
    """Letters that it lacks are escaped as JSON does, in text and in JSON; the command does its work.

    Of ASCII click believes that the system is set up wrongly, and writes UTF-8.
    """
    written = "utf-8" if encoding == "ascii" else encoding
    (tmp_path / "small.yaml").write_text(ROUTE, encoding="utf-8")
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"a": "żółw 🐢"}}', encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}

    def run(*words: str) -> bytes:
        command = [sys.executable, "-m", "turnout", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True).stdout

    text = run("check", "small.yaml")
    document = json.loads(run("explain", "small.yaml", "--file", "record.json", "--json").decode(written))

    assert ("nats → 1 transform" if written == "utf-8" else "nats \\u2192 1 transform").encode() in text
    assert document["record"]["value"]["a"] == "żółw 🐢"


def test_a_file_with_a_similar_name_is_proposed(turnout, tmp_path) -> None:
    """A name that was mistyped, with the folder as it was typed."""
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes" / "orders.yaml").touch()

    assert turnout("check", "routes/order.yaml") == (
        2, "", 'turnout: routes/order.yaml: no such file; did you mean "routes/orders.yaml"?\n'
    )  # fmt: skip
    assert turnout("check", "elsewhere/order.yaml")[2] == "turnout: elsewhere/order.yaml: no such file\n"


def test_a_similar_id_of_a_subscription_is_proposed(turnout, tmp_path) -> None:
    """By commands on a store, and by `explain`."""
    stored = "subscriptions: {store: 'sqlite:///subscriptions.db'}\nmappings:"
    (tmp_path / "small.yaml").write_text(ROUTE.replace("mappings:", stored), encoding="utf-8")
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"a": "b"}}')
    assert turnout("subscriptions", "create", "a:1", "--to", "out", "--id", "desk-7")[0] == 0
    sentence = "turnout: no subscription has the id 'desk-8'; did you mean \"desk-7\"?\n"

    assert turnout("subscriptions", "read", "desk-8") == (1, "", sentence)
    assert turnout("explain", "small.yaml", "--file", "record.json", "--subscription", "desk-8") == (1, "", sentence)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_on_a_terminal(monkeypatch, variables, coloured) -> None:
    """The part that a pattern finds is coloured, red in bold; not off a terminal, and not against the user's will."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stdout", stream)
        echo_lines(["FAILED a\x1b[2J", "passed"], {"^FAILED": BAD})

    assert file.getvalue() == "FAILED a\\x1b[2J\npassed\n"
    red = "\x1b[31m\x1b[1mFAILED\x1b[0m a\\x1b[2J\npassed\n"
    assert terminal.getvalue() == (red if coloured else file.getvalue())


def test_benchmarks_are_listed_from_anywhere(turnout) -> None:
    """The benchmarks are found without a checkout as the present folder; one that there is not is a wrong request."""
    code, out, _ = turnout("bench", "list")

    assert code == 0
    assert "route" in out.split()
    assert turnout("bench", "rout")[0] == 2


def test_every_command_is_registered() -> None:
    """A module that offers a command is named among the commands, which are in order."""
    folder = Path(app.__file__).parent
    offering = {
        file.relative_to(folder).with_suffix("").as_posix().replace("/", ".")
        for file in folder.rglob("*.py")
        if {"typer.Argument(", "typer.Option("} & set(re.findall(r"typer\.\w+\(", file.read_text("utf-8")))
    }
    named = {entry.target.rpartition(".")[0] for entry in app.COMMANDS.values()}

    assert sorted(app.COMMANDS) == list(app.COMMANDS)
    # Options that commands share, and the commands of a group in a package of its own, are not in the table.
    assert {name for name in offering if not name.startswith(("app", "options", "subscriptions."))} == named - {
        "subscriptions"
    }


@pytest.mark.parametrize("name", app.COMMANDS)
def test_listed_help_is_the_commands_own(name) -> None:
    """The help that lists commands says of each what its own help says first."""
    own = inspect.cleandoc(app.all_commands()[name].help or "").partition("\n\n")[0]

    assert app.COMMANDS[name].help == " ".join(own.split())


ARRAYS = {"numpy", "pyarrow", "pandas"}
SERVICES = {"pyspark", "grpc", "nats", "fastapi", "uvicorn", "prometheus_client", "pymongo"}
ROUTES = {"turnout.routes", "turnout.engine", "turnout.subscriptions", "turnout.transforms"}
CODECS = {"turnout.codecs.avro.codec", "turnout.codecs.json_schema.codec", "turnout.codecs.protobuf.codec",
          "turnout.codecs.schema_registry.client", "turnout.codecs.schema_registry.codec"}  # fmt: skip
STORES = {"sqlite3", "turnout.subscriptions.model", "turnout.subscriptions.stores.sqlite"}
CONDITIONS = {"turnout.conditions", "turnout.transforms.community.condition"}
WIRE = {"turnout.nats.wire.publisher", "turnout.nats.wire.pull",
        "turnout.runtime.nats.history", "turnout.runtime.nats.probe",
        "turnout.runtime.nats.sink"}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--help"], {*ARRAYS, *SERVICES, *ROUTES, "turnout.cli.run", "turnout.cli.subscriptions"}),
        (["kv", "--help"], {*ARRAYS, *SERVICES, *ROUTES, "turnout.cli.run"}),
        (["run", "--help"], {*ARRAYS, *SERVICES, *ROUTES, "turnout.cli.subscriptions"}),
        (["map", "a.*", "b.{{wildcard(1)}}", "a.c"], {*ARRAYS, *SERVICES, *ROUTES}),
        (
            ["check", "small.yaml"],
            {*ARRAYS, *SERVICES, "turnout.engine", "turnout.subscriptions.index", *STORES, *CODECS, *CONDITIONS},
        ),
        (["check", "typed.yaml"], {*ARRAYS, *SERVICES, "turnout.engine", *STORES, *CODECS, *CONDITIONS}),
        (["explain", "small.yaml", "--file", "record.json"], {"pandas", *SERVICES, *WIRE}),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_no_command_waits_for_what_it_does_not_need(words, without, tmp_path) -> None:
    """A command imports what it uses, and of other commands nothing."""
    assert without & imported_by(words, tmp_path) == set()


READING_ROUTES = {"annotated_types", "msgspec", "pydantic", "regex", "typer", "xxhash", "yaml"}


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["--help"], {"typer", "rich"}),
        (["map", "a.*", "b.{{wildcard(1)}}", "a.c"], {"annotated_types", "pydantic", "typer", "xxhash"}),
        (["check", "typed.yaml"], READING_ROUTES),
        (["explain", "small.yaml", "--file", "record.json"], {"dateutil", "numpy", "pyarrow", *READING_ROUTES}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_quick_commands_import_few_packages(words, packages, tmp_path) -> None:
    """A further package costs some hundredths of a second: one that is new here has to be worth them."""
    assert third_party(imported_by(words, tmp_path)) - packages == set()


SMALL_HELPERS = {"annotated_doc", "attr", "cython_runtime", "markdown_it", "mdurl", "pydantic_core", "pygments",
                 "shellingham", "typing_extensions", "typing_inspection"}  # fmt: skip
"""What typer, rich and pydantic bring along."""


def third_party(modules: set[str]) -> set[str]:
    """Return the packages that are neither Python's, nor turnout's, nor small helpers of others."""
    roots = {name.partition(".")[0] for name in modules}
    public = {name for name in roots if not name.startswith("_")}
    return public - set(sys.stdlib_module_names) - {"turnout"} - SMALL_HELPERS


def imported_by(words: list[str], folder: Path) -> set[str]:
    """Return the modules that a command imports; it is run in a folder with routes and a record."""
    (folder / "small.yaml").write_text(ROUTE, encoding="utf-8")
    (folder / "typed.yaml").write_text(TYPED, encoding="utf-8")
    (folder / "record.json").write_text('{"topic": "in.a", "value": {"a": "b"}}', encoding="utf-8")
    code = f"""if True:
        import atexit, sys
        sys.argv = ["turnout", *{words!r}]
        atexit.register(lambda: print("imported:", *sys.modules))
        from turnout.cli import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return set(done.stdout.partition("imported:")[2].split())


def test_completion_imports_no_command() -> None:
    """Names of commands are completed without an import of their modules."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from turnout.cli import main; main()"
    given = {"_TURNOUT_COMPLETE": "complete_bash", "COMP_WORDS": "turnout re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv = ['turnout']; {code}"],
        capture_output=True, text=True, check=False, env={**os.environ, **given},
    )  # fmt: skip
    completed, _, imported = done.stdout.rpartition("\n")[0].rpartition("\n")

    assert completed.split() == ["redrive", "replay"]
    assert not {*ARRAYS, *SERVICES, *ROUTES, "turnout.cli.history"} & set(imported.split())
