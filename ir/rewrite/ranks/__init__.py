"""The parts of programs of several ranks: collectives, buckets, AdaSum, shares."""
