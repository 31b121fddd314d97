"""SQL, one module a noun; nothing outside of here writes or reads tables."""
