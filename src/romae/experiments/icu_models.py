"""The trained models of intensive care that come with the repository, made by one command.

    python -m romae.experiments.icu_models --out models           both models and the stays of the tutorial
    python -m romae.experiments.icu_models --out trial --quick    a minute on a CPU; the numbers mean nothing

`icu` estimates any of 41 variables at any minute of a stay: pre-trained on stays of sets a and b, of which half of the
times are hidden, each variable with an embedding of its own. It is judged as `physionet/rows-tuned` is, on the same
hidden numbers of the same test stays. `icu-mortality` gives the risk of dying in hospital: pre-trained and fine-tuned
on set a, 15 % of it held out to choose the weights and to calibrate the risks, and tested on set b and on set c, which
nothing was ever chosen on. `stays` are some stays of set c, for the tutorial. Numbers on the cards are those of the
weights as they are stored, in 16 bits.

Expected on an H200: four to six minutes; mse 0.34 where lines have 0.457; AUROC 0.86. PhysioNet's sets a, b and c are
read from ROMAE_DATA (20 MB). Encoders have six layers, half of those of RoMAE-tiny, so that all models of the
repository together stay below 20 MB; `--depth` takes another number.

Shapes: b stays.
"""

import argparse
import gzip
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from romae import __version__
from romae.checkpoints import native as checkpoint
from romae.data.fitting import Method
from romae.data.ladders import fit_ladders
from romae.data.scaling import scaled
from romae.experiments import baselines, metrics
from romae.experiments.card import WEIGHTS, data_and_licence, how_to_use, hub_header, inputs
from romae.experiments.datasets import physionet2012
from romae.experiments.datasets.physionet2012 import SCHEMA, VARIABLES
from romae.experiments.results import commit, device_name
from romae.experiments.stays import LIMITS, MASKING, PLAUSIBLE, divided, masked, stay_scaling
from romae.files import require_writable, write_whole, write_whole_text
from romae.inference.calibration import calibration_of
from romae.inference.predictions import predict, predict_proba
from romae.model.config import ModelConfig, Size
from romae.model.tasks import Classification, MaskedReconstruction, Task
from romae.tokens.augmentation import Noise
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.stages import Classify, Pretrain, run_stages

MINUTES = 5.0  # the unit of time that the models see
VALIDATION = 0.15  # of set a
N_GROUPS = 5  # of stays with like risks, on the card
HUB_TAGS = ("irregular-time-series", "electronic-health-records", "intensive-care")
VALUES: Method = "robust-asinh"
EVERY = 33  # of set c, for the tutorial: 122 stays
DEPTH, QUICK_STAYS = 6, 160
NAMES = ("icu", "icu-mortality", "stays")
COLUMNS = (SCHEMA.id, SCHEMA.time, SCHEMA.channel, "value")
CLASSES = ("survived", "died")
OUTCOMES = replace(SCHEMA, label="outcome", classes=CLASSES)
TRAIN = TrainConfig(
    epochs=120,
    batch_size=32,
    lr=1e-3,
    betas=(0.9, 0.95),
    weight_decay=0.05,
    warmup=0.05,
    clip=1.0,
    ema=0.999,
    precision="bf16",
)
FINETUNE = replace(TRAIN, epochs=30, lr=3e-4, ema=0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How models are made: the depth of their encoders, the device, and whether in earnest."""

    depth: int = DEPTH
    device: str = "auto"
    quick: bool = False
    values: Method = VALUES  # how the model of mortality sees them

    def train(self, config: TrainConfig) -> TrainConfig:
        """How a stage is trained."""
        config = replace(config, device=self.device)
        if not self.quick:
            return config
        return replace(config, epochs=2, batch_size=8, precision="float32", ema=None, warmup=0.1)

    def model(self, train: Sequence[Sample], scaling: Any, **settings: Any) -> ModelConfig:
        """The architecture; wavelengths are from gaps within stays."""
        encoder, decoder = Size(width=180, heads=3, depth=self.depth), Size(width=120, heads=2, depth=2)
        if self.quick:
            encoder = decoder = Size(width=24, heads=2, depth=1)
        ladders = fit_ladders(train, scaling, per="sample")
        return ModelConfig(
            channels=1,
            position_dims=2,
            encoder=encoder,
            decoder=decoder,
            kinds=len(VARIABLES),
            kinds_spread=1.0,
            ladders=ladders,
            **settings,
        )

    def stays(self, sets: str) -> list[Sample]:
        """The stays of some sets, in quick trials of each the first."""
        parts = [physionet2012.load(letter).samples() for letter in sets]
        return [sample for part in parts for sample in (part[:QUICK_STAYS] if self.quick else part)]


# Values in between


def make_icu(folder: Path, making: Making) -> str:
    """Train and write the model that estimates values; returns its numbers in one line."""
    began = time.monotonic()
    test, validation, train = divided(making.stays("ab"))
    test, scaling = masked(test, MASKING["rows"]), stay_scaling(train, MINUTES)
    stage = Pretrain(masking=MASKING["rows"], train=making.train(TRAIN), drop_tokens=0.2)
    outcome = run_stages(
        making.model(train, scaling), [stage], train, validation=validation, scaling=scaling, schema=SCHEMA, quiet=True
    )
    task = _as_stored(outcome.task, folder)
    assert isinstance(task, MaskedReconstruction)
    errors, plausible = errors_of(task, test)
    sizes = f"Stays: train {len(train)}, validation {len(validation)}, test {len(test)}"
    rows = [(name, f"{errors[name]:.4f}", f"{plausible[name]:.4f}") for name in errors]
    card = [
        hub_header("physionet2012", type(task).__name__, *HUB_TAGS),
        "# Intensive care: any variable at any minute of a stay",
        _made(task, making, began),
        how_to_use(task),
        "It takes samples in their own units; how it scales them is in config.json, with the names of channels.",
        inputs(task),
        "## Data",
        data_and_licence("physionet2012"),
        WEIGHTS,
        "## Protocol",
        "Half of the times of a stay are hidden with all that was measured at them, and estimated from the rest. Sets "
        "a and b, 80/20 by record; records and what they hide are those of the recipe `physionet/rows-tuned`. -1 is "
        f"missing; z-scores per variable; each variable has an embedding of its own (`kinds`). {sizes}. Pre-trained "
        f"without labels for {_epochs(outcome.histories[0].records)} epochs; the weights are those of the lowest "
        "error on the validation stays.",
        "## Numbers",
        "Mean squared error over all hidden numbers of the test stays, in variances of each variable; lower is "
        f"better. Beside it, without the numbers beyond {PLAUSIBLE:.0f} deviations, mostly data-entry errors.",
        _table(("", "mse", "mse of plausible numbers"), rows),
        "## Limits",
        LIMITS,
    ]
    _write_with_card(task, folder, card)
    return f"mse {errors['this model']:.4f}, lines {errors['linear']:.4f}"


def errors_of(task: Task, test: Sequence[Sample]) -> tuple[dict[str, float], dict[str, float]]:
    """The errors at the hidden numbers of stays, of the model and of simple methods; then of plausible numbers alone.

    They are mean squares, in variances of each variable in training.
    """
    seen = scaled(test, task.scaling)
    truth = np.concatenate([baselines.truth(sample) for sample in seen])
    places = torch.cat([sample.positions[sample.hidden] for sample in test])
    ours = torch.from_numpy(np.concatenate(list(predict(task, test))))
    predictions = {"this model": task.scaling.scale_values(ours, places).numpy()}
    predictions["constant"] = np.zeros_like(truth)
    for name in ("mean", "linear"):
        predictions[name] = np.concatenate([baselines.fill(baselines.METHODS[name], sample) for sample in seen])
    is_plausible = np.abs(truth) < PLAUSIBLE
    errors, plausible = (
        {name: float(metrics.mse(x[chosen], truth[chosen])) for name, x in predictions.items()}
        for chosen in (np.ones_like(is_plausible), is_plausible)
    )
    return errors, plausible


# Risks


def make_mortality(folder: Path, making: Making) -> str:
    """Train, calibrate and write the model of mortality; returns its numbers in one line."""
    from sklearn.model_selection import train_test_split

    began = time.monotonic()
    labelled = making.stays("a")
    train, held_out = train_test_split(
        labelled, test_size=VALIDATION, random_state=0, stratify=baselines.classes(labelled)
    )
    scaling = stay_scaling(train, MINUTES, making.values)
    # Dropout on attention scores would keep the fast kernels away.
    model = making.model(train, scaling, cls=False, pool="kinds", attention_dropout=0.0)
    pretraining = Pretrain(masking=MASKING["tokens"], train=making.train(replace(TRAIN, epochs=60)), drop_tokens=0.2)
    finetuning = Classify(
        n_classes=2,
        train=making.train(FINETUNE),
        dropout=0.2,
        stochastic_depth=0.2,
        drop_tokens=0.8,
        augment=Noise(scale=0.3),
    )
    outcome = run_stages(
        model, [pretraining, finetuning], train, validation=held_out, scaling=scaling, schema=OUTCOMES, quiet=True
    )
    task = outcome.task
    assert isinstance(task, Classification)
    task.calibration = calibration_of([(task, held_out)])
    task = _as_stored(task, folder)
    chosen_by = scores_of(predict_proba(task, held_out)[:, 1], baselines.classes(held_out))
    tests = {letter: making.stays(letter) for letter in "cb"}
    rows, groups, ours = [], [], {}
    for letter, stays in tests.items():
        died = baselines.classes(stays)
        risks = {"this model": predict_proba(task, stays)[:, 1]} | _risks_of_others(labelled, stays)
        for name, risk in risks.items():
            scores = scores_of(risk, died)
            rows.append((f"set {letter}: {name}", *(f"{value:.4f}" for value in scores.values())))
            if name == "this model":
                groups += [(f"set {letter}", *row) for row in calibration_rows(risk, died)]
                ours[letter] = scores
    card = [
        hub_header("physionet2012", type(task).__name__, *HUB_TAGS),
        "# Intensive care: the risk of dying in hospital",
        _made(task, making, began),
        how_to_use(task, "romae.predict_proba(task, samples)[:, 1]"),
        "What is printed is the risk of each stay: the probability of dying in hospital. It takes samples in their own "
        "units, the first 48 hours of a stay; how it scales them is in config.json, with the names of channels.",
        inputs(task),
        "## Data",
        data_and_licence("physionet2012"),
        WEIGHTS,
        "## Protocol",
        f"Pre-trained without labels and fine-tuned on {len(train)} stays of set a; the other {len(held_out)} of set a "
        "chose the weights and calibrate the risks (a temperature and a bias). Tested on the "
        f"{len(tests['c'])} stays of set c and the {len(tests['b'])} of set b. Settings are those of the recipe "
        "`physionet/mortality-kinds`, which were chosen on set a, but for the values beyond three deviations, which "
        "are bent (`robust-asinh`): the stays that were held out preferred it. Results of the recipe on set b were "
        "seen before; nothing was chosen on set c. Baselines are fitted to summary features of all of set a.",
        "## Numbers",
        _table(("", *ours["c"]), rows),
        "AUROC and AUPRC (average precision): higher is better. Brier score and log loss: lower is better. The mean "
        "risk should be the rate of deaths.",
        f"Calibration: the stays of a set in {N_GROUPS} groups of equal size, by their risk.",
        _table(("", "risk from", "to", "mean risk", "died", "stays"), groups),
        "## Limits",
        f"{LIMITS} Risks are those of patients like these; where fewer or more of them die, they have to be calibrated "
        "again. Whether a patient died may also depend on what was done because of the very measurements.",
    ]
    _write_with_card(task, folder, card)
    ours = {"a, held out": chosen_by} | ours
    return "; ".join(f"set {x}: AUROC {found['AUROC']:.4f}, AUPRC {found['AUPRC']:.4f}" for x, found in ours.items())


def scores_of(risk: Float64[np.ndarray, "b"], died: Int64[np.ndarray, "b"]) -> dict[str, float]:
    """How good risks are: their order, and what they say."""
    from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

    return {
        "AUROC": float(roc_auc_score(died, risk)),
        "AUPRC": float(average_precision_score(died, risk)),
        "Brier score": float(brier_score_loss(died, risk)),
        "log loss": float(log_loss(died, risk)),
        "mean risk": float(risk.mean()),
        "rate of deaths": float(died.mean()),
    }


def calibration_rows(
    risk: Float64[np.ndarray, "b"], died: Int64[np.ndarray, "b"], n_groups: int = N_GROUPS
) -> list[tuple[str, ...]]:
    """For groups of equal size by risk: lowest, highest and mean risk, the rate of deaths, and how many they are."""
    groups = np.array_split(np.argsort(risk, kind="stable"), n_groups)
    return [
        (
            *(f"{x:.3f}" for x in (risk[part].min(), risk[part].max(), risk[part].mean(), died[part].mean())),
            str(len(part)),
        )
        for part in groups
        if len(part)
    ]


def _risks_of_others(labelled: Sequence[Sample], stays: Sequence[Sample]) -> dict[str, Float64[np.ndarray, "b"]]:
    """Logistic regression and boosting on summary features, and a constant."""
    died = baselines.classes(labelled)
    seen, asked = (baselines.summary_features(part, n_variables=len(VARIABLES)) for part in (labelled, stays))
    models = {"logistic regression": baselines.logistic_regression(), "boosting": baselines.gradient_boosting(0)}
    risks = {name: model.fit(seen, died).predict_proba(asked)[:, 1] for name, model in models.items()}
    return risks | {"constant": np.full(len(stays), died.mean())}


# The stays of the tutorial


def write_stays(folder: Path, making: Making) -> str:
    """Write some stays of set c as a table, and their outcomes, with where they are from."""
    stays = physionet2012.load("c")
    chosen = np.zeros(len(stays), dtype=bool)
    chosen[::EVERY] = True
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "stays.csv.gz", lambda to: _write_compressed(to, _lines(stays, chosen)))
    outcomes = zip(stays.record_ids[chosen].tolist(), stays.died[chosen].tolist(), strict=True)
    table = "\n".join([f"{SCHEMA.id},outcome", *(f"{i},{CLASSES[died]}" for i, died in outcomes)])
    write_whole_text(folder / "outcomes.csv", table + "\n")
    n, n_died = int(chosen.sum()), int(stays.died[chosen].sum())
    about = [
        "# Some intensive-care stays",
        f"{n} of the 4 000 stays of set c of PhysioNet 2012, every {EVERY}rd by the number of its record, and who died "
        f"in hospital ({n_died}). The models beside them have learned nothing from set c.",
        f"`stays.csv.gz` has one row per measurement: `{'`, `'.join(map(str, COLUMNS))}`. Times are minutes since "
        "admission; measurements of one variable in one minute are averaged, and -1, the code for missing, is left "
        "out. `outcomes.csv` has one row per stay.",
        "## Data",
        data_and_licence("physionet2012-c"),
        "Contains information from PhysioNet Challenge 2012, which is made available under the ODC Attribution License "
        "(https://opendatacommons.org/licenses/by/1-0/).",
    ]
    write_whole_text(folder / "README.md", "\n\n".join(about) + "\n")
    return f"{n} stays, {n_died} deaths"


def _lines(stays: physionet2012.Stays, chosen: Bool[np.ndarray, "b"]) -> str:
    keep = chosen[stays.record_of_measurement]
    columns = (
        stays.record_ids[stays.record_of_measurement[keep]].tolist(),
        stays.minutes[keep].astype(np.int64).tolist(),
        [VARIABLES[i] for i in stays.variables[keep].tolist()],
        stays.values[keep].tolist(),
    )
    rows = (f"{record},{minute},{name},{value:.6g}" for record, minute, name, value in zip(*columns, strict=True))
    return "\n".join([",".join(map(str, COLUMNS)), *rows]) + "\n"


def _write_compressed(to: Path, text: str) -> None:
    with to.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:  # the same bytes every time
        packed.write(text.encode())


# Files


def _as_stored(task: Task, folder: Path) -> Task:
    """The task as it is read back: its weights rounded to 16 bits."""
    device = next(task.parameters()).device
    task.save(folder, half=True)
    return checkpoint.load(folder).to(device)


def _write_with_card(task: Task, folder: Path, card: Sequence[str]) -> None:
    task.to("cpu").save(folder, half=True, card="\n\n".join(part for part in card if part) + "\n")


def _made(task: Task, making: Making, began: float) -> str:
    minutes = (time.monotonic() - began) / 60
    trial = " It is a quick trial and good for nothing." if making.quick else ""
    n = sum(p.numel() for p in task.parameters()) / 1e6
    return (
        f"A `{type(task).__name__}` of romae {__version__} with {n:.1f} million parameters, made by "
        f"`python -m romae.experiments.icu_models` (commit {commit()}, {device_name(making.device)}, {minutes:.0f} "
        f"minutes).{trial}"
    )


def _epochs(records: Sequence[Mapping[str, Any]]) -> int:
    return int(records[-1]["epoch"])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


MAKERS = dict(zip(NAMES, (make_icu, make_mortality, write_stays), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.icu_models", description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the folder of the models")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), help="some of them")
    parser.add_argument("--depth", type=int, default=DEPTH, help=f"layers of the encoders; {DEPTH} by default")
    parser.add_argument("--values", default=VALUES, choices=get_args(Method), help="how mortality sees values")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a few stays and two epochs; the numbers mean nothing")
    given = parser.parse_args(arguments)
    making = Making(depth=given.depth, device=given.device, quick=given.quick, values=given.values)
    try:
        require_writable(given.out)
        for name in given.only:
            began = time.monotonic()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="data far outside")  # rare data-entry errors of the test
                line = MAKERS[name](Path(given.out) / name, making)
            print(f"{name}: {line} ({time.monotonic() - began:.0f} s)", flush=True)
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
