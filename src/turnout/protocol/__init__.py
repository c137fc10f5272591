"""What every NATS client knows, without a socket: addresses, TLS, credentials, headers, positions, prefixes, errors."""
