"""The predictor in the workers of Ray Data: each loads the model once, and all of them together answer as one does."""

import os

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import romae
from romae.inference import Predictor

ray = pytest.importorskip("ray", reason="needs ray: pip install 'romae[ray]'")
pytest.importorskip("ray.data", reason="needs ray: pip install 'romae[ray]'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """A local cluster of two workers."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def test_two_workers_answer_as_one_process_does(cluster, tmp_path):
    size = romae.Size(width=16, heads=2, depth=1)
    model = romae.ModelConfig(channels=1, position_dims=1, encoder=size, decoder=size)
    task = romae.MaskedReconstruction(model)
    task.scaling, task.schema = romae.Scaling(), romae.Schema(id="star", time="day", values=("flux",))
    task.save(tmp_path / "model")
    random = np.random.default_rng(0)
    lengths = random.integers(2, 9, 60).tolist()
    series = pd.DataFrame({"star": range(60)})  # a row is a whole series
    series["day"] = [np.sort(random.uniform(0, 9, n)) for n in lengths]
    series["flux"] = [random.normal(size=n) for n in lengths]
    series.to_parquet(tmp_path / "series.parquet")
    predictor = Predictor(tmp_path / "model", "embed", device="cpu")
    data = ray.data.read_parquet(str(tmp_path / "series.parquet")).repartition(6)
    answers = data.map_batches(predictor, batch_format="pyarrow", batch_size=10, num_cpus=1).to_pandas()
    assert_frame_equal(
        answers.sort_values("star").reset_index(drop=True),
        predictor(series).to_pandas(),
        check_dtype=False,
        rtol=1e-5,
    )
