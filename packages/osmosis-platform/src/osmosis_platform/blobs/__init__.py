"""Objects: the files behind datasets, snapshots and logs, on this machine or in S3."""
