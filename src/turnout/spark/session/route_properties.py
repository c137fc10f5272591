"""Spark properties of a route: those that it sets or needs, and those that a running application cannot take."""

from __future__ import annotations

from pyspark.sql import SparkSession

from turnout.routes import Route
from turnout.spark.endpoints import SparkEndpoint, endpoint_of
from turnout.spark.session.latency import asking_less, low_latency_session


def session_properties(route: Route) -> dict[str, str]:
    """Return the properties of a session for the route; its own have precedence."""
    return {**needed_properties(route), **asking_less(route), **route.spark}


def needed_properties(route: Route) -> dict[str, str]:
    """Return the Spark properties for the route's endpoints and trigger: connectors, short micro-batches."""
    needed: dict[str, str] = {}
    for endpoint in _endpoints(route):
        needed |= endpoint.needs({**route.spark, **needed})
    if route.trigger.latency == "low":
        needed.update(low_latency_session())
    return needed


def missing_properties(spark: SparkSession, route: Route) -> dict[str, str]:
    """Return the properties that the route needs and that only a new application can have.

    What merely makes micro-batches shorter is not missed.
    """
    required = dict(route.spark)
    settings = spark.sparkContext.getConf()
    for endpoint in _endpoints(route):
        required |= endpoint.lacks({**dict(settings.getAll()), **route.spark})
    return {
        name: value
        for name, value in required.items()
        if not spark.conf.isModifiable(name) and settings.get(name) != value
    }


def _endpoints(route: Route) -> list[SparkEndpoint]:
    return [endpoint_of(endpoint) for endpoint in (route.source, *route.sinks.values())]
