"""`/api/cli`: the wire of spec/platform-api.md, for our command line and the published client 0.3.8."""
