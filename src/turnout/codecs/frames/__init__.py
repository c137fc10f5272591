"""Values of DataFrames in Arrow: columns to blocks and back, and Spark's variant."""
