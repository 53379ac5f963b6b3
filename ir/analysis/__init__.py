"""Analyses of graphs. Nothing here changes one."""
