"""The demo: a year of flights through the switch, on real servers."""
