"""Kafka Connect's REST interface, for the tools that speak it: a route is a connector with one task.

Answers have Connect's shapes (KIP-26, KIP-980). Connectors are not created here: a route says more than Connect's
properties can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Body, HTTPException, Query, Response

from turnout._built import version as __version__
from turnout.base.yaml_values import load
from turnout.errors import ConfigError
from turnout.secrets import is_secret, masked_url
from turnout.server.errors import UnknownPluginError
from turnout.server.rest.dependencies import PartsDep, Reads, Writes
from turnout.server.rest.models import SequenceNumber, any_of
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import RouteEntry
from turnout.transforms import Chain
from turnout.transforms.options import option_text

router = APIRouter(tags=["Kafka Connect"])

CONNECTOR_CLASS = "turnout.Route"
Expansion = Literal["status", "info"]

_STATES = {
    Phase.STARTING: "UNASSIGNED",
    Phase.RUNNING: "RUNNING",
    Phase.WAITING: "RESTARTING",
    Phase.STOPPING: "RUNNING",
    Phase.PAUSED: "PAUSED",
    Phase.FAILED: "FAILED",
    Phase.DONE: "STOPPED",
    Phase.INVALID: "FAILED",
}


@router.get("/connectors", summary="Names of routes, with expand their states and configurations")
def list_connectors(
    parts: PartsDep,
    _: Reads,
    expand: Annotated[list[Expansion], Query()] = [],  # noqa: B006
) -> Annotated[
    list[str] | dict[str, dict[Expansion, dict[str, object]]],
    any_of("a list of names, with expand an object of them"),
]:
    entries = parts.routes.entries()
    if not expand:
        return [entry.name for entry in entries]
    views = {"status": _status, "info": _info}
    return {entry.name: {part: views[part](entry) for part in expand} for entry in entries}


@router.get("/connectors/{name}", summary="A route as a connector")
def read_connector(name: str, parts: PartsDep, _: Reads) -> dict[str, object]:
    return _info(parts.routes.entry(name))


@router.get("/connectors/{name}/status", summary="State of a route")
def read_connector_status(name: str, parts: PartsDep, _: Reads) -> dict[str, object]:
    return _status(parts.routes.entry(name))


@router.get("/connectors/{name}/config", summary="A route as properties, without secrets")
def read_connector_config(name: str, parts: PartsDep, _: Reads) -> dict[str, str]:
    return _config(parts.routes.entry(name))


@router.get("/connectors/{name}/tasks", summary="The one task of a route")
def list_connector_tasks(name: str, parts: PartsDep, _: Reads) -> list[dict[str, object]]:
    entry = parts.routes.entry(name)
    return [{"id": {"connector": entry.name, "task": 0}, "config": _config(entry)}]


@router.get("/connectors/{name}/tasks/{task:number}/status", summary="State of the one task of a route")
def read_connector_task(name: str, task: SequenceNumber, parts: PartsDep, _: Reads) -> dict[str, object]:
    return _task(parts.routes.entry(name), task)


@router.post(
    "/connectors/{name}/tasks/{task:number}/restart",
    status_code=204,
    summary="Restart the one task of a route, which restarts the route",
    response_class=Response,
    responses={409: {}},
)
def restart_connector_task(name: str, task: SequenceNumber, parts: PartsDep, _: Writes) -> Response:
    _task(parts.routes.entry(name), task)
    parts.routes.restart(name)
    return Response(status_code=204)


@router.put(
    "/connectors/{name}/pause",
    status_code=202,
    summary="Pause a route",
    response_class=Response,
    responses={409: {}},
)
def pause_connector(name: str, parts: PartsDep, principal: Writes) -> Response:
    parts.routes.pause(name, who=principal.name)
    return Response(status_code=202)


@router.put(
    "/connectors/{name}/resume",
    status_code=202,
    summary="Resume a route",
    response_class=Response,
    responses={409: {}},
)
def resume_connector(name: str, parts: PartsDep, _: Writes) -> Response:
    parts.routes.resume(name)
    return Response(status_code=202)


@router.post(
    "/connectors/{name}/restart",
    status_code=204,
    summary="Restart a route",
    response_class=Response,
    responses={202: {"description": "With includeTasks or onlyFailed"}, 409: {}},
)
def restart_connector(
    name: str,
    parts: PartsDep,
    _: Writes,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Response:
    entry = parts.routes.entry(name)
    if not only_failed or entry.status.phase in (Phase.FAILED, Phase.WAITING):
        parts.routes.restart(name)
    return Response(status_code=202 if include_tasks or only_failed else 204)


@router.get("/connector-plugins", summary="The one plugin: a route")
def list_connector_plugins(_: Reads) -> list[dict[str, str]]:
    return [{"class": CONNECTOR_CLASS, "type": "source", "version": __version__}]


@router.put("/connector-plugins/{kind}/config/validate", summary="Mistakes in a connector's transforms")
def validate_connector_config(
    kind: str, properties: Annotated[dict[str, object], Body()], _: Reads
) -> dict[str, object]:
    if kind not in (CONNECTOR_CLASS, CONNECTOR_CLASS.rpartition(".")[2]):
        raise UnknownPluginError(f"no plugin is named {kind!r}; there is {CONNECTOR_CLASS}")
    config = {name: option_text(value) for name, value in properties.items()}
    errors: dict[str, list[str]] = {name: [] for name in config}
    try:
        Chain.from_config(config)
    except ConfigError as wrong:
        for mistake in wrong.mistakes:
            shown = mistake.shortened()
            errors.setdefault(mistake.path if mistake.path in errors else shown.path, []).append(shown.problem)
    configs = [_validated(name, config.get(name), problems) for name, problems in errors.items()]
    return {
        "name": CONNECTOR_CLASS,
        "error_count": sum(map(len, errors.values())),
        "groups": ["Transforms", "Predicates", "Common"],
        "configs": configs,
    }


def _validated(name: str, value: str | None, errors: list[str]) -> dict[str, object]:
    group = {"transforms": "Transforms", "predicates": "Predicates"}.get(name.partition(".")[0], "Common")
    definition = {
        "name": name, "type": "STRING", "required": False, "default_value": None, "importance": "MEDIUM",
        "documentation": "", "group": group, "order_in_group": -1, "width": "NONE", "display_name": name,
        "dependents": [],
    }  # fmt: skip
    shown = "***" if value is not None and is_secret(name) else value
    stated = {"name": name, "value": shown, "recommended_values": [], "errors": errors, "visible": True}
    return {"definition": definition, "value": stated}


def _type(entry: RouteEntry) -> str:
    """Return ``sink`` for a route that reads Kafka, else ``source``, the two types that Connect defines."""
    reads_kafka = entry.version is not None and entry.version.route.source.format == "kafka"
    return "sink" if reads_kafka else "source"


def _status(entry: RouteEntry) -> dict[str, object]:
    return {"name": entry.name, "connector": _state(entry), "tasks": [_task(entry, 0)], "type": _type(entry)}


def _state(entry: RouteEntry) -> dict[str, str]:
    state = _STATES[entry.status.phase]
    trace = {"trace": entry.status.reason} if state in ("FAILED", "RESTARTING") else {}
    return {"state": state, "worker_id": "turnout", **trace}


def _task(entry: RouteEntry, task: int) -> dict[str, object]:
    if task != 0:
        raise HTTPException(404, f"route {entry.name} has the one task 0")
    return {"id": 0, **_state(entry)}


def _info(entry: RouteEntry) -> dict[str, object]:
    task = {"connector": entry.name, "task": 0}
    return {"name": entry.name, "config": _config(entry), "tasks": [task], "type": _type(entry)}


def _config(entry: RouteEntry) -> dict[str, str]:
    """Return the route's file as properties; transforms in Connect's own way."""
    text = entry.version.text if entry.version else "{}"
    document = load(text) or {}
    transforms = document.pop("transforms", None)
    fixed = {"name": entry.name, "connector.class": CONNECTOR_CLASS, "tasks.max": "1"}
    parts = [*_flat(document), *_transforms(transforms)]
    return fixed | {name: "***" if is_secret(name) else masked_url(value) for name, value in parts if name != "name"}


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _flat(below, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            for number, item in enumerate(value):
                yield from _flat(item, f"{name}.{number}")
        else:
            yield name, ",".join(map(str, value))
    elif value is not None:
        yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _transforms(written: object) -> Iterator[tuple[str, str]]:
    if isinstance(written, str):
        yield "transforms.file", written
    elif isinstance(written, dict):
        yield from _flat(written)
    elif isinstance(written, list):
        stages = [(str(stage.get("name", f"t{number}")), stage) for number, stage in enumerate(written)]
        yield "transforms", ",".join(name for name, _ in stages)
        guarded = [(name, stage["predicate"]) for name, stage in stages if isinstance(stage.get("predicate"), dict)]
        if guarded:
            yield "predicates", ",".join(name for name, _ in guarded)
        for name, stage in stages:
            options = {key: value for key, value in stage.items() if key != "name"}
            if isinstance(options.get("predicate"), dict):
                options["predicate"] = name
            yield from _flat(options, f"transforms.{name}")
        for name, predicate in guarded:
            yield from _flat(predicate, f"predicates.{name}")
