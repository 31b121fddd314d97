"""One module a command; each defines `command`. `osmosis_ai.cli.tree` says which exist."""
