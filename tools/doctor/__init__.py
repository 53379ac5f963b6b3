"""Probable faults of a training graph or its data, though both can be run."""
