"""Replay, diff and analysis over stored records, on Spark."""
