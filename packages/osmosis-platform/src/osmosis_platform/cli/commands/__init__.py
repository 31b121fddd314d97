"""One module per command; each defines `command` and is imported only when it runs."""
