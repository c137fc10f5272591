"""Route file: one YAML file that defines the source of records, their processing and their destination."""

from turnout.routes.reader import DEFAULT_SINK
from turnout.routes.route import Route, digest_of

__all__ = ["DEFAULT_SINK", "Route", "digest_of"]
