"""Settings of JsonSchemaConverter that have an effect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonSchemaOptions:
    """Settings of Confluent's JsonSchemaData and its serializers, with their defaults.

    Attributes:
        use_optional_for_nonrequired: whether properties that are not required are optional.
        object_additional_properties: whether schemas that are written allow properties that they do not list.
        decimal_format: ``BASE64`` or ``NUMERIC``, of decimals that are written.
        json_fail_invalid_schema: whether values are validated, when they are read and when they are written.
    """

    use_optional_for_nonrequired: bool = False
    object_additional_properties: bool = True
    decimal_format: str = "BASE64"
    json_fail_invalid_schema: bool = False
