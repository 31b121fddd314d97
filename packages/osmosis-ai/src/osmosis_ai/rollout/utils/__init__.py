"""Two small rooms with a public path: what an exception means, and values that expire."""
