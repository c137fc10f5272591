"""``turnout serve``: a folder of routes in one process, with REST, metrics, health and the subscriptions service."""
