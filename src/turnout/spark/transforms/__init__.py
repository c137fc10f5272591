"""One rule a transform: what it does to the columns of a record, and where it fails."""

from turnout.spark.transforms import (
    cast,
    drop_headers,
    extract_field,
    flatten,
    header_from,
    hoist_field,
    insert_field,
    insert_header,
    mask_field,
    regex_router,
    replace_field,
    set_schema_metadata,
    subject_transform,
    timestamp_converter,
    timestamp_router,
    value_to_key,
)
from turnout.spark.transforms import filter as filter_
from turnout.spark.transforms.compile import compile_transform

RULES = (
    cast,
    drop_headers,
    extract_field,
    filter_,
    flatten,
    header_from,
    hoist_field,
    insert_field,
    insert_header,
    mask_field,
    regex_router,
    replace_field,
    set_schema_metadata,
    subject_transform,
    timestamp_converter,
    timestamp_router,
    value_to_key,
)
"""The modules that hold the rules; importing one registers its rule."""

__all__ = ["RULES", "compile_transform"]
