"""Small files in the formats of the challenges and of the official splits."""

import io
import tarfile

import numpy as np

from romae.experiments.datasets import physionet2019, raindrop

N_P19 = 80  # stays of both sets


def write_splits(folder, name: str, records, labels) -> None:
    """Five splits 60/20/20, each class spread over all parts."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"record": np.asarray(records), raindrop.LABELS[name]: np.asarray(labels, dtype=np.int8)}
    for split in range(1, 6):
        random = np.random.default_rng(split)
        parts: dict[str, list[int]] = {part: [] for part in raindrop.PARTS}
        for label in (0, 1):
            order = random.permutation(np.flatnonzero(np.asarray(labels) == label))
            cuts = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])
            for part, chosen in zip(raindrop.PARTS, cuts, strict=True):
                parts[part] += chosen.tolist()
        arrays |= {f"{part}{split}": np.array(chosen, dtype=np.int32) for part, chosen in parts.items()}
    np.savez(folder / f"{name}.npz", **arrays)


def p19_rows(name: str, n_hours: int, values: dict[str, list[float]], facts: list[float], onset: int | None) -> str:
    """The text of a stay; `onset` is the row from which on the label is 1."""
    lines = ["|".join(physionet2019.COLUMNS)]
    for hour in range(n_hours):
        cells = ["NaN"] * len(physionet2019.SERIES)
        for variable, column in values.items():
            if not np.isnan(column[hour]):
                cells[physionet2019.SERIES.index(variable)] = f"{column[hour]:.2f}"
        cells += [f"{fact:g}" for fact in facts]
        lines.append("|".join([*cells, str(int(onset is not None and hour >= onset))]))
    return "\n".join(lines) + "\n"


def write_p19(root) -> None:
    """Stays whose level is their own; those with the highest get sepsis, and two of each set are left out.

    The third stay measures nothing.
    """
    random = np.random.default_rng(0)
    records, labels = [], []
    folder = root / "physionet2019"
    folder.mkdir(parents=True)
    for letter, first in (("A", 1), ("B", 100_001)):
        with tarfile.open(folder / f"training_set{letter}.tar.gz", "w:gz") as archive:
            for i in range(N_P19 // 2):
                name, level, n_hours = f"p{first + i:06d}", random.normal(), int(random.integers(12, 20))
                is_positive = level > 0.6
                values = {
                    variable: (mean + spread * (level + 0.2 * random.normal(size=n_hours))).tolist()
                    for variable, (mean, spread) in {"HR": (80, 15), "Temp": (37, 1), "MAP": (75, 10)}.items()
                }
                values["Lactate"] = np.where(random.random(n_hours) < 0.8, np.nan, 2 + level).tolist()
                if letter == "A" and i == 2:
                    is_positive, values = False, {}
                facts = [60 + i % 7, i % 2, np.nan, np.nan, -3.5, 1]
                text = p19_rows(name, n_hours, values, facts, 5 + i % 6 if is_positive else None)
                entry = tarfile.TarInfo(f"training/training_set{letter}/{name}.psv")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
                if i < N_P19 // 2 - 2:
                    records.append(name)
                    labels.append(int(is_positive))
    write_splits(root / "raindrop", "p19", records, labels)
