"""The table of operators: a file for each family, with both directions of each operator."""
