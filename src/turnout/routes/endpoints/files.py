"""Folders of files as a source and as a sink."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from turnout.routes.endpoints.base import Endpoint, Sink, Source


class _Files(Endpoint):
    """A folder of files that hold the record's columns.

    Attributes:
        path: the folder, as Spark takes it.
        options_: more options of Spark's format.
    """

    format: Literal["json", "parquet", "csv"]
    path: str
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")


class FileSource(_Files, Source):
    """Files, read once; with ``stream: true``, new files are read as they appear.

    Attributes:
        stream: whether new files are read as they come.
        max_files_per_trigger: the most files in a micro-batch.
    """

    stream: bool = False
    max_files_per_trigger: int | None = Field(None, gt=0)

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

    partition_by: str | list[str] | None = None

    def options(self) -> dict[str, str]:
        """Return the format's options, without options that the writer gets by other means."""
        return {key: value for key, value in super().options().items() if key not in ("path", "partitionBy")}
