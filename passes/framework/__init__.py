"""What a pass is, how pipelines are written, and what runs them."""
