"""Matching on Spark: which subscriptions want which records."""

from turnout.spark.matching.matching import Matching, match

__all__ = ["Matching", "match"]
