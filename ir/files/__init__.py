"""Files, whatever they hold: written at once or not at all, checked, read in place."""
