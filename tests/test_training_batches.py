"""The batches of a run: whatever epoch and batch it begins at, and in whatever shape they come, they are the same."""

from types import SimpleNamespace

import pytest
import torch

from romae.data.loader import Loader
from romae.data.sources import as_source
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification
from romae.tokens.augmentation import Noise
from romae.tokens.sample import Sample
from romae.training.batches import Batches, Preparation, probe_shape
from romae.training.config import TrainConfig

SIZE = Size(width=12, heads=1, depth=1)
CONFIG = ModelConfig(channels=1, position_dims=1, encoder=SIZE, decoder=SIZE)
ALONE = SimpleNamespace(device=torch.device("cpu"), process_index=0, num_processes=1)  # all that batches ask for


def series(*lengths: int) -> list[Sample]:
    random = torch.Generator().manual_seed(0)
    return [
        Sample(torch.randn(n, 1, generator=random), torch.arange(float(n))[:, None], target=i % 2, id=i)
        for i, n in enumerate(lengths)
    ]


def batches(samples: list[Sample], *, is_fixed: bool = False, augment: Noise | None = None) -> Batches:
    torch.manual_seed(0)
    made = Batches(
        Classification(CONFIG, 2, augment=augment), as_source(samples), TrainConfig(epochs=3, batch_size=2), ALONE
    )
    made.make_ready(is_fixed=is_fixed)
    made.generator.manual_seed(1)
    return made


@pytest.mark.parametrize(("epoch", "batch"), [(0, 0), (0, 2), (1, 1), (2, 2), (3, 0)])
def test_what_is_left_of_a_run_is_the_end_of_the_whole(epoch, batch):
    run = batches(series(2, 3, 4, 5, 6))
    whole = [(share.ids, share.n_tokens_of_step) for share in run.shares(0, 0)]
    assert len(whole) == sum(run.n_batches) == 9
    assert [(share.ids, share.n_tokens_of_step) for share in run.shares(epoch, batch)] == whole[3 * epoch + batch :]


def test_batches_of_a_fixed_shape_are_augmented_as_all_others():
    samples, noise = series(3, 3, 3, 3), Noise(scale=0.5)
    changed, plain = (
        [batch.tokens.values.clone() for share in run.shares(0, 0) for batch, _ in share.batches()]
        for run in (batches(samples, is_fixed=True, augment=noise), batches(samples, augment=noise))
    )
    assert len(changed) == len(plain) and all(map(torch.equal, changed, plain))
    unchanged = next(batches(samples, is_fixed=True).shares(0, 0))
    assert not torch.equal(changed[0], next(unchanged.batches())[0].tokens.values)


def test_the_loss_of_learning_nothing_is_told_of_a_step_unless_it_has_fillers():
    samples = series(3, 5)
    plain, filled = batches(samples), batches(samples, is_fixed=True)
    expected = plain.task.trivial(plain.source.batch(torch.arange(2).numpy())).mean
    assert plain.trivial_loss_of(next(plain.shares(0, 0))) == pytest.approx(float(expected))
    assert filled.trivial_loss_of(next(filled.shares(0, 0))) is None


@pytest.mark.parametrize("place", [0, 5, 9])
def test_the_longest_sample_has_room_in_a_fixed_shape_wherever_it_stands(place):
    lengths = [2] * 10
    lengths[place] = 40
    loader = Loader(series(*lengths), batch_size=2)
    prepare = Preparation(Classification(CONFIG, 2), seed=0, is_training=True)
    shape, example = probe_shape(loader, prepare)
    assert shape.tokens.longest == 40 and len(example) == shape.n_samples
    largest = next(batch for batch in loader.epoch(0) if place in batch.ids)
    assert shape.filled(prepare(largest, 0)) is not None
