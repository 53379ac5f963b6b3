"""What boost-verify computes: a program against the training graph it was made from, property by property."""
