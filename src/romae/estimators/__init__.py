"""Estimators: the whole way from series to answers behind the interface of scikit-learn."""
