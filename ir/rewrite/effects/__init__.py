"""Effects edited as a list."""
