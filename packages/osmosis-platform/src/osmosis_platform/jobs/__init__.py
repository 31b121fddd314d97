"""The lease queue, its workers, and one module for each kind of job."""
