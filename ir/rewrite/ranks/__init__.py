"""What programs of several ranks hold: collectives, buckets, AdaSum, shares."""
