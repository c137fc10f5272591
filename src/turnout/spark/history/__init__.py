"""What was, on Spark: a route over a range of its source."""
