"""From whatever people have to samples, and back to tables: one file per kind of data."""
