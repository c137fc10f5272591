"""Rules in the templates of deployments: CloudFormation, SAM, CDK's output, Serverless, and Terraform's plan.

A rule keeps its name, or the logical id of its resource. Filters of Lambda's event source mappings and of EventBridge
Pipes are rules with several patterns. References are resolved as far as the template says what they are; a rule with
one that it does not say is a mistake that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turnout.base.untrusted import JsonMapping, JsonObject, RepeatedKeyError, unique_object
from turnout.records.types import DynamicValue
from turnout.subscriptions.eventbridge import EventRule, PatternError, rule_of

_MAX_DEPTH: Final = 100
_MAX_RESOURCES: Final = 10_000
_VARIABLE: Final = re.compile(r"\$\{([!]?)([^{}]*)\}")
_SLS_VARIABLE: Final = re.compile(r"\$\{[^{}]*\}")
_TAG: Final = {"!Ref": "Ref", "!Condition": "Condition"}
_WRAPPERS: Final = {"sqs": "body", "kinesis": "data", "kafka": "value", "mq": "data"}
"""Field of a record of Lambda that has what is a value here, by source."""

_OF_STREAMS: Final = frozenset(
    ("dynamodb", "eventName", "eventID", "eventVersion", "eventSource", "awsRegion", "userIdentity")
)
"""Fields of a record of DynamoDB's streams, which has no field around it."""

_KINDS: Final = (
    (":sqs:", "sqs"),
    (":kinesis:", "kinesis"),
    (":kafka:", "kafka"),
    (":mq:", "mq"),
    (":dynamodb:", "dynamodb"),
    (":docdb:", "docdb"),
)


def template_rules(document: object, parameters: Mapping[str, str]) -> Iterator[EventRule | PatternError] | None:
    """Return the rules of a template; None for a document that is none.

    Args:
        document: the document, with tags of YAML as mappings: ``{"!Ref": "Name"}``.
        parameters: values of parameters, in place of their defaults.

    >>> resource = {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": {"source": [{"Ref": "Source"}]}}}
    >>> template = {"Parameters": {"Source": {"Default": "shop"}}, "Resources": {"Paid": resource}}
    >>> [(rule.name, rule.pattern) for rule in template_rules(template, {})]
    [('Paid', {'source': ['shop']})]
    """
    if not isinstance(document, Mapping):
        return None
    if isinstance(document.get("planned_values"), Mapping):
        return _terraform(document["planned_values"])
    if "terraform_version" in document and isinstance(document.get("values"), Mapping):
        return _terraform(document["values"])
    if isinstance(document.get("Resources"), Mapping):
        return _Template(document, parameters).rules()
    if "service" in document and document.keys() & {"functions", "provider", "resources"}:
        return _serverless(document, parameters)
    return None


class _UnknownReferenceError(Exception):
    """Raised for a reference that a template does not resolve.

    Attributes:
        reference: as the template has it.
        cure: what to do about it.
    """

    def __init__(self, reference: str, cure: str) -> None:
        super().__init__(reference)
        self.reference = reference
        self.cure = cure


@dataclass(slots=True)
class _Template:
    """A template of CloudFormation, with SAM's resources.

    Attributes:
        document: the template.
        given: values of parameters.
    """

    document: JsonMapping
    given: Mapping[str, str]
    _depth: int = field(default=0, init=False)

    def rules(self) -> Iterator[EventRule | PatternError]:
        resources = self._mapping("Resources")
        if len(resources) > _MAX_RESOURCES:
            yield PatternError("Resources", f"has more than {_MAX_RESOURCES:,} resources")
            return
        for name, resource in resources.items():
            properties = resource.get("Properties") if isinstance(resource, Mapping) else None
            if isinstance(properties, Mapping):
                yield from self._of_resource(str(name), str(resource.get("Type")), properties)

    def _mapping(self, name: str) -> JsonMapping:
        found = self.document.get(name)
        return found if isinstance(found, Mapping) else {}

    def _of_resource(self, name: str, kind: str, properties: JsonMapping) -> Iterator[EventRule | PatternError]:
        if kind == "AWS::Events::Rule":
            yield self._rule(name, properties, properties.get("Name"))
        elif kind == "AWS::Lambda::EventSourceMapping":
            yield from self._filters(
                name, properties.get("FilterCriteria"), properties.get("EventSourceArn"), properties
            )
        elif kind == "AWS::Pipes::Pipe":
            inner = properties.get("SourceParameters")
            criteria = inner.get("FilterCriteria") if isinstance(inner, Mapping) else None
            pipe = {"Enabled": properties.get("DesiredState") != "STOPPED"}
            shown = self._text_or(properties.get("Name"), name)
            yield from self._filters(shown, criteria, properties.get("Source"), pipe)
        elif kind in ("AWS::Serverless::Function", "AWS::Serverless::StateMachine"):
            events = properties.get("Events")
            for event, found in events.items() if isinstance(events, Mapping) else ():
                inner = found.get("Properties") if isinstance(found, Mapping) else None
                if isinstance(inner, Mapping):
                    yield from self._of_event(f"{name}{event}", str(found.get("Type")), inner)

    def _of_event(self, name: str, kind: str, properties: JsonMapping) -> Iterator[EventRule | PatternError]:
        """Yield the rule of an event of SAM's functions and state machines."""
        if kind in ("EventBridgeRule", "CloudWatchEvent"):
            rule = {"EventPattern": properties.get("Pattern"), "Targets": [properties], **properties}
            if isinstance(properties.get("Enabled"), bool):
                rule["State"] = "ENABLED" if properties["Enabled"] else "DISABLED"
            yield self._rule(name, rule, properties.get("RuleName"))
        elif properties.get("FilterCriteria") is not None:
            source = next(
                (properties[key] for key in ("Queue", "Stream", "Broker", "Cluster") if key in properties), None
            )
            yield from self._filters(name, properties["FilterCriteria"], source, properties, _sam_kind(kind))

    def _rule(self, name: str, properties: JsonMapping, given: object) -> EventRule | PatternError:
        notes: list[str] = []
        shown = self._text_or(given, name, notes, "its name")
        bus = self._bus(properties.get("EventBusName"), notes)
        rule: JsonObject = {"Name": shown, "EventBusName": bus}
        targets = properties.get("Targets")
        kept = ("Id", "Input", "InputPath", "InputTransformer")
        listed: list[object] = targets if isinstance(targets, list) else []
        chosen = [{key: one[key] for key in kept if key in one} for one in listed if isinstance(one, Mapping)]
        parts = {key: properties[key] for key in ("EventPattern", "ScheduleExpression", "State") if properties.get(key)}
        try:
            for key, value in {**parts, "Targets": chosen}.items():
                rule[key] = self.resolved(value, key)
        except PatternError as problem:
            return PatternError(f"{shown}.{problem.path}", problem.reason)
        if "EventPattern" not in rule and "ScheduleExpression" not in rule:
            return PatternError(shown, "has no EventPattern")
        try:
            return replace(rule_of(rule), notes=tuple(notes))
        except PatternError as problem:
            return problem

    def _bus(self, value: object, notes: list[str]) -> str:
        """Return the name of a bus: of another resource its own name, or its logical id."""
        if value is None:
            return ""
        intrinsic = _intrinsic(value)
        if intrinsic is not None and intrinsic[0] in ("Ref", "Fn::GetAtt"):
            target = intrinsic[1][0] if isinstance(intrinsic[1], list) else str(intrinsic[1]).partition(".")[0]
            resource = self._mapping("Resources").get(target)
            if isinstance(resource, Mapping):
                properties = resource.get("Properties")
                name = properties.get("Name") if isinstance(properties, Mapping) else None
                return self._text_or(name, str(target), notes, "the bus")
        reference = _written(value)
        return self._text_or(value, re.sub(r"\W+", "-", reference).strip("-"), notes, "the bus")

    def _text_or(self, value: object, default: str, notes: list[str] | None = None, what: str = "") -> str:
        """Return a text, or the default where a reference in it is not known."""
        if value is None:
            return default
        try:
            text = self.resolved(value, "")
        except PatternError as problem:
            if notes is not None:
                notes.append(f"{what} is {default!r} here: {problem.reason}")
            return default
        return str(text)

    def _filters(
        self, name: str, criteria: object, source: object, properties: JsonMapping, kind: str = ""
    ) -> Iterator[EventRule | PatternError]:
        """Yield the rule of the filters of a source, one of which has to match."""
        if criteria is None:
            return
        try:
            filters = self.resolved(criteria, "FilterCriteria")
            kind = kind or _kind_of(self._text_or(source, _written(source)))
            patterns = filters.get("Filters") if isinstance(filters, Mapping) else None
            enabled = properties.get("Enabled", True)
            yield _filtered(name, [one.get("Pattern") for one in patterns or ()], kind, enabled is not False)
        except PatternError as problem:
            yield PatternError(f"{name}.{problem.path}", problem.reason)
        except AttributeError:
            yield PatternError(f"{name}.FilterCriteria", "expected Filters, a list of objects with a Pattern")

    # References

    def resolved(self, value: object, path: str) -> DynamicValue:
        """Return a value with its references resolved.

        Raises:
            PatternError: one is not known.
        """
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise PatternError(path, f"is nested deeper than {_MAX_DEPTH}")
            intrinsic = _intrinsic(value)
            if intrinsic is not None:
                return self._intrinsic(*intrinsic, path)
            if isinstance(value, Mapping):
                found = {str(key): self.resolved(inner, f"{path}.{key}") for key, inner in value.items()}
                return {key: inner for key, inner in found.items() if inner is not _NO_VALUE}
            if isinstance(value, list):
                items = [self.resolved(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
                return [inner for inner in items if inner is not _NO_VALUE]
        except _UnknownReferenceError as unknown:
            raise PatternError(path, f"refers to {unknown.reference}: {unknown.cure}") from None
        finally:
            self._depth -= 1
        return value

    def _intrinsic(self, name: str, argument: object, path: str) -> object:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise _UnknownReferenceError(_written({name: argument}), _DEPLOYED)
        return function(self, argument, path)

    def ref(self, argument: object, path: str) -> object:
        name = str(argument)
        if name == "AWS::NoValue":
            return _NO_VALUE
        if name in self.given:
            return self.given[name]
        parameter = self._mapping("Parameters").get(name)
        if isinstance(parameter, Mapping):
            if "Default" not in parameter:
                raise _UnknownReferenceError(name, f"give --parameter {name}=VALUE")
            default = parameter["Default"]
            is_list = str(parameter.get("Type", "")).startswith(("List<", "CommaDelimitedList"))
            return [part.strip() for part in str(default).split(",")] if is_list else default
        if name.startswith("AWS::"):
            raise _UnknownReferenceError(name, f"give --parameter {name}=VALUE")
        resource = self._mapping("Resources").get(name)
        if isinstance(resource, Mapping) and isinstance(resource.get("Properties"), Mapping):
            own = _NAMES.get(str(resource.get("Type")))
            if own in resource["Properties"]:
                return self.resolved(resource["Properties"][own], path)
        raise _UnknownReferenceError(name, f"its value is known when it is deployed: give --parameter {name}=VALUE")

    def sub(self, argument: object, path: str) -> str:
        text: object = argument
        values: JsonMapping = {}
        if isinstance(argument, list) and len(argument) == 2 and isinstance(argument[1], Mapping):
            text, values = argument
        if not isinstance(text, str):
            raise PatternError(path, "expected a text in Fn::Sub")

        def replaced(found: re.Match[str]) -> str:
            if found[1]:
                return f"${{{found[2]}}}"
            name = found[2].strip()
            if name in values:
                return str(self.resolved(values[name], path))
            if "." in name and name not in self.given:
                raise _UnknownReferenceError(f"${{{name}}}", f"give --parameter {name}=VALUE")
            return str(self.ref(name, path))

        return _VARIABLE.sub(replaced, text)

    def get_attribute(self, argument: object, _path: str) -> str:
        name = ".".join(map(str, argument)) if isinstance(argument, list) else str(argument)
        if name in self.given:
            return self.given[name]
        raise _UnknownReferenceError(name, f"its value is known when it is deployed: give --parameter {name}=VALUE")

    def join(self, argument: object, path: str) -> str:
        if not isinstance(argument, list) or len(argument) != 2:
            raise PatternError(path, "expected a separator and a list in Fn::Join")
        items = self.resolved(argument[1], path)
        return str(argument[0]).join(map(str, items if isinstance(items, list) else [items]))

    def find_in_map(self, argument: object, path: str) -> object:
        names = self.resolved(argument, path)
        found: object = self._mapping("Mappings")
        for name in names[:3] if isinstance(names, list) else ():
            if not isinstance(found, Mapping) or name not in found:
                raise PatternError(path, f"Mappings have no {'.'.join(map(str, names))}")
            found = found[name]
        return found

    def select(self, argument: object, path: str) -> object:
        number, items = self.resolved(argument, path)
        if not isinstance(items, list) or not str(number).isdecimal() or int(number) >= len(items):
            raise PatternError(path, f"expected an index into a list in Fn::Select, found {number!r:.40}")
        return items[int(number)]

    def split(self, argument: object, path: str) -> list[str]:
        separator, text = self.resolved(argument, path)
        return str(text).split(str(separator) or ",")

    def if_(self, argument: object, path: str) -> object:
        if not isinstance(argument, list) or len(argument) != 3:
            raise PatternError(path, "expected a condition and two values in Fn::If")
        holds = self.resolved({"Condition": argument[0]}, path)
        return self.resolved(argument[1 if holds else 2], path)

    def condition(self, argument: object, path: str) -> object:
        conditions = self._mapping("Conditions")
        if not isinstance(argument, str) or argument not in conditions:
            raise PatternError(path, f"there is no condition {argument!r:.40}")
        return self.resolved(conditions[argument], path)

    def equals(self, argument: object, path: str) -> bool:
        one, other = self.resolved(argument, path)
        return str(one) == str(other)

    def json_text(self, argument: object, path: str) -> str:
        return json.dumps(self.resolved(argument, path))


_NO_VALUE: Final = object()
_FUNCTIONS: Final[Mapping[str, Callable[[_Template, object, str], object]]] = {
    "Ref": _Template.ref,
    "Fn::Sub": _Template.sub,
    "Fn::GetAtt": _Template.get_attribute,
    "Fn::Join": _Template.join,
    "Fn::FindInMap": _Template.find_in_map,
    "Fn::Select": _Template.select,
    "Fn::Split": _Template.split,
    "Fn::If": _Template.if_,
    "Condition": _Template.condition,
    "Fn::Equals": _Template.equals,
    "Fn::Not": lambda template, argument, path: not template.resolved(argument, path)[0],
    "Fn::And": lambda template, argument, path: all(template.resolved(argument, path)),
    "Fn::Or": lambda template, argument, path: any(template.resolved(argument, path)),
    "Fn::ToJsonString": _Template.json_text,
}
"""Functions of CloudFormation by name."""

_DEPLOYED: Final = "its value is known when it is deployed: write it into a copy of the template"
_NAMES: Final = {
    "AWS::Events::EventBus": "Name",
    "AWS::S3::Bucket": "BucketName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Serverless::SimpleTable": "TableName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Serverless::Function": "FunctionName",
    "AWS::SSM::Parameter": "Value",
    "AWS::Logs::LogGroup": "LogGroupName",
}
"""Property that a reference to a resource of a type stands for, if it is set."""


def _intrinsic(value: object) -> tuple[str, object] | None:
    """Return the name and the argument of a function of CloudFormation; None for another value."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    ((name, argument),) = value.items()
    if not isinstance(name, str):
        return None
    if name.startswith("!"):
        name = _TAG.get(name, f"Fn::{name[1:]}")
    known = name in ("Ref", "Condition") and isinstance(argument, str)
    return (name, argument) if known or name.startswith("Fn::") else None


def _written(value: object) -> str:
    return value if isinstance(value, str) else f"{json.dumps(value, default=str):.80}"


def _sam_kind(event: str) -> str:
    names = {"SelfManagedKafka": "kafka", "MSK": "kafka", "MQ": "mq", "DocumentDB": "docdb"}
    return names.get(event, event.lower())


def _kind_of(source: str) -> str:
    return next((kind for part, kind in _KINDS if part in source), "")


def _filtered(name: str, filters: Sequence[object], kind: str, enabled: bool) -> EventRule:
    """Return the rule of filters, whose patterns are over what is a value here.

    Raises:
        PatternError: there is none, or one tests something else of Lambda's records.
    """
    if not filters:
        raise PatternError("FilterCriteria", "has no Filters: it takes everything")
    patterns: list[object] = []
    notes: list[str] = []
    for number, text in enumerate(filters):
        path = f"Filters[{number}].Pattern"
        pattern = _pattern(text, path)
        if not isinstance(pattern, Mapping):
            raise PatternError(path, f"expected an object of fields, found {_written(pattern)}")
        wrapper = _WRAPPERS.get(kind) or next((one for one in ("body", "data", "value") if set(pattern) == {one}), "")
        if kind not in ("dynamodb", "docdb") and wrapper and not pattern.keys() & _OF_STREAMS:
            others = [str(key) for key in pattern if key != wrapper]
            if others:
                raise PatternError(f"{path}.{others[0]}", f"is no part of the value, which is Lambda's {wrapper!r}")
            pattern = pattern[wrapper]
            if not isinstance(pattern, Mapping):
                raise PatternError(f"{path}.{wrapper}", "tests a text, and conditions test fields of an object")
            notes.append(f"tests fields of the value, which Lambda has in {wrapper!r}")
        patterns.append(pattern)
    return EventRule(name, patterns[0], enabled=enabled, more=tuple(patterns[1:]), notes=tuple(dict.fromkeys(notes)))


def _pattern(text: object, path: str) -> object:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text, object_pairs_hook=unique_object)
    except RepeatedKeyError as problem:
        raise PatternError(path, str(problem)) from None
    except (ValueError, RecursionError) as problem:
        raise PatternError(path, f"is no JSON: {problem}") from None


# Terraform


def _terraform(values: JsonMapping) -> Iterator[EventRule | PatternError]:
    """Yield the rules of the resources of a plan or a state."""
    resources = list(_terraform_resources(values.get("root_module"), 0))
    targets: dict[tuple[str, str], list[JsonMapping]] = {}
    for kind, _, found in resources:
        if kind == "aws_cloudwatch_event_target":
            key = (str(found.get("event_bus_name") or "default"), str(found.get("rule")))
            targets.setdefault(key, []).append(found)
    for kind, address, found in resources:
        if kind == "aws_cloudwatch_event_rule":
            name = str(found.get("name") or address)
            bus = str(found.get("event_bus_name") or "default")
            rule: JsonObject = {"Name": name, "EventBusName": bus}
            if found.get("event_pattern") is not None:
                rule["EventPattern"] = found["event_pattern"]
            if found.get("schedule_expression"):
                rule["ScheduleExpression"] = found["schedule_expression"]
            if found.get("state") == "DISABLED" or found.get("is_enabled") is False:
                rule["State"] = "DISABLED"
            rule["Targets"] = [_terraform_target(target) for target in targets.get((bus, name), ())]
            yield _terraform_rule(rule, address)
        elif kind in ("aws_lambda_event_source_mapping", "aws_pipes_pipe"):
            yield from _terraform_filters(address, found)


def _terraform_resources(module: object, depth: int) -> Iterator[tuple[str, str, JsonMapping]]:
    if not isinstance(module, Mapping) or depth > _MAX_DEPTH:
        return
    for resource in module.get("resources") or ():
        if isinstance(resource, Mapping) and isinstance(resource.get("values"), Mapping):
            yield str(resource.get("type")), str(resource.get("address") or resource.get("name")), resource["values"]
    for child in module.get("child_modules") or ():
        yield from _terraform_resources(child, depth + 1)


def _terraform_target(target: JsonMapping) -> JsonObject:
    kept = {"Id": "target_id", "Input": "input", "InputPath": "input_path"}
    found = {key: target[name] for key, name in kept.items() if target.get(name)}
    for transformer in target.get("input_transformer") or ():
        paths, template = transformer.get("input_paths") or {}, transformer.get("input_template")
        found["InputTransformer"] = {"InputPathsMap": paths, "InputTemplate": template}
    return found


def _terraform_rule(rule: JsonMapping, address: str) -> EventRule | PatternError:
    if "EventPattern" not in rule and "ScheduleExpression" not in rule:
        reason = (
            "has no event_pattern, or one that is known when it is applied: take the state, by terraform show -json"
        )
        return PatternError(address, reason)
    try:
        return rule_of(rule)
    except PatternError as problem:
        return problem


def _terraform_filters(address: str, found: JsonMapping) -> Iterator[EventRule | PatternError]:
    blocks = found.get("filter_criteria")
    for source in found.get("source_parameters") or ():
        blocks = source.get("filter_criteria") if isinstance(source, Mapping) else None
    filters = [one for block in blocks or () if isinstance(block, Mapping) for one in block.get("filter") or ()]
    if not filters:
        return
    source = str(found.get("event_source_arn") or found.get("source") or "")
    enabled = found.get("enabled") is not False and found.get("desired_state") != "STOPPED"
    try:
        yield _filtered(address, [one.get("pattern") for one in filters], _kind_of(source), enabled)
    except PatternError as problem:
        yield PatternError(f"{address}.{problem.path}", problem.reason)


# Serverless


def _serverless(document: JsonMapping, parameters: Mapping[str, str]) -> Iterator[EventRule | PatternError]:
    """Yield the rules of a file of the Serverless Framework, and those of its own resources."""
    functions = document.get("functions")
    for part in functions if isinstance(functions, list) else [functions]:
        for name, function in part.items() if isinstance(part, Mapping) else ():
            events = function.get("events") if isinstance(function, Mapping) else None
            for number, event in enumerate(events if isinstance(events, list) else (), 1):
                if isinstance(event, Mapping) and len(event) == 1:
                    ((kind, found),) = event.items()
                    yield from _serverless_event(f"{name}-{number}", str(kind), found)
    resources = document.get("resources")
    for part in resources if isinstance(resources, list) else [resources]:
        if isinstance(part, Mapping) and isinstance(part.get("Resources"), Mapping):
            yield from _Template(part, parameters).rules()


def _serverless_event(name: str, kind: str, found: object) -> Iterator[EventRule | PatternError]:
    if not isinstance(found, Mapping):
        return
    if kind in ("eventBridge", "cloudwatchEvent"):
        pattern = found.get("event") if kind == "cloudwatchEvent" else found.get("pattern")
        rule: JsonObject = {"Name": str(found.get("name") or name), "EventBusName": found.get("eventBus")}
        if pattern is not None:
            rule["EventPattern"] = pattern
        if found.get("schedule"):
            rule["ScheduleExpression"] = found["schedule"]
        if found.get("enabled") is False or found.get("state") == "DISABLED":
            rule["State"] = "DISABLED"
        rule["Targets"] = [_serverless_target(found)]
        yield _serverless_rule(rule)
    elif found.get("filterPatterns"):
        source = str(found.get("type") or kind)
        known = {"sqs": "sqs", "dynamodb": "dynamodb", "kinesis": "kinesis", "msk": "kafka", "kafka": "kafka"}
        arn = found.get("arn")
        kind_of = known.get(source) or _kind_of(arn if isinstance(arn, str) else "")
        try:
            _without_variables(found["filterPatterns"], "filterPatterns")
            yield _filtered(name, found["filterPatterns"], kind_of, found.get("enabled") is not False)
        except PatternError as problem:
            yield PatternError(f"{name}.{problem.path}", problem.reason)


def _serverless_target(found: JsonMapping) -> JsonObject:
    target: JsonObject = {}
    if found.get("input") is not None:
        target["Input"] = found["input"] if isinstance(found["input"], str) else json.dumps(found["input"])
    if found.get("inputPath"):
        target["InputPath"] = found["inputPath"]
    transformer = found.get("inputTransformer")
    if isinstance(transformer, Mapping):
        paths, template = transformer.get("inputPathsMap") or {}, transformer.get("inputTemplate")
        target["InputTransformer"] = {"InputPathsMap": paths, "InputTemplate": template}
    return target


def _serverless_rule(rule: JsonObject) -> EventRule | PatternError:
    notes: list[str] = []
    bus = rule["EventBusName"]
    if isinstance(bus, Mapping) or (isinstance(bus, str) and _SLS_VARIABLE.search(bus)):
        rule["EventBusName"] = re.sub(r"\W+", "-", _written(bus)).strip("-")
        notes.append(f"the bus is {rule['EventBusName']!r} here: {_written(bus)} is known when it is deployed")
    if "EventPattern" not in rule and "ScheduleExpression" not in rule:
        return PatternError(rule["Name"], "has no pattern")
    try:
        for key in ("EventPattern", "Targets"):
            _without_variables(rule.get(key), key)
        return replace(rule_of(rule), notes=tuple(notes))
    except PatternError as problem:
        return PatternError(
            f"{rule['Name']}.{problem.path}".replace(f"{rule['Name']}.{rule['Name']}", rule["Name"]), problem.reason
        )


def _without_variables(value: object, path: str) -> None:
    """Check that no text has a variable of the framework, or a function of CloudFormation.

    Raises:
        PatternError: one has.
    """
    for inner, text in _texts(value, path, 0):
        found = _SLS_VARIABLE.search(text)
        if found is not None:
            raise PatternError(inner, f"refers to {found[0]}: write the values by serverless print")


def _texts(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _MAX_DEPTH:
        raise PatternError(path, f"is nested deeper than {_MAX_DEPTH}")
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, f"{path}[{number}]", depth + 1)
    elif isinstance(value, Mapping):
        if _intrinsic(value) is not None:
            yield path, f"${{{_written(value)[1:-1]}}}".replace("{{", "{")
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}", depth + 1)
