"""Tables with versions: their logs, read and committed by the libraries of Delta Lake and Apache Iceberg."""
