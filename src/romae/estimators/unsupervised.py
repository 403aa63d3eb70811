"""Estimators that learn without labels: curves through sparse measurements, and vectors for series."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, Shaped
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils._set_output import _get_output_config

from romae.data.columns import to_numpy
from romae.data.containers import is_table
from romae.data.dates import positions_as_numbers
from romae.data.fitting import Center, Values
from romae.data.periods import without_phase
from romae.data.queries import channel_numbers
from romae.data.schema import Schema, measured_values
from romae.data.skipping import OnError, require_on_error
from romae.data.sources import schema_of
from romae.data.static import n_measured
from romae.data.uncertainty import require_level
from romae.estimators.answers import beside, by_id, curves_by_id, points_by_id
from romae.estimators.base import MASK_RATIO, Clock, Start
from romae.estimators.folds import TableRows
from romae.estimators.inputs import Tokens, opened
from romae.estimators.starts import StartingFromZero, hidden_predictions
from romae.inference import predictions as inference
from romae.inference.interpolation import interpolate
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Likelihood, Name
from romae.model.pooling import n_pooled
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Masking, Strategy, UniformTokens, hide
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig

U = TypeVar("U", bound="_Unsupervised")


class _Unsupervised(StartingFromZero):
    """Settings of the two estimators that learn by masked pre-training alone; docs/estimators.md explains them."""

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        mask_ratio: float = MASK_RATIO,
        model: ModelConfig | Mapping[str, Any] | None = None,
        masking: Strategy | Masking | Mapping[str, Any] | None = None,
        train: TrainConfig | Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        scaling: Values = "standard",
        center: Center = "auto",
        clock: Clock = "sample",
        learn_hidden: bool = False,
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.size = size
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.mask_ratio = mask_ratio
        self.model = model
        self.masking = masking
        self.train = train
        self.time_limit = time_limit
        self.scaling = scaling
        self.center = center
        self.clock = clock
        self.learn_hidden = learn_hidden
        self.tokens = tokens
        self.columns = columns
        self.ladders = ladders
        self.phase = phase
        self.pretrained = pretrained
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self: U, X: Any, y: Any = None, static: Any = None) -> U:
        """Learn to predict hidden measurements from the others.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : ignored
            For pipelines.
        static : table, dict or list of dict, optional
            Static facts, such as age and sex, as in `from_table`: for a table names of its columns or another table
            with a row for each id; for series a row for each, in their order.

        Returns
        -------
        RoMAEInterpolator or RoMAEEmbedder
            The estimator itself.

        Raises
        ------
        ValueError
            If X, y and the settings do not fit together; the message names the series.
        TypeError
            If something is of another type.
        """
        before = self._begin()
        X = opened(X, self.columns)
        samples = self._read(X, before, static=static)
        self._learn(samples, before)
        self._rows_of_fit = TableRows.of(X, schema_of(samples))
        return self

    def _read_to_ask(
        self, X: Any, on_error: OnError, static: Any, *, is_shared: bool
    ) -> tuple[Sequence[Sample], list[int] | None]:
        """The samples to ask, and the places of those that are kept where some may be left out."""
        if on_error == "raise":
            return self._read_to_predict(X, static=static), None
        require_on_error(on_error)
        if is_table(X) and not is_shared:
            raise ValueError(
                "a list with times for each id of a table does not say whose they are when some are skipped; give one "
                "array of times for all, or leave on_error out"
            )
        kept = self._read_kept(X, static)
        return kept.samples, kept.places


class _Asked(NamedTuple):
    """What is asked of an interpolator: where, which channels, and how series are read."""

    times: Any
    channels: Any
    on_error: OnError
    static: Any


class _Curves(NamedTuple):
    """What the model answers for each series, and which of the channels it knows."""

    answers: list[Any]
    is_known: Bool[np.ndarray, "c"]


class RoMAEInterpolator(_Unsupervised):
    """Interpolator for irregularly sampled time series: values at any time, learned from many series.

    Trained by masked autoencoding, without labels. What is left None follows from the data.

    Parameters
    ----------
    size : str, Size, dict or None, default None
        The size of the encoder: a name in `SIZES`, a `Size`, or a dictionary of its width, heads and depth. None takes
        "mini" on a CPU; on a GPU "tiny-shallow" below 1000 series, else "tiny".
    pretrain_epochs : int or None, default None
        Epochs of masked pre-training; 0 for none. None takes what fits into about five minutes on two CPU cores, or two
        on a GPU, at most 400 epochs or 4000 steps, and none with `pretrained`.
    batch_size : int or None, default None
        Series per step. None takes an eighth of them, a power of two from 8 to 128.
    lr : float or None, default None
        The learning rate. None takes 0.001, less in proportion for sizes wider than 180.
    mask_ratio : float, default 0.5
        The share of each series to hide in pre-training.
    model : ModelConfig or dict, optional
        The architecture, or some settings of it, such as `{"cls": True, "keep": 1.0}`; what it does not say is that of
        `ModelConfig.for_samples`.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed, Masking or dict, optional
        What pre-training hides, instead of the share `mask_ratio`; `{"kind": "spans", "ratio": 0.5}` as in a file.
    train : TrainConfig or dict, optional
        How it is trained, or some settings of it, such as `{"ema": 0.99, "weight_decay": 0.1}`.
    time_limit : float, optional
        Seconds that training may take: it gets fewer epochs, by a few steps that are timed first.
    scaling : {"standard", "robust", "asinh", "robust-asinh", "auto", "none"}, default "standard"
        The normalisation of values, by channel, as in `fit_scaling`.
    center : {"auto", "global", "sample", "instance"}, default "auto"
        Whether values are seen relative to the level of their own series and channel ("sample"), as in `fit_scaling`,
        and to their own spread ("instance"), for series of other amplitudes or units. "auto" takes "sample" where
        levels lie more than 3 times farther apart than values within a series, as of stars.
    clock : {"sample", "shared"}, default "sample"
        Where time begins: at each series' own first time, so that data recorded later get the same answers, or at one
        moment for all, the first time in X, where it matters when something was measured. Predictions at times that
        training did not have then come with a warning.
    learn_hidden : bool, default False
        Whether to learn what samples hide (`Sample.hidden`), as the targets of their pre-training. By default it is not
        shown to training at all, so that it can be predicted afterwards.
    likelihood : {"normal", "student", "mixture", "quantiles"}, likelihood, dict or None, default None
        The distribution that is learned of each value, for intervals and deviations, such as `Mixture(n=4)`, or
        `{"kind": "mixture", "n": 4}` as in a file; None learns the mean alone.
    tokens : "steps", "scalars" or None, default None
        What a token is: a time step, or a single number. None takes steps unless some lack a part of their channels.
    columns : dict, optional
        Where X is a table, its columns in the words of `from_table`: id, time, values, and channel, positions, label,
        time_unit where there are such.
    ladders : sequence of Ladder or None, default None
        The wavelengths of the first position axes (time), in the units of X. Those that are not given are fitted to the
        gaps and spans of X (`fit_ladders`); a pretrained model has its own.
    phase : bool or dict, optional
        Whether periodic series get their phase as one more position axis: True finds the period of each in what is
        visible of it, and a dictionary says more, such as `{"harmonics": 6, "shortest": 0.1}` (`add_phase`). A
        pretrained model has its own rule.
    pretrained : str or Path, optional
        A model to start from: the folder of a saved estimator, of a run or of a checkpoint, or a name on the Hub.
    start : {"best", "scratch", "zero", "auto"}, default "best"
        Where learning starts. "best" learns from new weights; where nothing else is said of the network or of its
        training, the model that needs no training ("romae/zero") is kept in its place if it does better. "scratch" is
        new weights alone. "zero", as `pretrained="romae/zero"`, fine-tunes that model, or keeps it as it is with
        `pretrain_epochs=0` and for fewer than 20 series. "auto" tries all three. Of what is tried, that with the lowest
        error on hidden values of held-out series, of which there are some from 20 series on, is kept, and one line on
        stderr says which.
    early_stopping : bool, default True
        Whether to keep the weights that do best on a validation split, and to stop when they no longer improve.
    validation_fraction : float or None, default None
        The share of series for that split. None takes a fifth of up to 500, a tenth of 1000 and more, none of fewer
        than 20.
    device : str, default "auto"
        "auto", "cpu", "cuda", or one GPU of several, such as "cuda:1".
    random_state : int, RandomState or None, default None
        Decides the split, the first weights, the order and the masks. Give a number for results that can be repeated.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    task_ : MaskedReconstruction
        The trained task, for `romae.predict`, `romae.embed` and the like.
    histories_ : list of list of dict
        The losses of each stage.
    n_features_in_ : int
        The number of channels.
    start_ : str
        What was kept: "zero-shot", "fine-tuned" or "from scratch".
    starts_ : dict or None
        The mean absolute error of each start on hidden values of held-out series, in mean deviations of their channel,
        where several were compared.
    skipped_ : list of (id, reason)
        What the latest answers with on_error="skip" left out.

    See Also
    --------
    interpolate : the same for a task and any positions.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> X = [(np.sort(random.uniform(0, 10, n)), random.normal(size=n)) for n in random.integers(5, 12, 12)]
    >>> interpolator = romae.RoMAEInterpolator(
    ...     size={"width": 16, "heads": 2, "depth": 1}, pretrain_epochs=1, random_state=0
    ... )
    >>> interpolator.fit(X).interpolate(X, times=[0.0, 2.5, 5.0]).shape
    (12, 3, 1)
    """

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        mask_ratio: float = MASK_RATIO,
        model: ModelConfig | Mapping[str, Any] | None = None,
        masking: Strategy | Masking | Mapping[str, Any] | None = None,
        train: TrainConfig | Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        scaling: Values = "standard",
        center: Center = "auto",
        clock: Clock = "sample",
        learn_hidden: bool = False,
        likelihood: Likelihood | Name | Mapping[str, Any] | None = None,
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        start: Start = "best",
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            size=size,
            pretrain_epochs=pretrain_epochs,
            batch_size=batch_size,
            lr=lr,
            mask_ratio=mask_ratio,
            model=model,
            masking=masking,
            train=train,
            time_limit=time_limit,
            scaling=scaling,
            center=center,
            clock=clock,
            learn_hidden=learn_hidden,
            tokens=tokens,
            columns=columns,
            ladders=ladders,
            phase=phase,
            pretrained=pretrained,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.start = start

    def _begin(self) -> Task | None:
        before = super()._begin()
        if before is not None and not self.pretrain_epochs and not isinstance(before, MaskedReconstruction):
            raise ValueError(
                f"the pretrained model is a {type(before).__name__}, which has no decoder to interpolate with; give it "
                "one with pretrain_epochs above 0"
            )
        if before is not None and not self.pretrain_epochs and self.likelihood is not None:
            raise ValueError(
                "a pretrained model that is not trained again keeps its own likelihood; leave likelihood out, or give "
                "pretrain_epochs above 0"
            )
        return before

    def interpolate(
        self,
        X: Any,
        times: Any,
        *,
        channels: Any = None,
        returns: inference.Returns = "mean",
        return_std: bool = False,
        on_error: OnError = "raise",
        static: Any = None,
    ) -> Any:
        """The values of all channels, or of some, at these times, in the units of the data.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        times : array [q] or list of arrays [q]
            One array for all series, or one for each. Where data have more position axes than time and channel,
            positions [q, d] take the place of times, as in `romae.interpolate`.
        channels : sequence of str or int, optional
            Which channels to ask for, by name or by number from 0 on, in this order; all by default.
        returns : {"mean", "distribution"}, default "mean"
            "distribution" gives a list with a `Distribution` for each series, also for a table; for estimators with a
            likelihood.
        return_std : bool, default False
            Whether to return the standard deviation as well; for estimators with a likelihood.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some. Those of a table are by default in the columns that they were in. A
            category that fit did not have is told in a warning and left out.

        Returns
        -------
        Float64 array [b, q, c], list of arrays [q, c] or pandas.DataFrame, list of Distribution, or tuple of two
            For a table a table with the index id and time, and a column for each channel or value. Else an array for
            times that all series share, or a list. Where a measurement has several values, such as a flux and its
            error, and channels are an axis, they are the last axis: [b, q, c, k]. A channel that was never measured in
            training is NaN. With `return_std` means and deviations, alike; of a table they are columns of one table,
            `flux` and `flux_std`.

        Raises
        ------
        ValueError
            If X, the times or the channels do not fit the data that the estimator was fitted on, or deviations or
            distributions are asked of an estimator without a likelihood.
        TypeError
            If the times are no array, or the channels no names or numbers.
        NotFittedError
            If the estimator has not been fitted.
        """
        if return_std and returns != "mean":
            raise ValueError(
                "return_std asks for arrays and returns='distribution' for objects that have them; use one"
            )
        how = _Asked(times, channels, on_error, static)
        if return_std:
            return self._told(X, how, {"": lambda one: one.mean(), "_std": lambda one: one.std()})
        if returns == "mean":
            return self._told(X, how, None)
        curves, _ = self._curves(opened(X, self.columns), how, returns)
        if not curves.is_known.all():
            raise ValueError(
                "a channel that was never measured in training has no distribution; ask for others with channels="
            )
        return curves.answers

    def predict_interval(
        self,
        X: Any,
        times: Any,
        level: float = 0.9,
        *,
        channels: Any = None,
        on_error: OnError = "raise",
        static: Any = None,
    ) -> Any:
        """The central intervals in which values at these times lie with some probability, in the units of the data.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series, as in `interpolate`.
        times : array [q] or list of arrays [q]
            One array for all series, or one for each, as in `interpolate`.
        level : float, default 0.9
            The probability, between 0 and 1.
        channels : sequence of str or int, optional
            Which channels to ask for, by name or by number from 0 on, in this order; all by default.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some.

        Returns
        -------
        tuple of two Float64 arrays or of two lists, or pandas.DataFrame
            Lower and upper ends, each shaped as by `interpolate`; of a table they are columns of one table,
            `flux_lower` and `flux_upper`.

        Raises
        ------
        ValueError
            If the level is no probability, the estimator has learned no likelihood, or X, the times or the channels do
            not fit the data that it was fitted on.
        TypeError
            If the times are no array, or the channels no names or numbers.
        NotFittedError
            If the estimator has not been fitted.
        """
        level = require_level(level)
        ends: dict[str, Callable[[Any], Any]] = {
            "_lower": lambda one: one.quantile((1 - level) / 2),
            "_upper": lambda one: one.quantile((1 + level) / 2),
        }
        return self._told(X, _Asked(times, channels, on_error, static), ends)

    def _told(self, X: Any, how: "_Asked", parts: Mapping[str, Callable[[Any], Any]] | None) -> Any:
        """Means, or some parts of the distributions by the endings of their columns: side by side, or in one table."""
        X = opened(X, self.columns)
        curves, shaped = self._curves(X, how, "mean" if parts is None else "distribution")
        if parts is None:
            return shaped(curves.answers)
        told = {ending: shaped([part(one) for one in curves.answers]) for ending, part in parts.items()}
        return beside(told) if is_table(X) else tuple(told.values())

    def _curves(
        self, X: Any, how: "_Asked", returns: inference.Returns
    ) -> tuple["_Curves", Callable[[Sequence[Any]], Any]]:
        """The answers for each series, and what brings arrays of their shape into the form that people asked in."""
        times, channels = how.times, how.channels
        times = times.to_numpy() if hasattr(times, "iloc") else times  # a pandas column is indexed by its own labels
        if not hasattr(times, "__getitem__") or isinstance(times, str | Mapping) or getattr(times, "ndim", 1) == 0:
            raise TypeError(
                f"times must be one array for all series, or a list with one for each, not {times!r}; a single time is "
                "a list of one"
            )
        if len(times) == 0:
            raise ValueError("times are empty; give one array for all series, or one for each")
        is_shared = np.ndim(times[0]) == 0
        samples, places = self._read_to_ask(X, how.on_error, how.static, is_shared=is_shared)
        times = times if is_shared or places is None else [times[i] for i in places]
        times_of_series = [times] * len(samples) if is_shared else times
        schema, is_frame = self.task_.schema, is_table(X)

        def asked_of_model(positions: Any, chosen: Any = None) -> list[Any]:
            return interpolate(self.task_, samples, positions, channels=chosen, returns=returns)

        if (
            schema is not None
            and schema.channel is not None
            and all(np.ndim(series_times) == 1 for series_times in times_of_series)
        ):
            is_known = np.ones(len(schema.channels), dtype=bool)
            if self.task_.scaling is not None:
                is_known = self.task_.scaling.is_known(len(is_known)).numpy()[: len(is_known)]
            asked = [*range(len(is_known))] if channels is None else channel_numbers(channels, schema.channels)
            numbers = [_time_numbers(series_times, schema) for series_times in times_of_series]
            counts, n_known, n_values = (
                [len(x) for x in numbers],
                int(is_known[asked].sum()),
                self.task_.config.n_values,
            )
            answers = asked_of_model([_channel_positions(x, np.array(asked)[is_known[asked]]) for x in numbers])
            if returns == "distribution":
                shape = (n_known,) if n_values == 1 else (n_known, n_values)
                answers = [one.reshape((n, *shape)) for one, n in zip(answers, counts, strict=True)]

            def by_channel(rows: Sequence[Any]) -> Any:
                flat = [np.reshape(x, (n * n_known, n_values)) for n, x in zip(counts, rows, strict=True)]
                values = [_by_channel(x, n, is_known[asked]) for n, x in zip(counts, flat, strict=True)]
                if is_frame:
                    return curves_by_id(samples, schema_of(samples) or schema, numbers, values, asked)
                return np.stack(values) if is_shared else values

            return _Curves(answers, is_known[asked]), by_channel
        if schema is not None and schema.channel is not None and channels is not None:
            raise ValueError(
                "positions [q, d] say themselves which channel each asks for, in their last column; leave channels out"
            )

        def by_position(rows: Sequence[Any]) -> Any:
            if is_frame:
                names = schema_of(samples) or Schema()
                columns = (
                    None if channels is None else [names.values[i] for i in channel_numbers(channels, names.values)]
                )
                return points_by_id(samples, names, times_of_series, rows, columns)
            return np.stack(rows) if is_shared else rows

        return _Curves(asked_of_model(times_of_series, channels), np.ones(1, dtype=bool)), by_position

    def score(self, X: Any, y: Any = None, static: Any = None) -> float:
        """R² of measurements that are hidden and predicted from the others.

        The share `mask_ratio` of each series is hidden. R² is computed in the units of the data for each column of
        values in each channel, and averaged: 1 is perfect, 0 as good as the mean of what is hidden there. Series of a
        single measurement are left out. What is hidden of a series follows from its own numbers, unless samples say
        themselves what they hide.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : ignored
            For cross-validation.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some. Those of a table are by default in the columns that they were in. A
            category that fit did not have is told in a warning and left out.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        ValueError
            If X does not fit, no series has two measurements, or the hidden values do not vary.
        NotFittedError
            If the estimator has not been fitted.
        """
        series = [sample for sample in self._read_to_judge(X, static=static) if n_measured(sample) > 1]
        samples = _with_hidden(list(without_phase(series)), self.mask_ratio)  # found of what is then left visible
        predictions = hidden_predictions(self.task_, samples)
        truth = torch.cat([measured_values(sample)[sample.hidden].double() for sample in samples]).numpy()
        channel = np.zeros(len(truth))
        if self.task_.schema is not None and self.task_.schema.channel is not None:
            channel = torch.cat([sample.positions[sample.hidden, -1] for sample in samples]).numpy()
        return _mean_r2(truth, predictions, channel)


class RoMAEEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Unsupervised):
    """Transformer of scikit-learn that turns irregularly sampled time series into embeddings.

    Trained by masked autoencoding, without labels; its vectors go to any classifier, clustering or plot. What is left
    None follows from the data.

    Parameters
    ----------
    size : str, Size, dict or None, default None
        The size of the encoder: a name in `SIZES`, a `Size`, or a dictionary of its width, heads and depth. None takes
        "mini" on a CPU; on a GPU "tiny-shallow" below 1000 series, else "tiny".
    pretrain_epochs : int or None, default None
        Epochs of masked pre-training; 0 for none. None takes what fits into about five minutes on two CPU cores, or two
        on a GPU, at most 400 epochs or 4000 steps, and none with `pretrained`.
    batch_size : int or None, default None
        Series per step. None takes an eighth of them, a power of two from 8 to 128.
    lr : float or None, default None
        The learning rate. None takes 0.001, less in proportion for sizes wider than 180.
    mask_ratio : float, default 0.5
        The share of each series to hide in pre-training.
    model : ModelConfig or dict, optional
        The architecture, or some settings of it, such as `{"cls": True, "keep": 1.0}`; what it does not say is that of
        `ModelConfig.for_samples`.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed, Masking or dict, optional
        What pre-training hides, instead of the share `mask_ratio`; `{"kind": "spans", "ratio": 0.5}` as in a file.
    train : TrainConfig or dict, optional
        How it is trained, or some settings of it, such as `{"ema": 0.99, "weight_decay": 0.1}`.
    time_limit : float, optional
        Seconds that training may take: it gets fewer epochs, by a few steps that are timed first.
    scaling : {"auto", "standard", "robust", "asinh", "robust-asinh", "none"}, default "auto"
        The normalisation of values, by channel, as in `fit_scaling`: by default median and quartiles, far values bent,
        but "standard" for series that are centred by themselves.
    center : {"auto", "global", "sample", "instance"}, default "auto"
        Whether values are learned relative to the level of their own series and channel ("sample"), as in
        `fit_scaling`, and to their own spread ("instance"); embeddings see something of both all the same. "auto" takes
        "sample" where levels lie more than 3 times farther apart than values within a series, as of stars.
    clock : {"sample", "shared"}, default "sample"
        Where time begins: at each series' own first time, so that a series recorded later has the same embedding, or at
        one moment for all, the first time in X, where it matters when something was measured. Embeddings of times that
        training did not have then come with a warning.
    learn_hidden : bool, default False
        Whether pre-training hides what samples hide themselves (`Sample.hidden`), and learns to predict it. By default
        it sees nothing of that.
    pooling : {"layers", "model"}, default "layers"
        What becomes the vector of a series. "layers" is for a linear model, trees or a search behind it: mean,
        deviation, extremes and change of the tokens in what enters the encoder, in its middle layer and in its last,
        and the same over the means of channels, 15 or 27 times as long as the encoder is wide. "model" is the mean of
        the last layer's tokens or channels (with CLS, that token), as wide as the encoder. It may be changed after
        `fit`.
    tokens : "steps", "scalars" or None, default None
        What a token is: a time step, or a single number. None takes steps unless some lack a part of their channels.
    columns : dict, optional
        Where X is a table, its columns in the words of `from_table`: id, time, values, and channel, positions, label,
        time_unit where there are such.
    ladders : sequence of Ladder or None, default None
        The wavelengths of the first position axes (time), in the units of X. Those that are not given are fitted to the
        gaps and spans of X (`fit_ladders`); a pretrained model has its own.
    phase : bool or dict, optional
        Whether periodic series get their phase as one more position axis: True finds the period of each in what is
        visible of it, and a dictionary says more, such as `{"harmonics": 6, "shortest": 0.1}` (`add_phase`). A
        pretrained model has its own rule.
    pretrained : str or Path, optional
        A model to start from: the folder of a saved estimator, of a run or of a checkpoint, or a name on the Hub.
    early_stopping : bool, default True
        Whether to keep the weights that do best on a validation split, and to stop when they no longer improve.
    validation_fraction : float or None, default None
        The share of series for that split. None takes a fifth of up to 500, a tenth of 1000 and more, none of fewer
        than 20.
    device : str, default "auto"
        "auto", "cpu", "cuda", or one GPU of several, such as "cuda:1".
    random_state : int, RandomState or None, default None
        Decides the split, the first weights, the order and the masks. Give a number for results that can be repeated.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    task_ : MaskedReconstruction
        The trained task, for `romae.predict`, `romae.embed` and the like.
    histories_ : list of list of dict
        The losses of each stage.
    n_features_in_ : int
        The number of channels.
    skipped_ : list of (id, reason)
        What the latest answers with on_error="skip" left out.

    See Also
    --------
    embed : the same for a task.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> X = [(np.sort(random.uniform(0, 10, n)), random.normal(size=n)) for n in random.integers(5, 12, 12)]
    >>> embedder = romae.RoMAEEmbedder(
    ...     size={"width": 16, "heads": 2, "depth": 1}, pretrain_epochs=1, random_state=0
    ... )
    >>> embedder.fit_transform(X).shape  # 5 statistics of what enters the only layer and of what leaves it
    (12, 160)
    >>> embedder.set_params(pooling="model").transform(X).shape
    (12, 16)
    """

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        mask_ratio: float = MASK_RATIO,
        model: ModelConfig | Mapping[str, Any] | None = None,
        masking: Strategy | Masking | Mapping[str, Any] | None = None,
        train: TrainConfig | Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        scaling: Values = "auto",
        center: Center = "auto",
        clock: Clock = "sample",
        learn_hidden: bool = False,
        pooling: inference.Pooling = "layers",
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            size=size,
            pretrain_epochs=pretrain_epochs,
            batch_size=batch_size,
            lr=lr,
            mask_ratio=mask_ratio,
            model=model,
            masking=masking,
            train=train,
            time_limit=time_limit,
            scaling=scaling,
            center=center,
            clock=clock,
            learn_hidden=learn_hidden,
            tokens=tokens,
            columns=columns,
            ladders=ladders,
            phase=phase,
            pretrained=pretrained,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.pooling = pooling

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def transform(self, X: Any, *, on_error: OnError = "raise", static: Any = None) -> Any:
        """The embedding of each series.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some. Those of a table are by default in the columns that they were in. A
            category that fit did not have is told in a warning and left out.

        Returns
        -------
        Float32 array [b, k] or pandas.DataFrame
            One row per series; for a table a table indexed by its ids. With `set_output(transform="pandas")` always a
            table.

        Raises
        ------
        ValueError
            If X cannot be read, or does not fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        X = opened(X, self.columns)
        samples = self._read_to_predict(X, on_error=on_error, static=static)
        vectors = np.asarray(inference.embed(self.task_, samples, pooling=self.pooling))
        if _get_output_config("transform", self)["dense"] in ("default", "pandas"):
            # For a table by id: scikit-learn would give it the index of X, whose rows are measurements.
            return by_id(X, samples, vectors, columns=self.get_feature_names_out())
        return vectors

    @property
    def _n_features_out(self) -> int:
        return self.task_.config.encoder.width if self.pooling == "model" else n_pooled(self.task_.config)

    @classmethod
    def _with_settings(cls, settings: Any) -> "RoMAEEmbedder":
        # Saved before there was a choice, an embedder goes on giving the vectors that it gave.
        return super()._with_settings({"pooling": "model"} | settings if isinstance(settings, dict) else settings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"pooling": "model"} | state)


def _with_hidden(samples: list[Sample], ratio: float) -> list[Sample]:
    """The samples with a share of their tokens hidden, the same wherever a sample stands."""
    if not samples:
        raise ValueError("nothing can be hidden, because no series has two measurements; score on longer ones")
    drawn = hide(samples, UniformTokens(ratio=ratio), numbers=[_content_hash(sample) for sample in samples])
    pairs = zip(samples, drawn, strict=True)
    return [
        replace(sample, hidden=masked.hidden if sample.hidden is None else sample.hidden) for sample, masked in pairs
    ]


def _content_hash(sample: Sample) -> int:
    """A number of 64 bits that follows from the values and positions of a sample."""
    content = sample.values.float().numpy().tobytes() + sample.positions.double().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def _mean_r2(
    truth: Float64[np.ndarray, "t c"], predictions: Float64[np.ndarray, "t c"], channel: Float64[np.ndarray, "t"]
) -> float:
    """The mean R² of the columns in each channel, without those that do not vary."""
    scores: list[float] = []
    for index in np.unique(channel):
        target, predicted = truth[channel == index], predictions[channel == index]
        varies = np.ptp(target, axis=0) > 0
        if varies.any():
            scores += r2_score(target[:, varies], predicted[:, varies], multioutput="raw_values").tolist()
    if not scores:
        raise ValueError("there is no score, because the hidden values of each channel are all alike; give more series")
    return float(np.mean(scores))


def _by_channel(
    values: Float64[np.ndarray, "t k"], n_times: int, is_known: Bool[np.ndarray, "c"]
) -> Float64[np.ndarray, "q *c"]:
    """Values at `_channel_positions`, with NaN for the other channels; of a single value there is no axis."""
    n_values = values.shape[1]
    table = np.full((n_times, len(is_known), n_values), np.nan)
    table[:, is_known] = values.reshape(n_times, is_known.sum(), n_values)
    return table[..., 0] if n_values == 1 else table


def _time_numbers(times: Any, schema: Schema) -> Shaped[np.ndarray, "q"]:
    """Times as numbers in the unit of the data."""
    return positions_as_numbers(
        to_numpy(times), schema.time_unit, schema.time_zone, "times", are_durations=schema.durations
    )


def _channel_positions(
    times: Shaped[np.ndarray, "q"], channels: Int64[np.ndarray, "known"]
) -> Float64[np.ndarray, "n 2"]:
    """The positions of these channels at each time, one time after the other."""
    return np.stack([np.repeat(times, len(channels)), np.tile(channels, len(times))], axis=1)
