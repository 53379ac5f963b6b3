"""Proofs that a program trains as its original does: terms, laws, what a cycle should do. Nothing here runs data."""
