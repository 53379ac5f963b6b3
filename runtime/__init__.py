"""The runtime: programs trained on MindSpore."""
