"""Models on disk: our format, and the authors'."""
