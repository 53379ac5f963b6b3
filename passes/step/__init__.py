"""What passes share: the parts of a training step, and the words for them."""
