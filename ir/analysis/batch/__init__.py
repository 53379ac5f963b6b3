"""Where the batch is in a graph: which axes of which values, which constants."""
