"""Training graphs: forward, backward and update side, loss, gradients and their paths."""
