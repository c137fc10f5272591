"""Feeds: the matches of a route's subscriptions, stored as sequences of its stream, from which feeds are read."""
