"""Transforms that Kafka ships, and their namesakes."""
