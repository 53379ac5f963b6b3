"""A graph as a pure function of its memory: state discharged into values."""
