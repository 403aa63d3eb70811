"""Estimator that forecasts: values after the last measurement of each series."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int64

from romae.data.columns import to_numpy
from romae.data.containers import is_table
from romae.data.dates import positions_as_numbers
from romae.data.fitting import Center, Values
from romae.data.periods import without_phase
from romae.data.ranges import gaps_and_spans
from romae.data.schema import SampleSet, Schema
from romae.data.skipping import OnError
from romae.data.sources import as_source, schema_of
from romae.data.static import n_measured
from romae.estimators.answers import curves_by_id, points_by_id
from romae.estimators.base import Clock, Start
from romae.estimators.folds import TableRows
from romae.estimators.inputs import Tokens, opened
from romae.estimators.starts import asked_channels, hidden_predictions
from romae.estimators.unsupervised import _Unsupervised
from romae.inference import baselines
from romae.inference import predictions as inference
from romae.inference.forecasts import Forecast, Seen, chosen_channels, forecast, known_channels, times_up_to
from romae.inference.zero import is_in_own_units
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Likelihood, Name
from romae.model.tasks import MaskedReconstruction, Task
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Future, Masking, Strategy, hide
from romae.tokens.sample import Sample
from romae.training import rules
from romae.training.config import TrainConfig
from romae.training.stages import Pretrain

SHARE_AHEAD = 0.25  # of the median span of a series: the horizon where none is given


class RoMAEForecaster(_Unsupervised):
    """Forecaster for irregularly sampled time series: values after the last measurement, learned from many series.

    Trained without labels, by hiding what lies after a cut that is drawn anew for each series and epoch. What is left
    None follows from the data.

    Parameters
    ----------
    horizon : float, str, duration or None, default None
        How far to forecast, in the unit of the times, or as a duration such as "24h" where times are dates. None takes
        a quarter of the median span of the series.
    known : tuple of str or int, default ()
        Channels that are known ahead, such as a calendar or a weather forecast: what is given of them after the last
        measurement of the others is used, and they are not forecast. Each number is then a token (tokens="scalars").
    size : str, Size, dict or None, default None
        The size of the encoder: a name in `SIZES`, a `Size`, or a dictionary of its width, heads and depth. None takes
        "mini" on a CPU; on a GPU "tiny-shallow" below 1000 series, else "tiny".
    pretrain_epochs : int or None, default None
        Epochs of training; 0 for none, with `pretrained`. None takes what fits into about five minutes on two CPU
        cores, or two on a GPU, at most 400 epochs or 4000 steps, and none with `pretrained`.
    batch_size : int or None, default None
        Series per step. None takes an eighth of them, a power of two from 8 to 128.
    lr : float or None, default None
        The learning rate. None takes 0.001, less in proportion for sizes wider than 180.
    model : ModelConfig or dict, optional
        The architecture, or some settings of it, such as `{"cls": True, "keep": 1.0}`; what it does not say is that of
        `ModelConfig.for_samples`.
    masking : Future, Mixed, another strategy or dict, optional
        What training hides, instead of what follows from `horizon` and `known`: `Future(share=(0.3, 0.95),
        horizon=horizon, known=known)`.
    likelihood : {"normal", "student", "mixture", "quantiles"}, likelihood, dict or None, default None
        The distribution that is learned of each value, for intervals and deviations, such as `Mixture(n=4)`; None
        learns the mean alone.
    weights : "channel" or None, default None
        Whether every channel counts alike in the loss, however often it is measured, and not every measurement.
    train : TrainConfig or dict, optional
        How it is trained, or some settings of it, such as `{"ema": 0.99, "weight_decay": 0.1}`.
    time_limit : float, optional
        Seconds that training may take: it gets fewer epochs, by a few steps that are timed first.
    scaling : {"standard", "robust", "asinh", "robust-asinh", "auto", "none"}, default "standard"
        The normalisation of values, by channel, as in `fit_scaling`.
    center : {"auto", "global", "sample", "instance"}, default "auto"
        Whether values are seen relative to the level of their own series and channel ("sample"), as in `fit_scaling`,
        and to their own spread ("instance"). "auto" takes "sample" where levels lie more than 3 times farther apart
        than values within a series.
    clock : {"sample", "shared"}, default "sample"
        Where time begins: at each series' own first time, so that data recorded later get the same answers, or at one
        moment for all, the first time in X, where it matters when something was measured.
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
        Decides the split, the first weights, the order and the cuts. Give a number for results that can be repeated.
    verbose : int, default 0
        1 shows progress.

    Attributes
    ----------
    task_ : MaskedReconstruction
        The trained task, for `romae.forecast`, `romae.interpolate` and the like.
    horizon_ : float
        How far `predict` forecasts where no times are given, in the unit of the data.
    histories_ : list of list of dict
        The losses over time.
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
    forecast : the same for a task and any samples.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> X = [(np.sort(random.uniform(0, 10, n)), random.normal(size=n)) for n in random.integers(8, 14, 12)]
    >>> forecaster = romae.RoMAEForecaster(
    ...     horizon=2.0, size={"width": 16, "heads": 2, "depth": 1}, pretrain_epochs=1, random_state=0
    ... )
    >>> ahead = forecaster.fit(X).predict(X)
    >>> times, values = ahead[0]
    >>> bool(times.min() > X[0][0].max()), values.shape == (len(times), 1)
    (True, True)
    >>> forecaster.predict(X, times=[10.5, 11.0]).shape
    (12, 2, 1)
    """

    _saved = (*_Unsupervised._saved, "horizon_")

    horizon_: float

    def __init__(
        self,
        horizon: Any = None,
        *,
        known: Sequence[str | int] = (),
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        model: ModelConfig | Mapping[str, Any] | None = None,
        masking: Strategy | Masking | Mapping[str, Any] | None = None,
        likelihood: Likelihood | Name | Mapping[str, Any] | None = None,
        weights: Literal["channel"] | None = None,
        train: TrainConfig | Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        scaling: Values = "standard",
        center: Center = "auto",
        clock: Clock = "sample",
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
            model=model,
            masking=masking,
            train=train,
            time_limit=time_limit,
            scaling=scaling,
            center=center,
            clock=clock,
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
        self.horizon = horizon
        self.known = known
        self.likelihood = likelihood
        self.weights = weights
        self.start = start

    def fit(self, X: Any, y: Any = None, static: Any = None) -> "RoMAEForecaster":
        """Learn to predict what lies after a cut from what lies before it.

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
        RoMAEForecaster
            The estimator itself.

        Raises
        ------
        ValueError
            If X and the settings do not fit together; the message names the series.
        TypeError
            If something is of another type.
        """
        before = self._begin()
        X = opened(X, self.columns)
        samples = self._read(X, before, static=static)
        self._length = self._horizon_of(samples)
        self._learn(samples, before)
        self.horizon_ = self._length
        self._rows_of_fit = TableRows.of(X, schema_of(samples))
        return self

    def predict(
        self,
        X: Any,
        times: Any = None,
        *,
        channels: Any = None,
        return_std: bool = False,
        on_error: OnError = "raise",
        static: Any = None,
    ) -> Any:
        """Forecast each series after its last measurement, in the units of the data.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. What is known ahead stands in the same
            series, at later times.
        times : array [q] or list of arrays [q], optional
            The times to forecast, the same for all series or an array for each. By default those that follow the last
            one of a series, at its own median step, up to `horizon_`.
        channels : sequence of str or int, optional
            Which channels to forecast, by name or by number from 0 on. By default all but those that are known ahead.
        return_std : bool, default False
            Whether to return standard deviations as well; needs a `likelihood`.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some.

        Returns
        -------
        list of (times, values), array [b, q, c], list of arrays [q, c] or pandas.DataFrame
            For a table a table with the index id and time, and a column for each channel. Else pairs as series are
            given, an array for times that all series share, or a list for times of each. With `return_std` a tuple of
            two of these.

        Raises
        ------
        ValueError
            If X or the times do not fit, a time lies before the last measurement, or deviations are asked of a model
            without a likelihood.
        NotFittedError
            If the estimator has not been fitted.
        """
        answers = self._ask(X, times, channels, on_error, static, returns="distribution" if return_std else "mean")
        if not return_std:
            return answers.told(lambda values: values)
        return answers.told(lambda values: values.mean()), answers.told(lambda values: values.std())

    def predict_interval(
        self,
        X: Any,
        times: Any = None,
        level: float = 0.9,
        *,
        channels: Any = None,
        on_error: OnError = "raise",
        static: Any = None,
    ) -> tuple[Any, Any]:
        """Central intervals of the forecasts, in the units of the data.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series, as in `predict`.
        times : array [q] or list of arrays [q], optional
            The times to forecast, as in `predict`.
        level : float, default 0.9
            The probability of the interval.
        channels : sequence of str or int, optional
            Which channels to forecast, by name or by number from 0 on.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some.

        Returns
        -------
        tuple of two
            The lower and the upper ends, each in the form that `predict` has.

        Raises
        ------
        ValueError
            If the forecaster was fitted without a likelihood, or the level lies outside 0 and 1.
        NotFittedError
            If the estimator has not been fitted.
        """
        answers = self._ask(X, times, channels, on_error, static, returns="distribution")
        return answers.told(lambda x: x.interval(level)[0]), answers.told(lambda x: x.interval(level)[1])

    def score(self, X: Any, y: Any = None, static: Any = None) -> float:
        """Skill of forecasts over the last `horizon_` of each series: 1 - MSE / MSE of the last value carried forward.

        What lies later than `horizon_` before the last measurement of a series is hidden and forecast from what lies
        before. The skill is computed for each channel, from the numbers of all series, and averaged over channels: 1 is
        perfect, 0 as good as the last value. Series with nothing before the cut are left out, and so are channels of
        which the last value is right everywhere.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing.
        y : ignored
            For cross-validation.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        ValueError
            If X does not fit, or no series can be cut.
        NotFittedError
            If the estimator has not been fitted.
        """
        samples = list(self._read_to_judge(X, static=static))
        cut = Future(after=-self.horizon_, since="last", known=self._known())
        masked = hide([sample for sample in samples if n_measured(sample) > 1] or samples, cut)
        if not masked:
            raise ValueError(
                f"no series has a measurement before the last {self.horizon_:.4g} of it, so that there is no score; "
                "give longer series, or a shorter horizon"
            )
        masked = list(without_phase(masked))  # what is hidden has no part in it, so the task adds it
        schema = schema_of(masked) or self.task_.schema or Schema()
        predicted = hidden_predictions(self.task_, masked)
        held = SampleSet(masked, schema)
        last = baselines.filled_along_time(baselines.last_value, held)
        truth = np.concatenate([baselines.truth(sample) for sample in held])
        channel = np.concatenate([baselines.channels_of(sample, schema)[sample.hidden.numpy()] for sample in held])
        return skill(truth, predicted, last, channel)

    # What differs from the others that learn without labels

    def _begin(self) -> Task | None:
        before = super()._begin()
        if self.weights not in (None, "channel"):
            raise ValueError(f"weights must be 'channel' or None, not {self.weights!r}")
        if self.masking is not None and len(self._known_names()) > 0:
            raise ValueError("known= belongs to the default masking; say it in yours: Future(share=0.5, known=…)")
        if before is not None and not isinstance(before, MaskedReconstruction) and not self.pretrain_epochs:
            raise ValueError(
                f"the pretrained model is a {type(before).__name__}, which has no decoder to forecast with; give it "
                "one with pretrain_epochs above 0"
            )
        if before is not None and not self.pretrain_epochs and self.likelihood is not None:
            raise ValueError(
                "a pretrained model that is not trained again keeps its own likelihood; leave likelihood out, or give "
                "pretrain_epochs above 0"
            )
        return before

    def _known_names(self) -> tuple[str | int, ...]:
        return (self.known,) if isinstance(self.known, str | int) else tuple(self.known)

    def _known(self) -> tuple[str | int, ...]:
        """The channels that the trained masking leaves visible."""
        masking = self.task_.masking if isinstance(self.task_, MaskedReconstruction) else None
        return masking.known if isinstance(masking, Future) else self._known_names()

    def _masking(self) -> Strategy | Masking:
        if self.masking is not None:
            return super()._masking()
        length = getattr(self, "_length", None)
        horizon = self.horizon if length is None else length
        return rules.looking_ahead(horizon, self._known_names())

    def _horizon_of(self, samples: Sequence[Sample]) -> float:
        """The horizon in the unit of the data."""
        if self.horizon is not None:
            length = (schema_of(samples) or Schema()).duration(self.horizon, "horizon")
            if not length > 0:
                raise ValueError(f"horizon is how far to forecast, above 0, not {self.horizon!r}")
            return length
        times = np.concatenate([sample.positions[:, 0].double().numpy() for sample in samples])
        number = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
        _, spans = gaps_and_spans(times, number, len(samples))
        if not (spans > 0).any():
            raise ValueError("every series has a single time, so that nothing lies ahead of anything; give longer ones")
        return SHARE_AHEAD * float(np.median(spans[spans > 0]))

    def _pretraining(self, *args: Any, **kwargs: Any) -> Pretrain | None:
        stage = super()._pretraining(*args, **kwargs)
        return stage if stage is None else replace(stage, loss_weights=self.weights)

    def _ask(
        self, X: Any, times: Any, channels: Any, on_error: OnError, static: Any, *, returns: inference.Returns
    ) -> "_Answers":
        X = opened(X, self.columns)
        times = times.to_numpy() if hasattr(times, "iloc") else times  # a pandas column is indexed by its own labels
        is_shared = times is None or (len(times) > 0 and np.ndim(times[0]) == 0)
        samples, places = self._read_to_ask(X, on_error, static, is_shared=is_shared)
        task, schema = self.task_, schema_of(samples) or self.task_.schema or Schema()
        if times is None:
            seen = Seen.of(task, as_source(samples, with_targets=False))
            asked = times_up_to(seen, seen.last + self.horizon_)
        else:
            chosen = [times] * len(samples) if is_shared else times if places is None else [times[i] for i in places]
            asked = [_numbers(x, schema) for x in chosen]
        if is_in_own_units(task):
            numbers = asked_channels(task, samples, channels, known_channels(task))
        else:
            numbers = chosen_channels(task, channels)
        forecasts = forecast(task, samples, positions=asked, channels=numbers, returns=returns)
        form = "table" if is_table(X) else "pairs" if times is None else "array" if is_shared else "list"
        return _Answers(samples, schema, forecasts, numbers, form)


def _numbers(times: Any, schema: Schema) -> Float64[np.ndarray, "q *d"]:
    """Times as numbers in the unit of the data."""
    x = positions_as_numbers(
        to_numpy(times), schema.time_unit, schema.time_zone, "times", are_durations=schema.durations
    )
    return x.astype(np.float64)


class _Answers:
    """Forecasts on their way to the form that people get them in."""

    def __init__(
        self, samples: Sequence[Sample], schema: Schema, forecasts: list[Forecast], channels: list[int], form: str
    ) -> None:
        self.samples, self.schema, self.forecasts, self.channels, self.form = samples, schema, forecasts, channels, form

    def told(self, number: Any) -> Any:
        """One number of each forecast value, such as its mean."""
        times = [one.times for one in self.forecasts]
        values = [np.asarray(number(one.values)) for one in self.forecasts]
        if self.form == "pairs":
            return list(zip(times, values, strict=True))
        if self.form == "array":
            return np.stack(values)
        if self.form == "list":
            return values
        if self.schema.channel is not None:
            return curves_by_id(self.samples, self.schema, times, values, self.channels)
        columns = [self.schema.values[i] for i in self.channels]
        return points_by_id(self.samples, self.schema, times, values, columns)


def skill(
    truth: Float64[np.ndarray, "t c"],
    predicted: Float64[np.ndarray, "t c"],
    reference: Float64[np.ndarray, "t c"],
    channel: Int64[np.ndarray, "t"],
) -> float:
    """1 - MSE / MSE of a reference, for each column in each channel, and their mean."""
    skills = []
    for index in np.unique(channel):
        here = channel == index
        error = ((predicted[here] - truth[here]) ** 2).mean(0)
        other = ((reference[here] - truth[here]) ** 2).mean(0)
        skills += (1 - error[other > 0] / other[other > 0]).tolist()
    if not skills:
        raise ValueError("there is no score, because the last value is right everywhere; give series that vary")
    return float(np.mean(skills))
