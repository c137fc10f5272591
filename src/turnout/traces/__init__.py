"""Traces of messages: their contexts, which every route keeps, and spans, which an OpenTelemetry collector receives."""
