"""The model: blocks, encoder, decoder, and the tasks that train them."""

from typing import Any


def __getattr__(name: str) -> Any:
    from romae.moved import moved_name  # what this package held when it was a single module

    return moved_name("model", name)
