"""Programs on disk."""
