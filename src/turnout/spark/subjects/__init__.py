"""Subject transforms, mappings and matching as Spark columns; the same results as ``turnout.subjects``."""

from turnout.spark.subjects.mapping import map_subject, map_subjects
from turnout.spark.subjects.transform import subject_is_publishable, subject_matches, transform_subject

__all__ = ["map_subject", "map_subjects", "subject_is_publishable", "subject_matches", "transform_subject"]
