"""What boost-reduce does: makes a program that shows a failure smaller while it still shows it."""
