"""The scope of nodes that legalization makes."""

SCOPE = "legalize"
