"""What is probably wrong with a training graph or its data, though both can be run."""
