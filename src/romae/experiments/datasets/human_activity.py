"""Human Activity: 25 recordings of four tags that a person wears, for forecasts as t-PatchGNN has them.

A window of 4 000 ms: the first 3 000 are seen, the coordinates of the tags in the last 1 000 asked for. The one file
is `human_activity.npz`; `windows.read_records` says what it holds. Values lie between the lowest and the highest of
training and validation recordings, 0 to 1.
"""

from pathlib import Path

import numpy as np

from romae.data.schema import Schema
from romae.experiments.datasets.catalogue import DataSet
from romae.experiments.datasets.files import data_root
from romae.experiments.datasets.windows import Cut, Records, counted, divided, in_parts, read_records
from romae.tokens.sample import Sample

FILE = "human_activity.npz"
VARIABLES = tuple(f"{tag} {axis}" for tag in ("left ankle", "right ankle", "chest", "belt") for axis in "xyz")
SCHEMA = Schema(id="window", time="ms", channel="variable", channels=VARIABLES)
CUT = Cut(history=3000.0, horizon=1000.0, stride=1000.0)
SPLIT = 42  # the seed of the benchmark
N_WINDOWS = {"train": 3_318, "validation": 1_007, "test": 1_075}


def load(*, folder: Path | None = None) -> Records:
    """The recordings, in the order of the file."""
    return read_records((folder or data_root() / "human_activity") / FILE, len(VARIABLES))


def windows(records: Records, most: int | None = None, train_stride: float | None = None) -> dict[str, list[Sample]]:
    """The windows of each split, or the first few of them; those of training may begin at another stride."""
    parts = divided(len(records), SPLIT)
    return in_parts(
        records.as_min_max(np.concatenate([parts["train"], parts["validation"]])), parts, CUT, most, train_stride
    )


def check(folder: Path) -> str:
    """Read everything and compare the number of windows with that of the benchmark."""
    return counted(load(folder=folder), CUT, SPLIT, N_WINDOWS, "recordings")


DATASETS = (
    DataSet(
        name="human_activity",
        title="Human Activity: positions of four tags on a person, for forecasts",
        files=(),
        licence="CC BY 4.0",
        citation="Kaluža et al., An agent-based approach to care in independent living, Ambient Intelligence (2010)",
        homepage="https://archive.ics.uci.edu/dataset/196/localization+data+for+person+activity",
        check=check,
    ),
)
