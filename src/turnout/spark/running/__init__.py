"""Running a route on Spark: its plan, its micro-batches, its checkpoint, and what it tells of its progress."""
