"""Tokens of rollouts: from recorded calls to what is trained."""
