"""What the pages of the documentation tell a reader to type, and what they take for given."""
