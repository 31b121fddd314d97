"""Running the platform: processes, first start, backup and restore, check-up. What it serves is the other rooms'."""
