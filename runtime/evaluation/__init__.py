"""How a training's network predicts, and how well."""
