"""Names and the version that several rooms share, readable without importing anything else."""

package_name = "osmosis-ai"
PACKAGE_VERSION = "0.3.9"
ROLLOUT_KEY_PREFIX = "osmosis-rollout-"
"""How every key of a rollout's session with the gateway begins (64 hex digits follow), so that logs can cut it out."""
