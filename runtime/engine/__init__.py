"""A program on MindSpore: Parameters, Cells, ranks, random numbers, memory."""
