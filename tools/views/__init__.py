"""The formats of boost-inspect, one file each, and what they share."""
