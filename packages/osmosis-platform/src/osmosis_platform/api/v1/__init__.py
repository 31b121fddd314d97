"""`/api/v1`: the dashboard's and everybody's API, described by OpenAPI."""
