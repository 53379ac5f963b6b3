"""Jobs of several ranks: started with msrun, watched, and ended together."""
