"""The parts of boost-reduce: a program that shows a failure becomes smaller while it still shows it."""
