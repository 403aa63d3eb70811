"""Loading: samples in memory or in a store to packed batches, in an order that follows from seed and epoch alone."""

import multiprocessing
import numbers
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch.utils.data import DataLoader, Dataset, Sampler

from romae.data.sources import SampleSource, as_source
from romae.tokens.tokens import Batch

Indices = Int64[np.ndarray, "_"]
BatchTransform = Callable[[Batch, int], Any]


class Loader:
    """Packed batches of samples in memory or on disk, in an order that follows from seed and epoch alone.

    `train` makes its own. Use it for a loop of your own: any epoch can be started at any batch, and several ranks share
    each batch without overlap.

    Parameters
    ----------
    samples : sequence of Sample or Store
        What to load.
    batch_size : int, optional
        Samples per batch, over all ranks. Give this or `tokens_per_batch`.
    tokens_per_batch : int, optional
        Tokens per batch, over all ranks: as many samples as fit.
    shuffle : bool, default False
        Whether each epoch has an order of its own.
    seed : int, default 0
        Decides the order, with the epoch.
    group : bool, default False
        Whether to put samples of similar length into one batch.
    rank : int, default 0
        The index of this process.
    n_ranks : int, default 1
        The number of processes.
    pieces : int, default 1
        Into how many pieces this rank's share of a batch is cut (gradient accumulation). A piece is None where a short
        last batch has no sample left for it.
    workers : int, default 0
        Processes that make batches ahead; 0 makes them in this one.
    pin : bool, default False
        Whether batches come in pinned memory, for a GPU.
    transform : callable, optional
        `transform(batch, epoch)`, applied where a batch is made: here, or in a worker.

    Raises
    ------
    ValueError
        If there are no samples, both or none of the batch sizes are given, or a sample exceeds the budget of tokens.
    TypeError
        If a number is not whole.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> samples = romae.from_arrays([np.zeros((n, 1)) for n in (2, 5, 3, 4)])
    >>> loader = romae.Loader(samples, batch_size=3, shuffle=True, seed=1)
    >>> loader.n_batches(), [len(batch) for batch in loader.epoch(0)]
    (2, [3, 1])
    """

    def __init__(
        self,
        samples: SampleSource,
        *,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        group: bool = False,
        rank: int = 0,
        n_ranks: int = 1,
        pieces: int = 1,
        workers: int = 0,
        pin: bool = False,
        transform: BatchTransform | None = None,
    ) -> None:
        source = as_source(samples, "samples to load")
        if (batch_size is None) == (tokens_per_batch is None):
            raise ValueError("give either batch_size (samples) or tokens_per_batch, and not both")
        counts = {"batch_size": batch_size, "tokens_per_batch": tokens_per_batch, "n_ranks": n_ranks, "pieces": pieces}
        for name, count in counts.items():
            if count is not None:
                _require_whole(name, count, at_least=1)
        for name, number in {"seed": seed, "rank": rank, "workers": workers}.items():
            _require_whole(name, number)
        if rank >= n_ranks:
            raise ValueError(f"rank {rank} is outside 0 to {n_ranks - 1}")
        self.source, self.seed, self.shuffle, self.group = source, seed, shuffle, group
        self.batch_size, self.tokens_per_batch = batch_size, tokens_per_batch
        self.rank, self.n_ranks, self.pieces, self.workers, self.pin = rank, n_ranks, pieces, workers, pin
        self.transform = transform
        self.n_iterated = 0  # epochs that were begun by iterating
        self.by_row = False  # whether batches name the rows of their values, which lie on a device already
        self.lengths = source.lengths
        if tokens_per_batch is not None and self.lengths.max() > tokens_per_batch:
            raise ValueError(
                f"sample {int(self.lengths.argmax())} has {self.lengths.max()} tokens, more than the "
                f"{tokens_per_batch} of a batch; raise tokens_per_batch or leave the sample out"
            )

    def plan(self, epoch: int = 0) -> list[Indices]:
        """The indices of every batch of an epoch, over all ranks: a pure function of seed and epoch.

        Parameters
        ----------
        epoch : int, default 0
            The number of the epoch.

        Returns
        -------
        list of Int64 array
            One array of indices per batch.

        Raises
        ------
        ValueError
            If the epoch is negative.
        TypeError
            If the epoch is no whole number.
        """
        _require_whole("epoch", epoch)
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        if self.group:
            order = self._grouped(order)
        batches = np.split(order, self._cuts(order))
        if self.group and self.shuffle:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        return batches

    def n_batches(self, epoch: int = 0) -> int:
        """The number of batches of an epoch.

        Parameters
        ----------
        epoch : int, default 0
            The number of the epoch; it matters with `tokens_per_batch` alone.

        Returns
        -------
        int
            Over all ranks.
        """
        if self.batch_size is not None:  # the same in every epoch, and no plan is needed
            return -(-len(self.lengths) // self.batch_size)
        return len(self.plan(epoch))

    def batch(self, indices: Indices) -> Batch:
        """The samples at these indices as a packed batch, as it is before `transform`.

        Parameters
        ----------
        indices : Int64 array
            Which samples.

        Returns
        -------
        Batch
            With `Batch.indices` set.
        """
        batch = self.source.batch(indices, by_row=True) if self.by_row else self.source.batch(indices)  # type: ignore[call-arg]
        return replace(batch, indices=torch.from_numpy(indices))

    def __len__(self) -> int:
        """How many batches the first epoch has."""
        return self.n_batches()

    def __iter__(self) -> Iterator[Any]:
        """This rank's share of an epoch, piece by piece: of the first one, and of the next each time it is asked."""
        self.n_iterated += 1
        return self.epoch(self.n_iterated - 1)

    def stand_in(self) -> Batch:
        """A batch of one sample for a rank that has none, so that it can take part in the step; its weight must be 0.

        Returns
        -------
        Batch
            The first sample.
        """
        return self.batch(np.zeros(1, dtype=np.int64))

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """This rank's share of an epoch, piece by piece.

        Parameters
        ----------
        epoch : int, default 0
            The number of the epoch.
        start : int, default 0
            The number of the batch to start at, for a run that is resumed.

        Yields
        ------
        Batch or None
            A piece; what `transform` makes of it, where there is one.

        Raises
        ------
        ValueError
            If the epoch has no such batch.
        TypeError
            If a number is not whole.
        """
        _require_whole("epoch", epoch)
        return self.epochs(epoch, epoch + 1, start)

    def epochs(self, first: int, end: int, start: int = 0) -> Iterator[Any]:
        """This rank's shares of one epoch after the other; workers stay alive between them.

        Parameters
        ----------
        first : int
            The number of the first epoch.
        end : int
            The number of the epoch to stop before.
        start : int, default 0
            The number of the batch of the first epoch to start at.

        Yields
        ------
        Batch or None
            A piece; what `transform` makes of it, where there is one.

        Raises
        ------
        ValueError
            If the first epoch has no such batch.
        TypeError
            If a number is not whole.
        """
        _require_whole("start", start)
        plan = self.plan(first)
        if start > len(plan):
            raise ValueError(f"epoch {first} has {len(plan)} batches and cannot start at batch {start}")
        if start == len(plan) and first + 1 == end:
            return iter(())
        # Without a generator of its own it would draw from torch's, and what others draw would depend on the loading.
        generator = torch.Generator().manual_seed(int(np.random.default_rng((self.seed, first)).integers(2**63)))
        loader = DataLoader(
            _Parts(self),
            sampler=_Order(self, first, end, start),
            batch_size=None,
            num_workers=self.workers,
            pin_memory=self.pin,
            generator=generator,
            worker_init_fn=_end_with_parent,
        )
        return _with_plain_errors(iter(loader)) if self.workers else iter(loader)

    def _grouped(self, order: Indices) -> Indices:
        """Sort by length within stretches of some fifty batches, so that neighbours are alike but epochs differ."""
        per_batch = self.batch_size or max(1, int((self.tokens_per_batch or 1) / self.lengths.mean()))
        size = 50 * per_batch if self.shuffle else len(order)
        stretches = [order[i : i + size] for i in range(0, len(order), size)]
        return np.concatenate([stretch[np.argsort(self.lengths[stretch], kind="stable")] for stretch in stretches])

    def _cuts(self, order: Indices) -> Int64[np.ndarray, "cuts"]:
        """Where one batch ends and the next begins."""
        if self.batch_size is not None:
            return np.arange(self.batch_size, len(order), self.batch_size)
        ends, cuts, budget = np.cumsum(self.lengths[order]), [], self.tokens_per_batch or 0
        start = np.searchsorted(ends, budget, side="right")
        while start < len(order):
            cuts.append(start)
            start = np.searchsorted(ends, ends[start - 1] + budget, side="right")
        return np.array(cuts, dtype=np.int64)


def _require_whole(name: str, number: object, at_least: int = 0) -> None:
    if not isinstance(number, numbers.Integral) or isinstance(number, bool) or int(number) < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, not {number!r}")


class _Order(Sampler[tuple[int, Indices]]):
    """Epoch and indices of every part that this rank takes; a plan is made when its epoch begins."""

    def __init__(self, loader: Loader, first: int, end: int, start: int) -> None:
        self.loader, self.first, self.end, self.start = loader, first, end, start

    def __iter__(self) -> Iterator[tuple[int, Indices]]:
        loader = self.loader
        mine = range(loader.rank * loader.pieces, (loader.rank + 1) * loader.pieces)
        for epoch in range(self.first, self.end):
            for batch in loader.plan(epoch)[self.start if epoch == self.first else 0 :]:
                for i in mine:
                    yield epoch, batch[i :: loader.n_ranks * loader.pieces]


class _Parts(Dataset[Any]):
    """Parts of batches, made where they are asked for: here or in a worker process."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getitem__(self, key: tuple[int, Indices]) -> Any:
        epoch, indices = key
        if len(indices) == 0:
            return None
        batch, transform = self.loader.batch(indices), self.loader.transform
        return batch if transform is None else transform(batch, epoch)


def _with_plain_errors(pieces: Iterator[Any]) -> Iterator[Any]:
    """The same pieces; what a worker complains of is said in its own words, without its traceback."""
    try:
        yield from pieces
    except (ValueError, TypeError) as error:
        message, is_from_worker = str(error).rstrip(), "Original Traceback" in str(error)
        if not is_from_worker:
            raise
        raise type(error)(message.rpartition(f"\n{type(error).__name__}: ")[2]) from None


def _end_with_parent(_: int) -> None:
    """A worker ends when the process that asked for it does or says so, and at no signal of others.

    Torch looks at the process that made the worker, and where a server makes them (Python 3.14) that one lives on.
    Signals that ask a run to stop often go to all of its processes; it needs its workers until it has saved its state.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers come here"

    def wait() -> None:
        parent.join()
        os._exit(1)

    def obey(stops: set[signal.Signals]) -> None:
        while signal.sigwaitinfo(stops).si_pid != parent.pid:
            pass
        os._exit(1)

    if hasattr(signal, "sigwaitinfo"):  # not on Macs and Windows
        stops = {signal.SIGTERM, signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # in this thread and those that it starts
        threading.Thread(target=obey, args=(stops,), daemon=True).start()
    threading.Thread(target=wait, daemon=True).start()
