"""What becomes of a graph before MindSpore compiles it."""
