"""Peers by name: which are to run on what, their files, and the command line of this package."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from romae.experiments.peers import classification, imputation
from romae.experiments.peers.fitting import FULL, QUICK, Fit, require_speed
from romae.experiments.peers.models import PEERS, PeerTask
from romae.extras import require_extra
from romae.files import require_writable, write_whole_text

DATA: dict[str, PeerTask] = {"physionet-grid": "imputation", "p12": "classification", "p19": "classification"}
FIRST_SEEDS = {"physionet-grid": "0-2", "p12": "1-5", "p19": "1-5"}
SHOWN = ("mae", "mse", "crps", "auroc", "auprc")


def compare(
    peers: Sequence[str],
    data: str,
    seeds: Sequence[int],
    out: str | Path,
    fit: Fit = FULL,
    report: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Run peers on the data of each seed, unless their files are there, and return what these say."""
    require_peers(peers, data, fit)
    out = Path(out)
    require_writable(out)
    found = []
    for seed in seeds:
        for name in peers:
            path = out / f"{name}-{seed}.json"
            if is_done(path, fit):
                found.append(json.loads(path.read_text(encoding="utf-8")))
                report(f"{name}, seed {seed}: done before, {path}")
                continue
            result = run(name, data, seed, fit)
            write_whole_text(path, json.dumps(result, indent=1) + "\n")
            found.append(result)
            report(in_one_line(result))
    return found


def run(name: str, data: str, seed: int, fit: Fit) -> dict[str, Any]:
    """Train a peer on the data of a seed, and judge it."""
    require_extra("peers", "peers need")
    missing = [library for library in PEERS[name].needs if find_spec(library) is None]
    if missing:
        raise ImportError(
            f"{name} needs {' and '.join(missing)}, built for your torch: pip install {' '.join(missing)}"
        )
    if DATA[data] == "imputation":
        return imputation.run(name, seed, fit)
    return classification.run(name, "p12" if data == "p12" else "p19", seed, fit)


def require_peers(peers: Sequence[str], data: str, fit: Fit) -> None:
    """Refuse names that are not known, and peers that answer other questions."""
    if data not in DATA:
        raise ValueError(f"peers run on {', '.join(DATA)}, not on {data!r}")
    able = [name for name, peer in PEERS.items() if peer.task == DATA[data]]
    for name in peers:
        if name not in able:
            raise ValueError(f"there is no peer {name!r} for {data}; there are {', '.join(able)}")
        require_speed(name, fit)


def in_one_line(result: dict[str, Any]) -> str:
    """What came of a peer, with its seconds and its memory."""
    metrics, seconds = result["metrics"], result["seconds"]
    scores = ", ".join(f"{name.upper()} {metrics[name]:.3f}" for name in SHOWN if name in metrics)
    return (
        f"{result['peer']}, seed {result['seed']}: {scores}; {result['epochs']:.0f} passes, ended by "
        f"{result['ended_by']}; {seconds['fit']:.0f} s of fit, {seconds['answer']:.0f} s of answers, "
        f"{result['peak_memory_mb']} MB"
    )


def read_seeds(text: str) -> list[int]:
    """0-2, or 0,3,5."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        span = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not span or len(span) > 1000:
            raise ValueError(f"cannot read the seeds {text[:80]!r}; write them as 0-2 or 0,3,5")
        seeds += span
    return seeds


def is_done(path: Path, fit: Fit) -> bool:
    """Whether a file holds this peer and seed; one of a quick run does not stand for a real one."""
    if not path.exists():
        return False
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        is_quick = bool(before["quick"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is no result of a peer; remove it, or name another folder") from None
    if is_quick != fit.is_quick:
        kinds = ("a quick run", "a real one") if is_quick else ("a real run", "a quick one")
        raise ValueError(f"{path} is of {kinds[0]}, not of {kinds[1]}; remove it, or name another folder")
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this package."""
    import romae.experiments.peers as package

    about = (package.__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m romae.experiments.peers", description=about)
    parser.add_argument("peers", nargs="+", choices=list(PEERS), help="the models to run")
    parser.add_argument("--data", choices=list(DATA), default="physionet-grid", help="physionet-grid by default")
    parser.add_argument("--seeds", help="0-2, or 0,3,5; each has its own split")
    parser.add_argument("--out", required=True, help="the folder of the results")
    parser.add_argument("--epochs", type=int, help=f"passes at most; {FULL.epochs} by default")
    parser.add_argument("--patience", type=int, help=f"passes that may bring nothing; {FULL.patience} by default")
    parser.add_argument("--minutes", type=float, help="of a fit, answers not counted; no limit by default")
    parser.add_argument("--n-samples", type=int, help=f"of each hidden cell; {FULL.n_samples} by default")
    parser.add_argument("--n-validation", type=int, help="the first of the validation stays; all by default")
    parser.add_argument("--precision", help="of products: float32 (the default), tf32, or bf16 for csdi")
    parser.add_argument("--compile", action="store_true", default=None, help="the network of csdi")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="a few stays and tiny models; the numbers mean nothing")
    given = parser.parse_args(arguments)
    names = ("epochs", "patience", "minutes", "n_samples", "n_validation", "precision", "compile", "device")
    try:
        fit = fit_of({name: getattr(given, name) for name in names}, is_quick=given.quick)
        seeds = read_seeds(given.seeds or FIRST_SEEDS[given.data])
        compare(given.peers, given.data, seeds, given.out, fit, lambda text: print(text, flush=True))
    except (ValueError, ImportError, OSError) as error:
        print(f"romae: {error}", file=sys.stderr)
        sys.exit(2)


def fit_of(options: dict[str, Any], *, is_quick: bool) -> Fit:
    """The fit that options ask for; those that are None stay as they are."""
    return replace(QUICK if is_quick else FULL, **{name: x for name, x in options.items() if x is not None})
