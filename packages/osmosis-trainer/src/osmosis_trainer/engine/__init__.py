"""The NumPy engine: weights, forward pass, sampling, slots, and the thread that batches them."""
