"""Processes that are killed, or run out of disk, while they write: what is left is old or new, never a mix."""
