"""A graph as a pure function of its memory, and back: state discharged into values, and made of them again."""
