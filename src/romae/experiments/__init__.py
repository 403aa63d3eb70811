"""Experiments: recipes, their data, baselines, results and reports."""
