"""What a signature says is held against every call while the tests run: were it not, they would notice nothing."""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import AnnotationError, Float, Int64, TypeCheckError, _storage
from torch import Tensor

import shape_checks
from romae.model.rope import AxialRope, rotate
from romae.tokens.layout import Layout

checked = jaxtyping.jaxtyped(typechecker=shape_checks.check)


@checked
def product(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"], result: Any = None) -> Float[Tensor, "n m"]:
    return a @ b if result is None else result


def test_letters_are_shared_by_arguments_and_results():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    assert product(a, b).shape == (2, 4)
    for arguments in ((a, b[:2]), (a, b.long()), (a[0], b), (a, b, torch.ones(4, 2)), (a, b, None, 1)):
        with pytest.raises(TypeError):
            product(*arguments)
    with pytest.raises(TypeCheckError):
        product(a, b=b, result=torch.ones(3, 4))
    product(torch.ones(5, 6), torch.ones(6, 7))  # nothing is kept from one call to the next


@checked
def outer(a: Float[Tensor, "n"], *others: Float[Tensor, "n"]) -> list[Float[Tensor, "1 n"]]:
    return [product(x[None], torch.ones(len(x), len(x))) for x in (a, *others)]


def test_a_call_within_a_call_has_letters_of_its_own():
    assert [x.shape for x in outer(torch.ones(3), torch.ones(3))] == [(1, 3), (1, 3)]
    with pytest.raises(TypeCheckError):
        outer(torch.ones(3), torch.ones(4))


@checked
def named(count: int, share: float = 0.5, *, words: "list[str] | None" = None, later: "NotYetThere" = None) -> str:  # noqa: F821
    return f"{count} {share} {words}" if count else 0


def test_types_without_shapes_are_checked_too():
    assert named(1, 2, words=["a"], later=3) == "1 2 ['a']"
    for arguments, words in (((1.5,), None), ((1, "a"), None), ((1,), [1]), ((0,), None)):
        with pytest.raises(TypeCheckError):
            named(*arguments, words=words)


@checked
@dataclass(frozen=True)
class Pair:
    first: Float[Tensor, "n"]
    second: Int64[Tensor, "n"]

    @property
    @checked
    def both(self) -> Float[Tensor, "2"]:
        return torch.stack([self.first, self.second])

    @classmethod
    @checked
    def of(cls, n: int) -> "Pair":
        return cls(torch.ones(n), torch.ones(n, dtype=torch.int64))


def test_the_fields_of_a_dataclass_and_its_methods_are_checked():
    for act in (lambda: Pair(torch.ones(2), torch.ones(2)), lambda: Pair.of(3).both, lambda: Pair.of("3")):
        with pytest.raises(TypeCheckError):
            act()


def scaled(factor: Tensor) -> Callable[[Tensor], Tensor]:
    @checked
    def product(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x * factor

    return product


def test_a_function_within_another_is_checked_and_has_the_variables_of_its_own_call():
    factors = [torch.tensor([2.0]), torch.tensor([3.0]), torch.ones(2, 1)]
    made = [scaled(factor) for factor in factors]
    assert [float(one(torch.ones(1))) for one in made[:2]] == [2, 3]
    for one in made:
        for wrong in (torch.ones(1, 1), torch.ones(1).long(), [1.0]):
            with pytest.raises(TypeCheckError):
                one(wrong)
    with pytest.raises(TypeCheckError):
        made[2](torch.ones(1))  # its result has two axes
    kept = weakref.ref(factors[0])
    del factors, made, one
    gc.collect()
    assert kept() is None


DIMS = ("", "n", "n k", "n n", "n+1", "n k-n", "_ 2", "...", "n ... 2", "*s", "*s k", "n *s", "#n k", "*#s k")
HINTS = [Int64[Tensor, "n"], Float[np.ndarray, "n k"], *(Float[Tensor, dims] for dims in DIMS)]
SHAPES = ((), (1,), (2,), (3,), (1, 2), (2, 2), (2, 3), (3, 2), (2, 1, 2), (2, 3, 2))
ARRAYS = [torch.zeros(2).long(), np.zeros((2, 3)), None, 1.0, [2.0], *map(torch.zeros, SHAPES)]


def test_the_answers_and_the_letters_are_those_of_jaxtyping():
    draws = random.Random(0)
    for _ in range(1000):
        questions = [(draws.choice(HINTS), draws.choice(ARRAYS)) for _ in range(4)]
        found = []
        for ask in (shape_checks._is_instance, shape_checks._asked_of_jaxtyping):
            _storage.push_shape_memo({})
            try:
                found.append([ask(*question) for question in questions] + list(_storage.get_shape_memo()[:2]))
            except AnnotationError as error:
                found.append(str(error))
            _storage.pop_shape_memo()
        assert found[0] == found[1], questions


@checked
def rows(a: Float[Tensor, "n k"]) -> Iterator[Float[Tensor, "k"]]:
    yield from a


def test_a_generator_is_checked_when_it_is_made():
    assert len(list(rows(torch.ones(2, 3)))) == 2
    with pytest.raises(TypeCheckError):
        rows(torch.ones(2))


def test_what_users_see_is_not_checked(without_shape_checks):
    assert named(1.5) == "1.5 0.5 None" and product(torch.ones(2, 3), torch.ones(3, 4), "result") == "result"


def test_the_package_is_checked():
    rotation = AxialRope(head_dim=8, position_dims=2)(torch.zeros(3, 2))
    for act in (
        lambda: rotate(torch.zeros(3, 8), rotation),
        lambda: AxialRope(head_dim=8, position_dims=2)(torch.zeros(3)),
        lambda: AxialRope(head_dim=8.5, position_dims=2),
        lambda: Layout(torch.tensor([1, 2]), torch.zeros(2, dtype=torch.int32), 3, 2, False),  # offsets are b + 1
    ):
        with pytest.raises(TypeCheckError):
            act()
