"""The `osmosis-platform` command: thin commands over ops, identity and db."""
