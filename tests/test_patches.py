"""Patches: exact inverses, positions in the same order, and errors that explain."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    ("make", "message"),
    [
        (
            lambda: grid_counts((30, 64), (16, 16)),
            "size 30, which patches of 16 do not divide; crop it to 16, pad it to 32",
        ),
        (lambda: grid_counts((8,), (16,)), "smaller than one patch of 16"),
        (lambda: grid_counts((8,), (0,)), "at least 1"),
        (lambda: grid_counts((8, 8), (2,)), "the grid has 2 dimensions"),
        (
            lambda: patchify(torch.zeros(4, 8), (2, 8), irregular=[0]),
            "its patch must be 1, not 2: the steps inside a patch",
        ),
        (lambda: grid_positions((2, 2), {0: [0, 1]}, patch=(4, 1)), "its patch must be 1, not 4"),
        (lambda: grid_positions((2, 2), {0: [0, 1, 2]}), "has 2 steps but coordinates of shape"),
        (lambda: grid_positions((2, 2), {2: [0, 1]}), r"coordinates for dimensions \[2\]"),
        (lambda: patchify(torch.zeros(4), (2, 2)), "lacks dimensions"),
        (lambda: patchify(torch.zeros(4, 4, 3), (2, 2), channels=5), "channels=5 is outside"),
        (lambda: unpatchify(torch.zeros(3, 4), (2, 2), (2, 2)), "3 tokens do not fill"),
        (lambda: unpatchify(torch.zeros(4, 5), (2, 2), (2, 2)), "do not hold whole patches"),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2)), "say which dimension"),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2), channels=7), "channels=7 is outside a grid of 2"),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (2, 2), channels=-4), "channels=-4 is outside a grid of 2"),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 0), (2, 2)), "patch sizes must be .* and dimension 1 has 0"),
        (lambda: unpatchify(torch.zeros(4, 8), (2, 2), (-2, -2)), "counts must be .* and dimension 0 has -2"),
        (lambda: unpatchify(torch.zeros(1, 1), (), ()), "there are no patch sizes"),
        (lambda: unpatchify(torch.zeros(1, 1), (1,), ()), "there are no counts"),
        (lambda: unpatchify(torch.zeros(8), (2,), (4,)), r"tokens must be \[..., n, values\], got shape \[8\]"),
        (lambda: patchify(torch.zeros(4, 8), (1, 8), irregular=[5]), "irregular names dimension 5, .* 0 to 1"),
        (lambda: patchify(torch.zeros(4, 8), (1, 8), irregular=[-1]), "irregular names dimension -1, .* 0 to 1"),
        (lambda: patchify(torch.zeros(4), ()), "there are no patch sizes"),
        (lambda: patchify(torch.zeros(4), (2.0,)), "patch sizes must be whole numbers .* dimension 0 has 2.0"),
        (lambda: grid_counts((), ()), "there are no patch sizes"),
        (lambda: grid_positions((2, 2), {1: [0, 1]}, patch=(1,)), "the patch has 1 dimensions, but there are 2 counts"),
        (lambda: grid_positions(()), "there are no counts; a grid has at least one dimension"),
        (lambda: grid_positions((-1, 2)), "counts must be whole numbers of at least 1, and dimension 0 has -1"),
        (lambda: grid_positions((2, 0)), "counts must be whole numbers of at least 1, and dimension 1 has 0"),
        (lambda: grid_positions((2,), {0: [0.0, float("nan")]}), "finite, and step 1 of dimension 0 is at nan"),
        (lambda: grid_positions((2,), {0: [float("-inf"), 0.0]}), "finite, and step 0 of dimension 0 is at -inf"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(make, message, without_shape_checks):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_sizes_that_would_fit_are_named():
    with pytest.raises(ValueError, match="use a patch of 6 or 10 or 15"):
        grid_counts((30,), (16,))


def test_coordinates_that_are_no_numbers_get_a_sentence():
    with pytest.raises(TypeError, match="the coordinates of dimension 0 cannot be read as numbers"):
        grid_positions((2,), {0: ["monday", "tuesday"]})


@pytest.mark.usefixtures("without_shape_checks")
def test_a_single_number_is_no_patch():
    with pytest.raises(TypeError, match=r"patch sizes are one number for each dimension, such as \(16, 16\), not 4"):
        patchify(torch.zeros(8, 8), 4)
