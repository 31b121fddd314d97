"""What workspaces use and may use: metering rows, and limits of administrators."""
