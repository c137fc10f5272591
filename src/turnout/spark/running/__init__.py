"""Running a route on Spark: its plan, its micro-batches, its checkpoint, and its progress reports."""
