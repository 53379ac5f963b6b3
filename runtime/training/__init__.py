"""Training: the session, the loop over data, what it shows and saves."""
