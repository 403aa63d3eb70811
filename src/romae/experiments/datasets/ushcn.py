"""USHCN: daily weather at 1 114 stations over four years, thinned out, for forecasts as t-PatchGNN has them.

A window of 25 months: the first 24 are seen, the measurements of the last asked for. The one file is `ushcn.npz`;
`windows.read_records` says what it holds. Values are z-scores at the source, and stay as they are.
"""

from pathlib import Path

from romae.data.schema import Schema
from romae.experiments.datasets.catalogue import DataSet
from romae.experiments.datasets.files import data_root
from romae.experiments.datasets.windows import Cut, Records, counted, divided, in_parts, read_records
from romae.tokens.sample import Sample

FILE = "ushcn.npz"
VARIABLES = ("precipitation", "snowfall", "snow depth", "highest temperature", "lowest temperature")
SCHEMA = Schema(id="window", time="month", channel="variable", channels=VARIABLES)
CUT = Cut(history=24.0, horizon=1.0, stride=1.0, end=48.0)  # all stations have 24 windows, also where they end early
SPLIT = 42  # the seed of the benchmark
N_WINDOWS = {"train": 16_032, "validation": 5_352, "test": 5_352}


def load(*, folder: Path | None = None) -> Records:
    """The stations, in the order of the file."""
    return read_records((folder or data_root() / "ushcn") / FILE, len(VARIABLES))


def windows(records: Records, most: int | None = None, train_stride: float | None = None) -> dict[str, list[Sample]]:
    """The windows of each split, or the first few of them; those of training may begin at another stride."""
    return in_parts(records, divided(len(records), SPLIT), CUT, most, train_stride)


def check(folder: Path) -> str:
    """Read everything and compare the number of windows with that of the benchmark."""
    return counted(load(folder=folder), CUT, SPLIT, N_WINDOWS, "stations")


DATASETS = (
    DataSet(
        name="ushcn",
        title="USHCN: daily weather of 1 114 stations, for forecasts",
        files=(),
        licence="public domain (NOAA)",
        citation="Menne, Williams and Vose, United States Historical Climatology Network daily temperature, "
        "precipitation, and snow data, ORNL/CDIAC-118 (2016)",
        homepage="https://data.ess-dive.lbl.gov/view/doi:10.3334/CDIAC/CLI.NDP070",
        check=check,
    ),
)
