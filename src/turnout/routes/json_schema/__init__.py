"""Route files as JSON Schema (draft 2020-12), for editors: derived from the models and registries that read them."""

from turnout.routes.json_schema.models import DIALECT, model_schema
from turnout.routes.json_schema.route import route_schema

__all__ = ["DIALECT", "model_schema", "route_schema"]
