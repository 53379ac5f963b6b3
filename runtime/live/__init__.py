"""From a live Cell to a program."""
