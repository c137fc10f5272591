"""Tools for the developers of turnout, not shipped: reference pages, checks of words and sizes, SBOM, audit."""
