"""The self-hosted platform: API, Git host, objects, jobs and pages."""
