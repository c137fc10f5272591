"""The reference of what may be imported, and of the services' REST and gRPC interfaces, as pages in Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import turnout
from turnout.server.rest.app import build_app

__all__ = ["grpc_reference", "python_reference", "rest_reference"]

_PACKAGES = (
    "turnout",
    "turnout.subjects",
    "turnout.conditions",
    "turnout.transforms",
    "turnout.subscriptions",
    "turnout.spark",
    "turnout.jetstream",
    "turnout.errors",
)


_MODULE = re.compile(r"\bturnout\.[\w.]*\.(?=\w)|<object object at \w+>")
_PROTOS = Path(turnout.__file__).parent / "rpc" / "v1"
_SERVICE = re.compile(r"((?:^ *//[^\n]*\n)*)^service (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"((?:^ *//[^\n]*\n)*)^ *rpc (\w+)\s*\(\s*(.*?)\s*\)\s*returns\s*\(\s*(.*?)\s*\)", re.MULTILINE)
_COMMENT = re.compile(r"^ *// ?", re.MULTILINE)


def grpc_reference() -> str:
    """Every service and call of the .proto files, with the comments that stand there."""
    head = (
        "# gRPC\n\nThe calls of `turnout subscriptions serve`, and of `turnout serve` with a store. The `.proto` files"
        " are installed beside the package, in `turnout/rpc/v1`; the services answer to reflection as well.\n"
        "[Subscriptions](../subscriptions.md) tells what they do and who may call them.\n"
    )
    return head + "".join(_file(path) for path in sorted(_PROTOS.glob("*.proto")))


def _file(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    parts = []
    for comment, name, body in _SERVICE.findall(text):
        parts.append(
            f"\n## {package[1] if package else ''}.{name}\n\n{_said(comment)} In `{path.name}`.\n\n".replace(
                "\n\n In", "\n\nIn"
            )
        )
        parts.append("| call | request | answer | what it does |\n| --- | --- | --- | --- |\n")
        parts += [
            f"| `{call}` | `{request}` | `{response}` | {_said(doc)} |\n"
            for doc, call, request, response in _CALL.findall(body)
        ]
    return "".join(parts)


def _said(comment: str) -> str:
    return " ".join(_COMMENT.sub("", comment).split()).replace("|", "\\|")


def python_reference() -> str:
    """Every public name of the packages, with its signature and the first sentences of what it says of itself."""
    head = (
        "# Python\n\nWhat may be imported, package by package: the names in `__all__`. `help(name)` has all of what"
        " stands here in short.\n"
    )
    return head + "".join(_package(name) for name in _PACKAGES)


def _package(name: str) -> str:
    package = importlib.import_module(name)
    names = sorted(package.__all__, key=str.lower)
    lines = [f"\n## {name}\n\n{_first(package)}\n", "\n| name | what it is |\n| --- | --- |\n"]
    lines += [
        f"| `{name}{_signature(getattr(package, name))}` | {_first(getattr(package, name))} |\n" for name in names
    ]
    return "".join(lines)


def _signature(value: Any) -> str:
    """The names of a function's arguments; those with a default are in brackets."""
    if not inspect.isroutine(value):
        return ""
    parameters = inspect.signature(value).parameters.values()
    return f"({', '.join(_argument(parameter) for parameter in parameters)})"


def _argument(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    name = stars.get(parameter.kind, "")
    return f"{name}{parameter.name}" if parameter.default is inspect.Parameter.empty else f"{parameter.name}=…"


def _first(value: Any) -> str:
    """The first paragraph of a docstring of its own, in one line; marks of reStructuredText become Markdown."""
    documented = inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value)
    if value is turnout.__version__:
        # Another one after each commit.
        return "A text."
    if not documented:
        return f"`{_MODULE.sub('', str(value))}`".replace("|", "\\|")
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        # What dataclass writes where nobody has.
        text = ""
    line = " ".join(text.partition("\n\n")[0].split())
    return line.replace("``", "`").replace("|", "\\|")


def rest_reference() -> str:
    """Every path and method of ``turnout serve``, as its OpenAPI document describes them."""
    document = build_app(cast("Any", None)).openapi()
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["other"])[0]
            groups.setdefault(tag, []).extend(_operation(method, path, operation))
    head = (
        "# REST\n\nWhat [`turnout serve`](../server-api.md#rest) answers. The server itself gives the same with every"
        " field of requests and answers: `/v1/openapi.json` for programs, `/v1/docs` for people.\n"
    )
    return head + "".join(f"\n## {tag}\n\n{_TABLE}{''.join(rows)}" for tag, rows in groups.items())


_TABLE = "| request | what it does | parameters | answers |\n| --- | --- | --- | --- |\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    parameters = [f"`{one['name']}`" for one in operation.get("parameters", ()) if one["in"] != "header"]
    body = operation.get("requestBody", {}).get("content", {})
    parameters += [f"a body ({', '.join(body)})"] if body else []
    answers = ", ".join(sorted(operation["responses"]))
    text = " ".join((operation.get("description") or operation.get("summary", "")).partition("\n\n")[0].split())
    yield f"| `{method.upper()} {path}` | {text.replace('|', chr(92) + '|')} | {', '.join(parameters)} | {answers} |\n"
