"""Hostile files: one harness a reader (readers.py), mutations, limits, and the driver of `make fuzz` (__main__.py)."""
