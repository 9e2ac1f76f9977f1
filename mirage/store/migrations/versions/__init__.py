"""One file a schema version; the revision is its number, four digits."""
