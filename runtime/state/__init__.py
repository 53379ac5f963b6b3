"""The state of a training: read, written, kept, checked."""
