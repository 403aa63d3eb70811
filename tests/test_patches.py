"""Patches: exact inverses, positions in the same order, and errors that explain."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from messages import refused
from romae.tokens.patches import grid_counts, grid_positions, patchify, unpatchify

DIMS = st.integers(1, 4)


@given(st.data(), DIMS, st.integers(0, 2))
def test_unpatchify_undoes_patchify(data, dims, n_batch):
    patch = data.draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    counts = data.draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    channels = data.draw(st.one_of(st.none(), st.integers(-dims - 1, dims)))
    shape = [n * p for n, p in zip(counts, patch, strict=True)]
    if channels is not None:
        shape.insert(channels % (dims + 1), 2)
    x = torch.randn(*[2] * n_batch, *shape)
    tokens = patchify(x, patch, channels=channels)
    assert tokens.shape[-2] == len(grid_positions(counts))
    assert torch.equal(unpatchify(tokens, patch, counts, channels=channels), x)


def test_a_token_holds_its_patch_with_channels_fastest():
    image = torch.arange(2 * 4 * 4.0).reshape(2, 4, 4)  # channel, row, column
    tokens = patchify(image, (2, 2), channels=0)
    assert tokens.shape == (4, 8)
    corner = [image[c, row, column] for row in (0, 1) for column in (2, 3) for c in (0, 1)]
    assert tokens[1].tolist() == [float(x) for x in corner]
    assert torch.equal(patchify(image.movedim(0, -1), (2, 2), channels=-1), tokens)


def test_positions_go_with_the_patches():
    grid = torch.arange(6.0).reshape(2, 3)
    rows, columns = grid_positions((2, 3)).unbind(-1)
    assert torch.equal(patchify(grid, (1, 1)).squeeze(-1), grid[rows.long(), columns.long()])
    assert grid_positions((4,)).tolist() == [[0], [1], [2], [3]]


def test_an_irregular_dimension_brings_its_coordinates():
    positions = grid_positions((2, 2), {0: [0.5, 7.25]}, patch=(1, 8))
    assert positions.tolist() == [[0.5, 0], [0.5, 1], [7.25, 0], [7.25, 1]]
    assert positions.dtype == torch.float64


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: grid_counts((30, 64), (16, 16)),
            ["size 30", "patches of 16", "16, pad it to 32"],
        ),
        (lambda: grid_counts((8,), (16,)), ["smaller", "patch of 16"]),
        (lambda: grid_counts((8,), (0,)), ["at least 1"]),
        (lambda: grid_counts((8, 8), (2,)), ["grid", "2 dimensions"]),
        (
            lambda: patchify(torch.zeros(4, 8), (2, 8), irregular=[0]),
            ["patch must be 1", "not 2"],
        ),
        (lambda: grid_positions((2, 2), {0: [0, 1]}, patch=(4, 1)), ["patch must be 1", "not 4"]),
        (lambda: grid_positions((2, 2), {0: [0, 1, 2]}), ["2 steps", "coordinates"]),
        (lambda: grid_positions((2, 2), {2: [0, 1]}), ["coordinates", "dimensions [2]"]),
        (lambda: patchify(torch.zeros(4), (2, 2)), ["lacks dimensions"]),
        (lambda: patchify(torch.zeros(4, 4, 3), (2, 2), channels=5), ["channels=5 is outside"]),
        (lambda: unpatchify(torch.zeros(3, 4), (2, 2), (2, 2)), ["3 tokens", "fill"]),
        (lambda: unpatchify(torch.zeros(4, 5), (2, 2), (2, 2)), ["whole patches"]),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2)), ["say which dimension"]),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2), channels=7), ["channels=7", "grid of 2"]),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2), channels=-4), ["channels=-4", "grid of 2"]),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 0), (2, 2)), ["patch sizes", "dimension 1 has 0"]),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (-2, -2)), ["counts", "dimension 0 has -2"]),
        (lambda: unpatchify(torch.zeros(1, 1), (), ()), ["no patch sizes"]),
        (lambda: unpatchify(torch.zeros(1, 1), (1,), ()), ["no counts"]),
        (lambda: unpatchify(torch.zeros(8), (2,), (4,)), ["[..., n, values]", "[8]"]),
        (lambda: patchify(torch.zeros(4, 8), (1, 8), irregular=[5]), ["irregular", "dimension 5", "0 to 1"]),
        (lambda: patchify(torch.zeros(4, 8), (1, 8), irregular=[-1]), ["irregular", "dimension -1", "0 to 1"]),
        (lambda: patchify(torch.zeros(4), ()), ["no patch sizes"]),
        (lambda: patchify(torch.zeros(4), (2.0,)), ["patch sizes", "whole numbers", "dimension 0 has 2.0"]),
        (lambda: grid_counts((), ()), ["no patch sizes"]),
        (lambda: grid_positions((2, 2), {1: [0, 1]}, patch=(1,)), ["1 dimensions", "2 counts"]),
        (lambda: grid_positions(()), ["no counts", "at least one dimension"]),
        (lambda: grid_positions((-1, 2)), ["counts", "at least 1", "dimension 0 has -1"]),
        (lambda: grid_positions((2, 0)), ["counts", "at least 1", "dimension 1 has 0"]),
        (lambda: grid_positions((2,), {0: [0.0, float("nan")]}), ["finite", "step 1 of dimension 0", "at nan"]),
        (lambda: grid_positions((2,), {0: [float("-inf"), 0.0]}), ["finite", "step 0 of dimension 0", "at -inf"]),
    ],
)
def test_what_does_not_fit_gets_a_sentence(make, parts, without_shape_checks):
    with refused(ValueError, *parts):
        make()


def test_the_sizes_that_would_fit_are_named():
    with refused(ValueError, "6 or 10 or 15"):
        grid_counts((30,), (16,))


def test_coordinates_that_are_no_numbers_get_a_sentence():
    with refused(TypeError, "coordinates", "dimension 0", "numbers"):
        grid_positions((2,), {0: ["monday", "tuesday"]})


@pytest.mark.usefixtures("without_shape_checks")
def test_a_single_number_is_no_patch():
    with refused(TypeError, "patch sizes", "(16, 16)", "not 4"):
        patchify(torch.zeros(8, 8), 4)


@pytest.mark.usefixtures("without_shape_checks")
def test_a_grid_is_a_dense_tensor():
    with refused(TypeError, "the grid", "not ndarray", "torch.as_tensor"):
        patchify(torch.zeros(8, 8).numpy(), (4, 4))
    with refused(TypeError, "sparse", "to_dense"):
        patchify(torch.eye(8).to_sparse(), (4, 4))
