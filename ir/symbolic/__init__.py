"""Graphs run on terms instead of data. It knows no law of numbers; those who compare terms do."""
