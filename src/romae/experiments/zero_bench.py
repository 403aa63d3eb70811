"""How good the model that needs no training is, beside what people would do without it.

    romae run zero/all --set model=zero/model                         some minutes on one CPU core
    python -m romae.experiments.zero_bench                            fit the Gaussian processes that are not there yet
    python -m romae.experiments.zero_bench --model zero/model         the same as the first
    python -m romae.experiments.zero_bench --model zero/model --development --out trial       for choosing a prior
    python -m romae.experiments.zero_bench --model zero/model --quick                         to results/zero/quick
    python -m romae.experiments.zero_bench --table                    the table of what is there, nothing run

Nothing is trained. Each set (`zero_sets.SETS`) is asked in three ways, every method sees the same of the same series,
and results/zero/SET.json gets its scores: those of the model, of a Gaussian process fitted to each series, of linear
interpolation, a seasonal naive forecast, the last value, the mean, and of the exact posterior where there is one.
results/zero/README.md is the table of all of them. Processes take a tenth of a second a series, so that their scores
are kept beside, in results/zero/gaussian-process, by a digest of the question: another model needs no new ones.

Shapes: b series.
"""

import argparse
import difflib
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from romae.checkpoints.native import load
from romae.experiments.results import commit, device_name, versions
from romae.experiments.zero_baselines import POINT_METHODS, fitted_process, regression
from romae.experiments.zero_results import (
    ALONE,
    BESIDE,
    CHANNELS,
    EXACT,
    NAMES,
    OURS,
    PROCESS,
    SPEED,
    TOGETHER,
    Asked,
    SetResult,
    read_json,
    results_in,
    speeds_in,
    write_result,
)
from romae.experiments.zero_scores import LEVELS, Scores, of_distributions, of_normals, of_points, spread
from romae.experiments.zero_sets import (
    GAUSSIAN,
    SETS,
    WAYS,
    EvaluationSet,
    Question,
    Series,
    exact_posterior,
    pressures,
)
from romae.experiments.zero_table import in_one_line, markdown
from romae.files import require_writable, write_whole_text
from romae.inference.distributions import Distribution
from romae.inference.zero import answers, is_in_own_units
from romae.model.tasks import MaskedReconstruction
from romae.training.config import chosen_device

FOLDER = Path("results/zero")
PROCESSES, QUICK, TABLE = "gaussian-process", "quick", "README.md"
N_SERIES = {"holes": 80, "gap": 40, "ahead": 40}
N_STAYS = 60  # with several channels
N_QUICK = 8  # series of each set
N_SPEED, POINTS_SPEED, ASKED_SPEED = 1_000, 50, 15  # series, visible points and questions of the time that is taken


class Evaluation(NamedTuple):
    """A model and how it is judged; without a model, Gaussian processes are fitted and nothing else."""

    task: MaskedReconstruction | None
    out: Path
    quick: bool = False
    fits: bool = True  # whether Gaussian processes are fitted that are not there yet

    @property
    def folder(self) -> Path:
        """Where results are; those of a rehearsal never take the place of others."""
        return self.out / QUICK if self.quick else self.out

    def n_series(self, way: str) -> int:
        """How many series of a set are asked."""
        return N_QUICK if self.quick else N_SERIES.get(way, N_STAYS)


class Processes:
    """The scores of Gaussian processes on the series of a set, which are kept in a file.

    Parameters
    ----------
    path : Path
        The file. A row of it are the numbers of a series: crps, mae, mse, coverages, and seconds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, list[float]] = read_json(path)["series"] if path.exists() else {}

    def scores(self, questions: Sequence[Question], *, fit: bool) -> Scores | None:
        """Of these series; None where some are not there and none are to be fitted."""
        missing = [question for question in questions if question.digest not in self._rows]
        if missing and not fit:
            return None
        for question in missing:
            began = time.process_time()
            middle, deviation = fitted_process(question)
            seconds = time.process_time() - began
            one = of_normals([question], [middle], [deviation])
            assert one.coverage is not None
            row = [*one.crps, *one.mae, *one.mse, *one.coverage.values(), round(seconds, 3)]
            self._rows[question.digest] = row
        if missing:
            self._write()
        rows = [self._rows[question.digest] for question in questions]
        crps, mae, mse, *shares, seconds_of = (tuple(column) for column in zip(*rows, strict=True))
        coverage = {
            f"{level:.0%}": round(float(np.mean(share)), 4) for level, share in zip(LEVELS, shares, strict=True)
        }
        return Scores(crps=crps, mae=mae, mse=mse, coverage=coverage, seconds=round(sum(seconds_of), 2))

    def _write(self) -> None:
        lines = ",\n".join(f"{json.dumps(digest)}: {json.dumps(row)}" for digest, row in self._rows.items())
        about = f'"commit": {json.dumps(commit())},\n"versions": {json.dumps(versions())}'
        write_whole_text(self.path, f'{{\n{about},\n"series": {{\n{lines}\n}}\n}}\n')


def evaluate(evaluation: Evaluation, one: EvaluationSet) -> SetResult | None:
    """All scores on a set; writes them, and what Gaussian processes had to be fitted."""
    processes = Processes(evaluation.out / PROCESSES / f"{one.name}.json")
    ways = {}
    for way in WAYS:
        questions = one.questions(way, evaluation.n_series(way))
        if not questions:
            raise ValueError(f"{one.title} has no series of enough measurements; look at the files under ROMAE_DATA")
        process = processes.scores(questions, fit=evaluation.fits)
        if evaluation.task is None:
            continue
        scores = {OURS: of_distributions(questions, *answered(evaluation.task, questions))}
        scores |= {} if process is None else {PROCESS: process}
        scores |= {name: of_points(questions, method(questions)) for name, method in POINT_METHODS.items()}
        if one.name == GAUSSIAN:
            scores[EXACT] = of_normals(questions, *zip(*exact_posterior(questions), strict=True))
        ways[way] = Asked(n=len(questions), spread=spread(questions), scores=scores)
    return None if evaluation.task is None else _written(evaluation, one, ways)


def answered(task: MaskedReconstruction, questions: Sequence[Question]) -> tuple[list[Distribution], float]:
    """The distributions of what is measured where questions ask, and the processor time that they took."""
    samples, queries = [question.sample for question in questions], [question.queries for question in questions]
    began = time.process_time()
    parts = answers(task, samples, queries)
    seconds = time.process_time() - began
    if task.config.errors:  # it tells what is measured without the noise of the measurement
        parts = [part.with_noise(q.errors[:, None]) for part, q in zip(parts, questions, strict=True)]
    return parts, round(seconds, 3)


def evaluate_together(evaluation: Evaluation) -> SetResult | None:
    """All channels at once beside each alone, on three blood pressures, of which one nearly follows from the others."""
    processes = Processes(evaluation.out / PROCESSES / f"{TOGETHER}.json")
    stays = pressures(evaluation.n_series(CHANNELS))
    if not stays:
        raise ValueError("no stay of PhysioNet 2012 has enough blood pressures; look at the files under ROMAE_DATA")
    questions = [question for stay in stays for question in stay.questions]
    beside = [stay.map_beside_both for stay in stays]
    of_channels, of_map = (processes.scores(part, fit=evaluation.fits) for part in (questions, beside))
    task = evaluation.task
    if task is None:
        return None
    began = time.process_time()
    whole = answers(task, [stay.sample for stay in stays], [stay.queries for stay in stays])
    seconds = round(time.process_time() - began, 3)
    parts, map_parts = [], []
    for stay, distribution in zip(stays, whole, strict=True):
        ends = np.cumsum([0, *(len(question.queries) for question in stay.questions)])
        parts += [distribution[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]
        map_parts.append(parts[-1][np.isin(stay.questions[-1].queries, stay.map_beside_both.queries)])
    ways = {}
    for way, asked, own, process in (
        (CHANNELS, questions, parts, of_channels),
        (BESIDE, beside, map_parts, of_map),
    ):
        scores = {
            OURS: of_distributions(asked, own, seconds if way == CHANNELS else None),
            ALONE: of_distributions(asked, *answered(task, asked)),
        }
        scores |= {} if process is None else {PROCESS: process}
        scores |= {name: of_points(asked, method(asked)) for name, method in POINT_METHODS.items()}
        if way == BESIDE:
            fits = [regression(stay) for stay in stays]
            scores["regression"] = of_normals(asked, *zip(*fits, strict=True))
        ways[way] = Asked(n=len(stays), spread=spread(asked), scores=scores)
    one = EvaluationSet(name=TOGETHER, title="PhysioNet 2012, three blood pressures", read=list)
    return _written(evaluation, one, ways)


def measure_speed(evaluation: Evaluation) -> None:
    """Write how many seconds of the wall answers to a thousand series take: on one and two threads, or on a GPU."""
    task = evaluation.task
    assert task is not None
    random = np.random.default_rng(0)
    shape = (N_QUICK if evaluation.quick else N_SPEED, POINTS_SPEED + ASKED_SPEED)
    times = np.sort(random.uniform(0, 1, shape), axis=1)
    values = np.sin(2 * np.pi * 3 * times) + 0.2 * random.normal(size=shape)
    hidden = np.zeros(shape[1], dtype=bool)
    hidden[random.permutation(shape[1])[:ASKED_SPEED]] = True
    samples = [Question(Series(t, x), hidden).sample for t, x in zip(times, values, strict=True)]
    path, before = evaluation.folder / SPEED, torch.get_num_threads()
    seconds = speeds_in(evaluation.folder)
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        answers(task, samples[:N_QUICK], list(times[:N_QUICK, hidden]))  # so that nothing is loaded or compiled below
        began = time.perf_counter()
        answers(task, samples, list(times[:, hidden]))
        place = f"{n_threads} CPU thread{'s' * (n_threads > 1)}" if not _on_gpu(task) else device_name("auto")
        seconds[place] = round(time.perf_counter() - began, 3)
    torch.set_num_threads(before)
    write_whole_text(path, json.dumps({"model": digest_of(task), "seconds": seconds}, indent=1) + "\n")


def digest_of(task: MaskedReconstruction) -> str:
    """What tells the weights of a model and its gate from those of another."""
    digest = hashlib.sha256(b"" if task.gate is None else repr(task.gate).encode())
    for name, tensor in sorted(task.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:12]


def _written(evaluation: Evaluation, one: EvaluationSet, ways: Mapping[str, Asked]) -> SetResult:
    task = evaluation.task
    assert task is not None
    result = SetResult(
        set=one.name,
        title=one.title,
        is_development=one.is_development,
        is_real=one.is_real,
        is_smooth=one.is_smooth,
        ways=ways,
        model=digest_of(task),
        n_parameters=sum(parameter.numel() for parameter in task.parameters()),
        commit=commit(),
        device=device_name("auto" if _on_gpu(task) else "cpu"),
        n_threads=torch.get_num_threads(),
        versions=versions(),
        quick=evaluation.quick,
    )
    write_result(result, evaluation.folder)
    return result


def _on_gpu(task: MaskedReconstruction) -> bool:
    return next(task.parameters()).device.type != "cpu"


def _loaded(folder: str, device: str) -> MaskedReconstruction:
    task = load(folder)
    if not isinstance(task, MaskedReconstruction) or task.likelihood is None or not is_in_own_units(task):
        raise ValueError(
            f"{folder} holds no model that answers for series in units of their own; one is made in OUT/model by "
            "python -m romae.experiments.zero_model --out OUT"
        )
    return task.to(device).eval()


def judge(
    names: Sequence[str],
    out: Path,
    *,
    model: str | None = None,
    device: str = "auto",
    quick: bool = False,
    fits: bool = True,
) -> Path | None:
    """Judge a model on sets, say of each what came of it, and write the table; without a model, fit processes alone."""
    require_writable(out)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # seconds are those of one thread
    try:
        task = None if model is None else _loaded(model, chosen_device(device))
        evaluation = Evaluation(task, out, quick=quick, fits=fits)
        for name in names:
            began = time.monotonic()
            done = evaluate_together(evaluation) if name == TOGETHER else evaluate(evaluation, SETS[name])
            words = "Gaussian processes" if done is None else in_one_line(done)
            print(f"{name}: {words}; {time.monotonic() - began:.0f} s", flush=True)
        if task is None:
            return None
        measure_speed(evaluation)
        return write_table(evaluation.folder)
    finally:
        torch.set_num_threads(before)


def write_table(folder: Path) -> Path:
    """The table of what is there."""
    write_whole_text(folder / TABLE, markdown(results_in(folder), speeds_in(folder)))
    return folder / TABLE


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.zero_bench", description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"which sets, all by default: {', '.join(NAMES)}")
    parser.add_argument("--model", metavar="FOLDER", help="the model; without one, Gaussian processes are fitted alone")
    parser.add_argument("--out", default=str(FOLDER), help=f"the folder of results; {FOLDER} by default")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--development", action="store_true", help="the sets that a prior may be chosen on, alone")
    parser.add_argument("--unfitted", action="store_true", help="fit no Gaussian process that is not there yet")
    parser.add_argument("--table", action="store_true", help="write the table of what is there, and run nothing")
    parser.add_argument("--quick", action="store_true", help=f"{N_QUICK} series of each set; the numbers mean little")
    given = parser.parse_args(arguments)
    try:
        out = Path(given.out)
        if given.table:
            table: Path | None = write_table(out / QUICK if given.quick else out)
        else:
            names = chosen(given.sets, development=given.development)
            fits = not given.unfitted
            table = judge(names, out, model=given.model, device=given.device, quick=given.quick, fits=fits)
        if table is not None:
            print(f"written to {table}")
    except ValueError as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


def chosen(sets: Sequence[str], *, development: bool = False) -> list[str]:
    """The names of sets in their order: some, all, or those that a prior may be chosen on."""
    for name in sets:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=3, cutoff=0.4) or NAMES
            raise ValueError(f"there is no set {name!r}; do you mean {' or '.join(near)}?")
    allowed = [name for name in SETS if SETS[name].is_development] if development else NAMES
    return [name for name in allowed if not sets or name in sets]


if __name__ == "__main__":
    main()
