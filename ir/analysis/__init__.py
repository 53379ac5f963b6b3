"""What can be told from a graph. Nothing here changes one."""
