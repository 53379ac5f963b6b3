"""Small pieces of graphs that many build: casts, reductions, branches."""
