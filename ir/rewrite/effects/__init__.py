"""Effects edited as a list, and the chain of tokens rebuilt from it."""
