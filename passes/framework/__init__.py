"""The framework of passes: their base, pipelines, and the manager that runs them."""
