"""Figures and pages; they need the extra `plots`."""
