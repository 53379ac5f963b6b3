"""What a graph costs: memory and operations."""
