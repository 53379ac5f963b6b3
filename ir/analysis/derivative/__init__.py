"""Where the derivative of the loss flows, and in what it is linear."""
