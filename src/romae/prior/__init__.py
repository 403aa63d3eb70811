"""Random functions: series that nobody measured, for a model that is to answer for series that nobody has seen."""
