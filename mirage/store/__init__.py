"""What must outlive the daemon: SQLAlchemy tables, repository, Alembic migrations."""
