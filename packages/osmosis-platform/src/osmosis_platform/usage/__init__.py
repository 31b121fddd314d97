"""What workspaces use and may use: metering rows, limits of administrators, answers kept for idempotency keys."""
