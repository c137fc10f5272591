"""Debezium's transforms."""
