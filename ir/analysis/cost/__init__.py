"""The cost of a graph: memory and operations."""
