"""Subjects, their transforms and their mappings, as nats-server has them (ADR-30). Pure Python."""

from turnout.subjects.errors import MappingTableError, NoMatchError
from turnout.subjects.mapping import Destination, MappingTable, SubjectMapping
from turnout.subjects.mapping_readers import (
    StreamTransforms,
    load_document,
    mappings_from_claim,
    mappings_from_file,
    mappings_in,
    mappings_of_document,
    stream_transforms,
)
from turnout.subjects.pattern import (
    collide,
    has_wildcard,
    is_literal,
    is_publishable,
    is_subset,
    is_valid,
    is_valid_literal,
    matches,
    subscriptions_under,
    token_at,
)
from turnout.subjects.server_config import load_config, parse_config
from turnout.subjects.transform import SubjectTransform, placeholders, with_placeholders

__all__ = [
    "Destination",
    "MappingTable",
    "MappingTableError",
    "NoMatchError",
    "StreamTransforms",
    "SubjectMapping",
    "SubjectTransform",
    "collide",
    "has_wildcard",
    "is_literal",
    "is_publishable",
    "is_subset",
    "is_valid",
    "is_valid_literal",
    "load_config",
    "load_document",
    "mappings_from_claim",
    "mappings_from_file",
    "mappings_in",
    "mappings_of_document",
    "matches",
    "parse_config",
    "placeholders",
    "stream_transforms",
    "subscriptions_under",
    "token_at",
    "with_placeholders",
]
