"""A graph for another batch size."""
