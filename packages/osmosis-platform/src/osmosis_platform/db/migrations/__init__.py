"""The steps from one schema to the next, run by Alembic on start (embedded) or by `osmosis-platform migrate`."""
