"""REST API: one module for each noun."""
