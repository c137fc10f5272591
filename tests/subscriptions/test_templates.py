"""Rules in templates of CloudFormation, SAM, CDK, Serverless and Terraform."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnout.base.yaml_values import load
from turnout.conditions import format_condition
from turnout.subscriptions.eventbridge import EventRule, PatternError
from turnout.subscriptions.templates import template_rules

CLOUDFORMATION = r"""
AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Stage: {Type: String, Default: dev}
  Source: {Type: String}
  Kinds: {Type: CommaDelimitedList, Default: "paid, sent"}
Mappings: {Regions: {eu: {City: Oulu}}}
Conditions: {IsProd: !Equals [!Ref Stage, prod]}
Resources:
  Bus: {Type: AWS::Events::EventBus, Properties: {Name: !Sub "shop-${Stage}"}}
  Files: {Type: AWS::S3::Bucket, Properties: {BucketName: !Join ["-", [files, !Ref Stage]]}}
  Paid:
    Type: AWS::Events::Rule
    Properties:
      EventBusName: !Ref Bus
      State: DISABLED
      EventPattern:
        source: [!Ref Source]
        detail-type: !Ref Kinds
        detail:
          city: [!FindInMap [Regions, eu, City]]
          bucket: [!Ref Files]
          stage: !If [IsProd, [live], !Ref AWS::NoValue]
      Targets: [{Id: t, Arn: !GetAtt F.Arn, InputPath: $.detail}]
  Stored:
    Type: AWS::Events::Rule
    Properties: {Name: !Sub "${AWS::StackName}-stored", EventPattern: '{"source": ["aws.s3"]}'}
  Own: {Type: AWS::Events::Rule, Properties: {EventPattern: {account: [!Ref AWS::AccountId]}}}
  Nightly: {Type: AWS::Events::Rule, Properties: {ScheduleExpression: rate(1 day)}}
  Queue:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      EventSourceArn: !GetAtt Orders.Arn
      Enabled: false
      FilterCriteria:
        Filters: [{Pattern: '{"body": {"kind": ["paid"]}}'}, {Pattern: '{"body": {"total": [{"numeric": [">", 5]}]}}'}]
  Changes:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      EventSourceArn: !Sub "arn:aws:dynamodb:eu-north-1:1:table/t/stream/2020"
      FilterCriteria: {Filters: [{Pattern: '{"eventName": ["INSERT"], "dynamodb": {"NewImage": {"n": {"N": ["5"]}}}}'}]}
  Pipe:
    Type: AWS::Pipes::Pipe
    Properties:
      Name: orders
      Source: "arn:aws:kinesis:eu-north-1:1:stream/s"
      SourceParameters: {FilterCriteria: {Filters: [{Pattern: '{"partitionKey": ["1"], "data": {"a": ["x"]}}'}]}}
  Function:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Order: {Type: EventBridgeRule, Properties: {Pattern: {source: [shop]}, EventBusName: !ImportValue bus}}
        Call: {Type: Api, Properties: {Path: /}}
        Message: {Type: SQS, Properties: {Queue: !Ref Q, FilterCriteria: {Filters: [{Pattern: '{"body": ["x"]}'}]}}}
"""


def rules_of(text: str, **parameters: str) -> dict[str, Any]:
    rules = template_rules(load(text, with_tags=True, max_depth=100), parameters)
    assert rules is not None
    found: dict[str, Any] = {}
    for rule in rules:
        if isinstance(rule, PatternError):
            found[rule.path] = rule.reason
        else:
            found[rule.id] = rule
    return found


def test_rules_of_cloudformation() -> None:
    """References are resolved; each rule has its name, or its resource's; what is not known is named."""
    found = rules_of(CLOUDFORMATION, Source="eu.shop")

    paid = found.pop("shop-dev:Paid")
    assert paid.pattern == {
        "source": ["eu.shop"],
        "detail-type": ["paid", "sent"],
        "detail": {"city": ["Oulu"], "bucket": ["files-dev"]},
    }
    assert (paid.enabled, paid.targets, paid.notes) == (False, ({"Id": "t", "InputPath": "$.detail"},), ())
    assert found["Stored"].pattern == {"source": ["aws.s3"]}
    assert found["Stored"].notes == (
        "its name is 'Stored' here: refers to AWS::StackName: give --parameter AWS::StackName=VALUE",
    )
    assert found["Own.EventPattern.account[0]"] == "refers to AWS::AccountId: give --parameter AWS::AccountId=VALUE"
    assert found["Nightly"].startswith("has the schedule rate(1 day) and no pattern")
    assert found["ImportValue-bus:FunctionOrder"].pattern == {"source": ["shop"]}
    assert "known when it is deployed" in found["ImportValue-bus:FunctionOrder"].notes[0]


def test_filters_of_lambda_and_pipes() -> None:
    """One filter of several has to match; what Lambda puts around a value is not tested."""
    found = rules_of(CLOUDFORMATION, Source="eu.shop")

    queue = found["Queue"]
    assert format_condition(queue.condition) == "kind[]:text:paid OR total[]:number>5"
    assert (queue.enabled, queue.notes) == (False, ("tests fields of the value, which Lambda has in 'body'",))
    assert set(found["Changes"].pattern) == {"eventName", "dynamodb"}
    assert found["orders.Filters[0].Pattern.partitionKey"] == "is no part of the value, which is Lambda's 'data'"
    assert found["FunctionMessage.Filters[0].Pattern.body"] == "tests a text, and conditions test fields of an object"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("!Ref Nothing", "refers to Nothing: its value is known when it is deployed"),
        ("!Ref Source", "refers to Source: give --parameter Source=VALUE"),
        ('!Sub "${Files.Arn}/x"', "refers to ${Files.Arn}: give --parameter Files.Arn=VALUE"),
        ("!GetAtt Files.Arn", "refers to Files.Arn: its value is known when it is deployed"),
        ("!Select [5, [a]]", "expected an index into a list"),
        ("!Transform {Name: x}", "refers to"),
        ("!FindInMap [Regions, us, City]", "Mappings have no Regions.us.City"),
        ("!If [None, a, b]", "there is no condition 'None'"),
    ],
)
def test_references_that_are_not_known_are_named(value: str, problem: str) -> None:
    """With the place of the value and what to do."""
    template = (
        CLOUDFORMATION + "  Bad: {Type: AWS::Events::Rule, Properties: {EventPattern: {source: [" + value + "]}}}\n"
    )

    assert rules_of(template)["Bad.EventPattern.source[0]"].startswith(problem)


def test_references_to_themselves_end() -> None:
    """At a depth; a resource may be named after itself."""
    loop = "Resources: {B: {Type: 'AWS::S3::Bucket', Properties: {BucketName: !Ref B}}, R: {Type: 'AWS::Events::Rule', "
    found = rules_of(loop + "Properties: {EventPattern: {source: [!Ref B]}}}}")

    assert found["R.EventPattern.source[0]"] == "is nested deeper than 100"


SERVERLESS = """
service: shop
provider: {name: aws}
functions:
  order:
    handler: h
    events:
      - eventBridge: {pattern: {source: [shop]}, eventBus: shop, inputPath: $.detail}
      - eventBridge: {pattern: {source: ["${self:custom.source}"]}}
      - eventBridge: {schedule: rate(1 hour)}
      - cloudwatchEvent: {event: {source: [aws.ec2]}, enabled: false}
      - sqs: {arn: !GetAtt Q.Arn, filterPatterns: [{body: {a: [x]}}]}
      - stream: {type: dynamodb, arn: "arn:aws:dynamodb:x", filterPatterns: [{eventName: [INSERT]}]}
      - http: GET /
resources: {Resources: {Own: {Type: "AWS::Events::Rule", Properties: {EventPattern: {a: [1]}}}}}
"""


def test_rules_of_serverless() -> None:
    """By the function and the number of the event; its own resources are CloudFormation's."""
    found = rules_of(SERVERLESS)

    rules = {name: (rule.pattern, rule.enabled) for name, rule in found.items() if isinstance(rule, EventRule)}
    assert rules == {
        "shop:order-1": ({"source": ["shop"]}, True),
        "order-4": ({"source": ["aws.ec2"]}, False),
        "order-5": ({"a": ["x"]}, True),
        "order-6": ({"eventName": ["INSERT"]}, True),
        "Own": ({"a": [1]}, True),
    }
    assert found["shop:order-1"].targets == ({"InputPath": "$.detail"},)
    assert found["order-2.EventPattern.source[0]"].startswith("refers to ${self:custom.source}: ")
    assert "order-3" in found


def test_rules_of_a_plan_of_terraform() -> None:
    """Of all modules, with their targets; a pattern that is not known yet is named."""
    rule = {"event_pattern": '{"source": ["shop"]}', "name": "paid", "event_bus_name": "shop", "state": "DISABLED"}
    target = {"rule": "paid", "event_bus_name": "shop", "target_id": "t", "input_path": "$.detail", "input": None}
    mapping = {
        "event_source_arn": "arn:aws:sqs:x",
        "filter_criteria": [{"filter": [{"pattern": '{"body": {"a": ["x"]}}'}]}],
    }
    resources = [
        ("aws_cloudwatch_event_target", "t", target),
        ("aws_lambda_event_source_mapping", "module.m.aws_lambda_event_source_mapping.q", mapping),
        ("aws_cloudwatch_event_rule", "aws_cloudwatch_event_rule.later", {"name": "later"}),
        ("aws_sqs_queue", "aws_sqs_queue.q", {}),
    ]
    listed = [{"type": kind, "address": address, "values": values} for kind, address, values in resources]
    own = {"type": "aws_cloudwatch_event_rule", "address": "aws_cloudwatch_event_rule.paid", "values": rule}
    module = {"resources": [own], "child_modules": [{"resources": listed}]}
    plan = json.dumps({"format_version": "1.2", "planned_values": {"root_module": module}})

    found = rules_of(plan)

    assert (found["shop:paid"].pattern, found["shop:paid"].enabled) == ({"source": ["shop"]}, False)
    assert found["shop:paid"].targets == ({"Id": "t", "InputPath": "$.detail"},)
    assert found["module.m.aws_lambda_event_source_mapping.q"].pattern == {"a": ["x"]}
    assert found["aws_cloudwatch_event_rule.later"].startswith("has no event_pattern")


@pytest.mark.parametrize("document", [{}, {"source": ["a"]}, [], "x", {"Rules": []}, {"service": ["x"]}])
def test_other_documents_are_no_templates(document: object) -> None:
    """A pattern may have a field service."""
    assert template_rules(document, {}) is None
