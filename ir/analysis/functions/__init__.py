"""Functions of a graph: what a call may reach, and where values come from through them."""
