"""Forms of a program outside of this process."""
