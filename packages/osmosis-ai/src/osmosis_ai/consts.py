"""The package's name and version, readable without importing anything else."""

package_name = "osmosis-ai"
PACKAGE_VERSION = "0.3.9"
