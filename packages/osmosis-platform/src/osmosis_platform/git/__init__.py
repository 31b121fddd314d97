"""Hosted repositories, connected remotes, syncs and source snapshots."""
