"""Claims, one folder for each source."""
