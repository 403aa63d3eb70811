"""The weather stations that come with the repository, for the tutorial on forecasts.

    python -m romae.experiments.weather_stations --out models/weather

The first 80 of the training stations of the benchmark, in the order of its random permutation, so that nobody chose
them and no test station is among them. USHCN is read from ROMAE_DATA; a second on a CPU.
"""

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path

from romae.experiments.card import data_and_licence
from romae.experiments.datasets import ushcn
from romae.experiments.datasets.windows import Records, divided
from romae.files import write_whole, write_whole_text

N_STATIONS = 80
FILE = "stations.csv.gz"
COLUMNS = ("station", "month", "variable", "value")


def write_stations(folder: Path) -> str:
    """Write some stations as a table, with where they are from; returns how many measurements it has."""
    records = ushcn.load()
    chosen = divided(len(records), ushcn.SPLIT)["train"][:N_STATIONS].tolist()
    rows = [row for i in sorted(chosen) for row in _rows(records, i)]
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join([",".join(COLUMNS), *rows]) + "\n"
    write_whole(folder / FILE, lambda to: to.write_bytes(gzip.compress(text.encode(), 9, mtime=0)))
    variables = ", ".join(ushcn.VARIABLES)
    about = [
        "# Some weather stations",
        f"{len(chosen)} of the {len(records)} stations of USHCN over four years: the first training stations of the "
        "benchmark, in the order of its random permutation. No test station is among them.",
        f"`{FILE}` has one row per measurement: `{'`, `'.join(COLUMNS)}` ({len(rows):,} rows). A station is its number "
        "in the benchmark, which tells no place. Times are months, from 0 to 48; temperatures say that they begin in "
        f"winter. The variables are {variables}. Stations were read daily; the benchmark keeps a few measurements a "
        "month of each.",
        "**Units.** Values are standardised at the source: of each variable, the mean over all stations is about 0 and "
        "the standard deviation about 1, so that neither inches nor degrees can be told from the file. Most values of "
        "precipitation, snowfall and snow depth are the lowest there are (-0.306, -0.128 and -0.174), which is none.",
        "Made by `python -m romae.experiments.weather_stations`.",
        "## Data",
        data_and_licence("ushcn"),
        "Works of NOAA, an agency of the government of the United States, are in the public domain.",
    ]
    write_whole_text(folder / "README.md", "\n\n".join(about) + "\n")
    return f"{len(chosen)} stations, {len(rows):,} measurements"


def _rows(records: Records, i: int) -> list[str]:
    here = slice(*records.offsets[i : i + 2].tolist())
    names = [ushcn.VARIABLES[variable] for variable in records.variables[here].tolist()]
    numbers = zip(records.times[here].tolist(), names, records.values[here].tolist(), strict=True)
    return [f"{records.ids[i]},{month:.3f},{name},{value:.3f}" for month, name, value in numbers]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m romae.experiments.weather_stations", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", required=True, type=Path, help="the folder to write to")
    print(write_stations(parser.parse_args(arguments).out))


if __name__ == "__main__":
    main()
