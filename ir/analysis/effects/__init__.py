"""Effects: what nodes read and write, and where tokens stand."""
