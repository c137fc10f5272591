"""One rule a transform: what it does to the columns of a record, and where it fails."""

from turnout.spark.transforms import (  # noqa: F401 - each registers its rule
    drop_headers,
    filter,
    insert_field,
    insert_header,
    mask_field,
    regex_router,
    replace_field,
    timestamp_converter,
)
from turnout.spark.transforms.compile import compile_transform

__all__ = ["compile_transform"]
