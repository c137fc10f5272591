"""Folders of files as a source and as a sink."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from turnout.routes.endpoints.base import Endpoint, Sink, Source


class _Files(Endpoint):
    """A folder of files that hold the record's columns.

    Attributes:
        path: the folder, as Spark takes it.
        options_: more options of Spark's format.
    """

    path: str
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")


class FileSource(_Files, Source):
    """Files, read once; with ``stream: true``, new files are read as they appear.

    Attributes:
        topic: topic of all records of Avro files; the full name of their schema if not given.
        schemas: true if values of Avro files are Connect's JSON with the schema; false for JSON alone.
        stream: whether new files are read as they are added.
        max_files_per_trigger: the most files in a micro-batch.
    """

    format: Literal["json", "parquet", "csv", "avro"]
    topic: str | None = None
    schemas: bool | None = None
    stream: bool = False
    max_files_per_trigger: int | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _only_avro(self) -> FileSource:
        set_options = [name for name in ("topic", "schemas") if getattr(self, name) is not None]
        if set_options and self.format != "avro":
            raise ValueError(
                f"{' and '.join(set_options)}: only Avro files need it, as others have the record's columns"
            )
        return self

    @property
    def is_bounded(self) -> bool:
        """True if the files are read once."""
        return not self.stream

    def options(self) -> dict[str, str]:
        """Return the format's options, without our own switch."""
        return {key: value for key, value in super().options().items() if key not in ("stream", "path")}


class FileSink(_Files, Sink):
    """Files, appended to; a micro-batch that is done again writes its rows again.

    Attributes:
        partition_by: the columns that make folders.
    """

    topics_are_addresses: ClassVar[bool] = False

    format: Literal["json", "parquet", "csv"]
    partition_by: str | list[str] | None = None

    def options(self) -> dict[str, str]:
        """Return the format's options, without options that the writer gets by other means."""
        return {key: value for key, value in super().options().items() if key not in ("path", "partitionBy")}
