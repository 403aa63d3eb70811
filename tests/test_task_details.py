"""Tasks: what they draw at random is drawn evenly, and what they scale is scaled back."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from brute_force import norm
from messages import refused
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Regression
from romae.tokens.masking import SampleKeys, UniformTokens
from romae.tokens.packed import kind_mean
from romae.tokens.sample import Sample
from romae.tokens.tokens import collate
from romae.training.fixed_shape import FixedShape

CONFIG = ModelConfig(
    channels=3, position_dims=1, encoder=Size(width=16, heads=2, depth=1), decoder=Size(width=8, heads=1, depth=1)
)


def test_errors_of_predictions_in_units_of_each_tokens_deviation_are_the_normalised_loss(generator):
    torch.manual_seed(0)
    task = MaskedReconstruction(CONFIG, masking=UniformTokens(ratio=0.5), normalise=True).eval()
    torch.nn.init.normal_(task.head.linear.weight)
    scales = [0.01, 1.0, 300.0]
    values = [scale * torch.randn(8, 3, generator=generator) + 5 * scale for scale in scales]
    batch = collate([Sample(v, torch.rand(8, 1, generator=generator)) for v in values])
    batch = task.prepare(batch, generator)
    truth = batch.hidden.values
    error = (task.predict(batch) - truth) / (truth.var(-1, keepdim=True) + 1e-6).sqrt()
    assert_close(error.square().sum(), task(batch).total, rtol=1e-3, atol=0)


@pytest.mark.parametrize("source", ["generator", "keys", None])
def test_every_token_is_as_likely_to_be_dropped(source):
    n_samples, n_tokens, most = 4000, 10, 0.8
    torch.manual_seed(0)
    task = Regression(CONFIG, drop_tokens=most).train()
    place = torch.arange(float(n_tokens)).unsqueeze(-1)
    batch = collate([Sample(place.expand(-1, 3), place, target=0.0)] * n_samples)
    sources = {"generator": torch.Generator().manual_seed(0), "keys": SampleKeys(0, 0, torch.arange(n_samples))}
    kept = task.prepare(batch, sources.get(source)).tokens
    share = torch.bincount(kept.positions.flatten().long(), minlength=n_tokens) / n_samples
    assert (share - share.mean()).abs().max() < 0.04
    # From none to just below the largest share, each number as often as the next.
    n_dropped = torch.bincount(n_tokens - kept.layout.lengths) / n_samples
    assert_close(n_dropped, torch.full((8,), 1 / 8), rtol=0, atol=0.03)


@pytest.mark.parametrize("task", [MaskedReconstruction, lambda c: Classification(c, 2), Regression])
def test_the_heads_norm_uses_the_models_eps(task):
    head = task(replace(CONFIG, norm_eps=0.5)).head
    x = torch.randn(4, head.linear.in_features, generator=torch.Generator().manual_seed(0))
    assert_close(head(x), head.linear(norm(x, head.norm.weight, 0.5)))


# Samples summed up by their kinds


def stays(*kinds: list[int]) -> list[Sample]:
    """Samples whose tokens are of these kinds."""
    return [
        Sample(torch.randn(len(one), 1), torch.tensor([[i * 0.7, k] for i, k in enumerate(one)]), target=len(one) % 2)
        for one in kinds
    ]


def test_the_mean_of_kinds_is_that_of_the_means_of_their_tokens():
    tokens = collate(stays([0, 0, 0, 2], [1], [2, 1, 0, 2, 2])).tokens
    expected = []
    for sample in tokens.unpack():
        kind = sample.positions[:, 1]
        expected.append(torch.stack([sample.values[kind == k].mean(0) for k in kind.unique()]).mean(0))
    assert_close(kind_mean(tokens.values, tokens.positions[:, -1].long(), 3, tokens.layout), torch.stack(expected))


BY_KINDS = ModelConfig(
    channels=1, position_dims=2, encoder=Size(width=16, heads=2, depth=1), cls=False, kinds=3, pool="kinds"
)


def test_a_batch_filled_up_gives_the_loss_of_the_batch_where_kinds_are_pooled():
    task = Classification(BY_KINDS, 2).eval()
    batch = task.prepare(collate(stays([0, 0, 0, 2], [1], [2, 1, 0, 2, 2])))
    filled = FixedShape.around([batch], 3, 5).filled(batch)
    assert len(filled.real) > 3
    assert_close(task(filled).mean, task(batch).mean)
    other = Classification(replace(BY_KINDS, pool="tokens"), 2).eval()
    other.load_state_dict(task.state_dict())
    assert not torch.allclose(task(batch).mean, other(batch).mean)


@pytest.mark.parametrize("changes", [{"cls": True}, {"kinds": None}])
def test_kinds_are_pooled_only_where_there_are_any_and_no_cls(changes):
    with refused(ValueError, 'pool="kinds"', "mean"):
        replace(BY_KINDS, **changes)
