"""Answers of a trained model, in the units of the data."""

from typing import Any


def __getattr__(name: str) -> Any:
    from romae.moved import moved_name  # what this package held when it was a single module

    return moved_name("inference", name)
