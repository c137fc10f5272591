"""The route file: one YAML file that says where records come from, what happens to them and where they go."""

from turnout.routes.reader import DEFAULT_SINK
from turnout.routes.route import Route, digest_of

__all__ = ["DEFAULT_SINK", "Route", "digest_of"]
