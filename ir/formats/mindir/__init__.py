"""Reader and writer of MindIR, MindSpore's exported graphs, without MindSpore."""
