"""What two programs have in common, and what differs."""
