"""Ranges of a source that subscriptions have missed, and are to get: the ledger, and where revisions begin."""
