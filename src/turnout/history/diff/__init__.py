"""Differences between two versions of a route on the same records."""
