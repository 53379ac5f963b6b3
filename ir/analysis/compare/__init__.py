"""Comparison of programs: equality, matching, differences."""
