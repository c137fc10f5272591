"""HTTP source: requests to ``POST /v1/in/NAME`` become messages of a JetStream stream."""
