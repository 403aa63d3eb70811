"""Experiments: recipes, their data, baselines, results and reports. Recipes need the extra `experiments`."""
