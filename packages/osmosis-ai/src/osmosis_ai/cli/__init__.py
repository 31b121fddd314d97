"""The `osmosis` command line: thin commands over the other rooms, one frame around them."""
