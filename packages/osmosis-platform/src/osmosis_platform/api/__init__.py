"""HTTP: the published client's surface (cli), our own (v1), objects, Git, and the one place that makes errors and scope."""
