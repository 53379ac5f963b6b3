"""Rewrites that passes and formats share. Each leaves effects in order."""
