"""Encryption of what must stay secret, whose secret a run gets, and taking secrets out of texts."""
