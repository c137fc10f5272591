"""Turnout's own transforms, and those of Confluent and Aiven."""
