"""A few hundred hostile inputs: each is refused in the library's own words, or answered rightly.

`make fuzz` tries ten thousand.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz import CLASSES, fixtures
from fuzz.judging import WrongAnswer, answered, complaint, judged

import romae

N_INPUTS = {name: 40 for name in CLASSES} | {"pages": 5, "command_lines": 15, "results": 15}  # the slow ones


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    fixtures.warm_up(without=("benchmark",))


@pytest.mark.parametrize("name", CLASSES)
def test_hostile_inputs_are_refused_or_answered_rightly(name: str, tmp_path: Path, without_shape_checks: None) -> None:
    outcomes = [judged(name, 1, i, tmp_path) for i in range(N_INPUTS[name])]
    failed = [
        f"{o.cause} (--only {name} --seed 1 --first {o.index} --inputs 1)\n{o.details}" for o in outcomes if o.cause
    ]
    assert not failed, "\n".join(failed)


def _raised(call) -> Exception:  # type: ignore[no-untyped-def]
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def test_only_sentences_of_our_own_are_refusals() -> None:
    own = _raised(lambda: romae.Sample([[1.0]], [[float("nan")]]))
    assert complaint(own) == ""
    for foreign in (
        _raised(lambda: torch.zeros(2) @ torch.zeros(3)),
        _raised(lambda: np.array([[1], [2, 3]])),
        _raised(lambda: int("x")),
        WrongAnswer("another number"),
    ):
        assert complaint(foreign)


def test_what_is_accepted_must_be_used_without_an_error() -> None:
    with pytest.raises(WrongAnswer), answered("a sample"):
        romae.Sample([[1.0]], [[float("nan")]])
