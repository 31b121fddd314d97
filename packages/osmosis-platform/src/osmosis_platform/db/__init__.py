"""The database: tables, migrations and units of work on SQLite and PostgreSQL, one code path. SQL lives in repositories."""
