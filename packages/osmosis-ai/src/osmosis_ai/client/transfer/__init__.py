"""Files to and from the platform's object store, through URLs that the platform signs."""
