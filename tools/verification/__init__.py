"""The parts of boost-verify: a program against the training graph it was made from, property by property."""
