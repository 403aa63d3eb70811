"""Answers of a trained model, in the units of the data."""

from typing import Any

HERE = {"Predictor": "predictor", "answer_file": "streaming", "Distribution": "distributions"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from romae.moved import moved_name  # what this package held when it was a single module

    if name in HERE:  # not imported with the package, which tables need more libraries than
        return getattr(import_module(f"romae.inference.{HERE[name]}"), name)
    return moved_name("inference", name)
