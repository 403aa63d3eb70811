"""Estimators that learn from labels: pre-training on all series, then classification or regression."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from romae.data.columns import require_variation_kept
from romae.data.containers import is_table
from romae.data.fitting import Center, Values
from romae.data.grid import longest_duration, on_grid
from romae.data.labels import strata
from romae.data.schema import SampleSet
from romae.data.skipping import OnError
from romae.data.sources import lengths_of, schema_of
from romae.data.summary import PER_KIND, PER_VALUE, summary_features
from romae.data.uncertainty import require_level
from romae.estimators.answers import by_id
from romae.estimators.base import MASK_RATIO, Clock, Estimator, Part
from romae.estimators.conformal import HeldOutErrors
from romae.estimators.folds import TableRows
from romae.estimators.inputs import Tokens, opened
from romae.estimators.labels import classes_or_labels, labels_of
from romae.estimators.stacking import (
    LONGEST,
    SMALLEST,
    Fold,
    LabelStacks,
    Stack,
    Views,
    fit_label_stacks,
    fit_stack,
    fitting_seconds,
)
from romae.estimators.weights import ClassWeight, Weights, class_factors, normalised, sample_weights, weights_of
from romae.inference import predictions as inference
from romae.inference.distributions import Distribution
from romae.model.config import ModelConfig, Size
from romae.model.likelihoods import Likelihood, Name
from romae.model.tasks import Classification, MultiLabel, Regression, Task
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Masking, Strategy
from romae.tokens.sample import Sample
from romae.training.config import TrainConfig
from romae.training.scoring import OF_CLASSES, OF_NUMBERS, require_two_classes
from romae.training.stages import Classify, ClassifyLabels, Regress

# Against overfitting to few samples: dropped tokens and dropout. No label smoothing: what it does to probabilities can
# be undone, but their log loss is no better for it, and on few samples of many classes worse.
DROP_TOKENS, DROPOUT = 0.5, 0.1
# Of a grid for convolutions: a kernel spans nine points, and beyond some hundreds they tell no more.
FEWEST_POINTS, MOST_POINTS = 16, 256


class _Supervised(Estimator):
    """Settings of the two estimators that learn from labels; docs/estimators.md explains them."""

    epochs: int | None
    frozen: bool

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        epochs: int | None = None,
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
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        frozen: bool = False,
        features: Literal["auto", "summary"] | None = "auto",
        n_models: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        scoring: str | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.size = size
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
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
        self.tokens = tokens
        self.columns = columns
        self.ladders = ladders
        self.phase = phase
        self.pretrained = pretrained
        self.frozen = frozen
        self.features = features
        self.n_models = n_models
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.scoring = scoring
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _stack(
        self, tasks: Sequence[Task], samples: Sequence[Sample], parts: Sequence[Part], seed: int
    ) -> Stack | LabelStacks | None:
        """Simpler models, weighed against the networks on what each of these was not trained on."""
        if self.features is None or not _is_series(samples):
            return None
        first = tasks[0]
        n_classes = first.n_classes if isinstance(first, Classification) else None
        folds = [
            Fold(part.training, part.held_out, _said([task], [samples[i] for i in part.held_out.tolist()]))
            for task, part in zip(tasks, parts, strict=True)
            if len(part.held_out) > 0
        ]
        labels = np.stack([np.asarray(sample.target) for sample in samples])
        times, weights = _fitting_grid(samples), sample_weights(samples)
        views = _views(first, samples, times)
        if isinstance(first, MultiLabel):
            return replace(fit_label_stacks(views, labels, folds, seed=seed, sample_weights=weights), times=times)
        stack = fit_stack(views, labels, folds, n_classes=n_classes, seed=seed, sample_weights=weights)
        return replace(stack, times=times)

    def _stacking_seconds(self, samples: Sequence[Sample], parts: Sequence[Part]) -> float:
        if self.features is None or not _is_series(samples):
            return 0.0
        schema, n_values = schema_of(samples), samples[0].values.shape[1]
        n_kinds = 1 if schema is None else schema.n_channels or 1
        targets = np.stack([np.asarray(sample.target) for sample in samples])
        n_classes = int(targets.max()) + 1 if targets.ndim == 1 else None
        n_labels = targets.shape[1] if targets.ndim == 2 and targets.dtype.kind == "i" else 1
        times = _fitting_grid(samples)
        of_one = fitting_seconds(
            n_samples=len(samples),
            n_outputs=1 if n_labels > 1 or n_classes == 2 else n_classes or targets[0].size,
            n_features=n_kinds * (len(PER_VALUE) * n_values + len(PER_KIND)),
            n_points=0 if times is None else len(times),
        )
        n_fits = 1 + sum(len(part.held_out) > 0 for part in parts)
        return n_fits * sum(n_labels * seconds for seconds in of_one.values() if n_labels * seconds <= LONGEST)

    def _require_series(self, samples: Sequence[Sample]) -> None:
        """Refuse summary features of what is no series, before anything is trained."""
        if self.features == "summary" and not _is_series(samples):
            raise ValueError(
                "summary features are those of series, whose positions are a time and perhaps a channel, and these "
                f"samples have {samples[0].positions.shape[1]} position axes; leave features out"
            )

    def _answers(self, samples: Sequence[Sample]) -> Float64[np.ndarray, "b o"]:
        """Probabilities or numbers: those of the networks, or of all models together."""
        said = _said(self.tasks_, samples)
        if self.stack_ is not None:
            return self.stack_.answers(said, _views(self.task_, samples, self.stack_.times))
        return np.exp(said) if isinstance(self.task_, Classification) else said

    def _labels(self, X: Any, samples: Sequence[Sample], y: Any) -> Shaped[np.ndarray, "b *k"]:
        return labels_of(X, samples, y, estimator_name=type(self).__name__)

    @property
    def _label_name(self) -> str | None:
        """The column of labels in the table that was fitted, if it was named."""
        return None if self.task_.schema is None else self.task_.schema.label

    def _read_to_score(
        self, X: Any, y: Any, sample_weight: Any, static: Any
    ) -> tuple[Sequence[Sample], Shaped[np.ndarray, "b *k"], Weights | None]:
        """The samples to score on, their labels, and their weights where such are given."""
        X = opened(X, self.columns)
        samples = self._read_to_judge(X, with_labels=y is None, static=static)
        weights = None if sample_weight is None else weights_of(X, samples, sample_weight)
        return samples, self._labels(X, samples, y), weights


class RoMAEClassifier(ClassifierMixin, _Supervised):
    """Classifier for irregularly sampled time series, with the interface of scikit-learn.

    Masked pre-training on all series, then fine-tuning on those with labels: one class per series, or several labels of
    which any number may be true (multi-label classification). Series may have different lengths, uneven times and
    missing values. What is left None follows from the data.

    Parameters
    ----------
    size : str, Size, dict or None, default None
        The size of the encoder: a name in `SIZES`, a `Size`, or a dictionary of its width, heads and depth. None takes
        "mini" on a CPU; on a GPU "tiny-shallow" below 1000 series, else "tiny".
    pretrain_epochs : int or None, default None
        Epochs of masked pre-training; 0 for none. None takes three tenths of the time that a fit may take, at most 60
        epochs, but none where that is less than 10, nor with `pretrained`.
    epochs : int or None, default None
        Epochs of fine-tuning. None takes what fits into about five minutes on two CPU cores, or two on a GPU, at most
        60 epochs or 3000 steps.
    batch_size : int or None, default None
        Series per step. None takes an eighth of them, a power of two from 8 to 128.
    lr : float or None, default None
        The learning rate of all stages. None takes 0.001 for pre-training and fine-tuning, 0.01 for a head on a frozen
        encoder, less in proportion for sizes wider than 180, 90 and 180.
    mask_ratio : float, default 0.5
        The share of each series to hide in pre-training.
    model : ModelConfig or dict, optional
        The architecture, or some settings of it, such as `{"cls": True, "keep": 1.0}`; what it does not say is that of
        `ModelConfig.for_samples`.
    masking : UniformTokens, Rows, Channels, Spans, Future, Masking or dict, optional
        What pre-training hides, instead of the share `mask_ratio`; `{"kind": "spans", "ratio": 0.5}` as in a file.
    train : TrainConfig or dict, optional
        How all stages are trained, or some settings of it, such as `{"ema": 0.99, "weight_decay": 0.1}`.
    time_limit : float, optional
        Seconds that training may take: it gets fewer epochs, by a few steps that are timed first.
    scaling : {"auto", "standard", "robust", "asinh", "robust-asinh", "none"}, default "auto"
        The normalisation of values, by channel, as in `fit_scaling`. "auto" is "robust-asinh", which far values do not
        upset, but "standard" for series that are centred by themselves.
    center : {"auto", "global", "sample", "instance"}, default "auto"
        "sample" enlarges deviations from the level of each series and channel, as in `fit_scaling`; of the level, which
        may matter to labels, a quarter stays. "auto" does so where levels lie more than 3 times farther apart than
        values within a series, as of stars. "instance" divides deviations by their own spread as well, of which the
        fourth root stays.
    clock : {"sample", "shared"}, default "sample"
        Where time begins: at each series' own first time, so that data recorded later get the same answers, or at one
        moment for all, the first time in X, where it matters when something was measured. Predictions at times that
        training did not have then come with a warning.
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
    frozen : bool, default False
        Whether the encoder keeps its weights after pre-training, and only the head is trained (linear probing).
    features : "auto", "summary" or None, default "auto"
        "summary" sets simpler models beside the network and answers with all of them: boosted trees and a linear model
        on summary features (`romae.summary_features`), and convolutions of series that are dense enough for a grid. How
        much each counts follows from the held-out series. "auto" does so for series, None never.
    n_models : int or None, default None
        How many networks answer together; each holds out another part of the series. None takes five of fewer than 1000
        series where there is time for them, else one.
    early_stopping : bool, default True
        Whether to keep the weights that do best on a validation split, and to stop when they no longer improve.
    validation_fraction : float or None, default None
        The share of series for that split. None takes a fifth of up to 500, a tenth of 1000 and more, none of fewer
        than 20.
    scoring : str or None, default None
        The score that decides which weights do best on that split, by its name in scikit-learn: "roc_auc" (of two
        classes), "roc_auc_ovr" (the mean over each class against the others), "average_precision", "f1_macro",
        "accuracy" or "neg_log_loss". None takes the loss, which is the log loss. Several labels have the loss alone.
    device : str, default "auto"
        "auto", "cpu", "cuda", or one GPU of several, such as "cuda:1".
    random_state : int, RandomState or None, default None
        Decides the split, the first weights, the order and the masks. Give a number for results that can be repeated.
    verbose : int, default 0
        1 shows progress.
    class_weight : "balanced", dict or None, default None
        The weight of each class, which multiplies those of its series; one that a dictionary does not name has 1.
        "balanced" gives all classes the same weight in all. Probabilities are then those of series with these weights:
        under "balanced" a rare class is as probable beforehand as any other. Several labels have no such weights.

    Attributes
    ----------
    classes_ : array [k]
        The classes, sorted; of several labels their names, or else their numbers, in the order of the columns of y.
    is_multilabel_ : bool
        Whether several labels were fitted.
    task_ : Classification or MultiLabel
        The trained task, for `romae.predict`, `romae.embed` and the like; the first of `tasks_`.
    tasks_ : list of Classification or MultiLabel
        The networks that answer together.
    histories_ : list of list of dict
        The losses of each stage.
    n_features_in_ : int
        The number of channels.
    skipped_ : list of (id, reason)
        What the latest answers with on_error="skip" left out.

    See Also
    --------
    RoMAERegressor : predicts numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> X = [(np.sort(random.uniform(0, 10, n)), random.normal(size=n)) for n in random.integers(5, 12, 12)]
    >>> y = ["up", "down"] * 6
    >>> classifier = romae.RoMAEClassifier(
    ...     size={"width": 16, "heads": 2, "depth": 1}, pretrain_epochs=1, epochs=1, random_state=0
    ... )
    >>> classifier.fit(X, y).predict_proba(X).shape
    (12, 2)
    >>> classifier.classes_.tolist()
    ['down', 'up']

    Several labels, as a set of names for each series, or an array of 0 and 1:

    >>> several = classifier.fit(X, [{"pulsating"}, {"pulsating", "binary"}, set()] * 4)
    >>> several.classes_.tolist(), several.predict(X).shape
    (['binary', 'pulsating'], (12, 2))
    """

    _saved: ClassVar[tuple[str, ...]] = (*Estimator._saved, "classes_", "is_multilabel_")
    _scores: ClassVar[tuple[str, ...]] = OF_CLASSES
    classes_: Shaped[np.ndarray, "k"]
    is_multilabel_: bool = False

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        epochs: int | None = None,
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
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        frozen: bool = False,
        features: Literal["auto", "summary"] | None = "auto",
        n_models: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        scoring: str | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        class_weight: ClassWeight | None = None,
    ) -> None:
        super().__init__(
            size=size,
            pretrain_epochs=pretrain_epochs,
            epochs=epochs,
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
            tokens=tokens,
            columns=columns,
            ladders=ladders,
            phase=phase,
            pretrained=pretrained,
            frozen=frozen,
            features=features,
            n_models=n_models,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            scoring=scoring,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _labels(self, X: Any, samples: Sequence[Sample], y: Any) -> Shaped[np.ndarray, "b *k"]:
        known = self.classes_.tolist() if self.is_multilabel_ else None
        return classes_or_labels(X, samples, y, estimator_name=type(self).__name__, known=known)[0]

    def fit(
        self, X: Any, y: Any = None, unlabelled: Any = None, static: Any = None, sample_weight: Any = None
    ) -> "RoMAEClassifier":
        """Pre-train on the series, then fine-tune on their classes.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : sequence, optional
            One class per series; for a table a pandas column indexed by id, or a dictionary. Several labels are an
            array [b, k] of 0 and 1, also sparse or as a pandas table whose columns name them, or a set of names for
            each series. Without y, labels are those that samples or a table bring along.
        unlabelled : as X, optional
            Further series without labels to pre-train on, read under the names of X.
        static : table, dict or list of dict, optional
            Static facts, such as age and sex, as in `from_table`: for a table names of its columns or another table
            with a row for each id; for series a row for each, in their order.
        sample_weight : array [b], optional
            A weight for each series, by which it counts in everything that labels teach; 0 leaves a series out. For a
            table a pandas column indexed by id, or a dictionary. Without it, weights are those that samples bring
            along. A factor of all weights changes nothing.

        Returns
        -------
        RoMAEClassifier
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
        samples = self._read(X, before, with_labels=y is None, static=static)
        self._require_series(samples)
        read, names = classes_or_labels(X, samples, y, estimator_name=type(self).__name__)
        y = column_or_1d(read, warn=True) if names is None else read
        check_classification_targets(y)
        samples, y, weights = _that_count(samples, y, weights_of(X, samples, sample_weight))
        if names is not None:
            self._fit_labels(samples, y, names, weights, before, unlabelled)
            self._rows_of_fit = TableRows.of(X, schema_of(samples))
            return self
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            weighing = "" if sample_weight is None else " with a weight above 0"
            raise ValueError(
                f"there is only one class in y{weighing}, {classes.tolist()[0]!r}; a classifier needs at least two"
            )
        require_two_classes(self.scoring, len(classes))
        if (factors := class_factors(self.class_weight, classes, index, weights)) is not None:
            weights = factors[index] if weights is None else weights * factors[index]
        labelled = _with_targets(samples, index, tuple(map(_plain, classes.tolist())), normalised(weights))
        last = Classify(
            n_classes=len(classes),
            frozen=self.frozen,
            drop_tokens=DROP_TOKENS,
            dropout=DROPOUT,
        )
        self._train(
            labelled, before, unlabelled=self._read_unlabelled(unlabelled, samples, before), groups=index, last=last
        )
        self.classes_, self.is_multilabel_ = classes, False
        self._rows_of_fit = TableRows.of(X, schema_of(samples))
        return self

    def _fit_labels(
        self,
        samples: Sequence[Sample],
        truth: Int64[np.ndarray, "b k"],
        names: Sequence[Any],
        weights: Weights | None,
        before: Task | None,
        unlabelled: Any,
    ) -> None:
        """Learn several labels; parts that are held out have the same share of the rarest labels of their series."""
        for setting, reason in (("class_weight", "weighs classes"), ("scoring", "scores classes")):
            if getattr(self, setting) is not None:
                raise ValueError(
                    f"{setting}={getattr(self, setting)!r} {reason}, of which each series has one, and y has several "
                    f"labels; leave {setting} out"
                )
        labelled = _with_targets(samples, truth, None, normalised(weights), tuple(map(_plain, names)))
        last = ClassifyLabels(n_labels=len(names), frozen=self.frozen, drop_tokens=DROP_TOKENS, dropout=DROPOUT)
        more = self._read_unlabelled(unlabelled, samples, before)
        self._train(labelled, before, unlabelled=more, groups=strata(truth), last=last)
        self.classes_, self.is_multilabel_ = np.array(names), True

    def predict_proba(self, X: Any, *, on_error: OnError = "raise", static: Any = None) -> Any:
        """The probability of each class or label, calibrated on the validation split.

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
        Float64 array [b, k] or pandas.DataFrame
            In the order of `classes_`; for a table one row for each id, which is the index, and a column for each
            class. Rows sum to 1, but of several labels each has a probability of its own. The validation split, where
            there is one, sets a temperature and a bias for each class or label; `task_.calibration = None` switches it
            off.

        Raises
        ------
        ValueError
            If X cannot be read, or does not fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        X = opened(X, self.columns)
        samples = self._read_to_judge(X, on_error=on_error, static=static)
        return by_id(X, samples, self._answers(samples), columns=self.classes_)

    def predict(self, X: Any, *, on_error: OnError = "raise", static: Any = None) -> Any:
        """The most probable class of each series, or several labels.

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
        array [b] or pandas.Series
            Labels as they were in y; for a table indexed by its ids. Of several labels an array [b, k], for a table a
            pandas table, with 1 where a label has a probability of at least one half; for other aims than few errors,
            such as F1, choose thresholds of your own for `predict_proba`.

        Raises
        ------
        ValueError
            If X cannot be read, or does not fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        probabilities = self.predict_proba(X, on_error=on_error, static=static)
        if self.is_multilabel_:
            truth = (np.asarray(probabilities) >= 0.5).astype(np.int64)
            return truth if not hasattr(probabilities, "iloc") else (probabilities >= 0.5).astype(np.int64)
        labels = self.classes_[np.asarray(probabilities).argmax(1)]
        if not hasattr(probabilities, "iloc"):
            return labels
        import pandas as pd

        return pd.Series(labels, index=probabilities.index, name=self._label_name)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, static: Any = None) -> float:
        """Accuracy: the share of series whose class, or all of whose labels, are predicted correctly.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : sequence, optional
            The true classes or labels, as in `fit`; by default those that samples or a table bring along.
        sample_weight : array [b], optional
            A weight for each series; for a table a pandas column indexed by id, or a dictionary.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some. Those of a table are by default in the columns that they were in. A
            category that fit did not have is told in a warning and left out.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        ValueError
            If X cannot be read, or does not fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        samples, labels, weights = self._read_to_score(X, y, sample_weight, static)
        return float(super().score(samples, labels, weights))


class RoMAERegressor(RegressorMixin, _Supervised):
    """Regressor for irregularly sampled time series, with the interface of scikit-learn.

    Masked pre-training on all series, then fine-tuning on those with targets: one or several numbers per series. What
    is left None follows from the data.

    Parameters
    ----------
    size : str, Size, dict or None, default None
        The size of the encoder: a name in `SIZES`, a `Size`, or a dictionary of its width, heads and depth. None takes
        "mini" on a CPU; on a GPU "tiny-shallow" below 1000 series, else "tiny".
    pretrain_epochs : int or None, default None
        Epochs of masked pre-training; 0 for none. None takes three tenths of the time that a fit may take, at most 60
        epochs, but none where that is less than 10, nor with `pretrained`.
    epochs : int or None, default None
        Epochs of fine-tuning. None takes what fits into about five minutes on two CPU cores, or two on a GPU, at most
        60 epochs or 3000 steps.
    batch_size : int or None, default None
        Series per step. None takes an eighth of them, a power of two from 8 to 128.
    lr : float or None, default None
        The learning rate of all stages. None takes 0.001 for pre-training and fine-tuning, 0.01 for a head on a frozen
        encoder, less in proportion for sizes wider than 180, 90 and 180.
    mask_ratio : float, default 0.5
        The share of each series to hide in pre-training.
    model : ModelConfig or dict, optional
        The architecture, or some settings of it, such as `{"cls": True, "keep": 1.0}`; what it does not say is that of
        `ModelConfig.for_samples`.
    masking : UniformTokens, Rows, Channels, Spans, Future, Masking or dict, optional
        What pre-training hides, instead of the share `mask_ratio`; `{"kind": "spans", "ratio": 0.5}` as in a file.
    train : TrainConfig or dict, optional
        How all stages are trained, or some settings of it, such as `{"ema": 0.99, "weight_decay": 0.1}`.
    time_limit : float, optional
        Seconds that training may take: it gets fewer epochs, by a few steps that are timed first.
    scaling : {"auto", "standard", "robust", "asinh", "robust-asinh", "none"}, default "auto"
        The normalisation of values, by channel, as in `fit_scaling`. "auto" is "robust-asinh", which far values do not
        upset, but "standard" for series that are centred by themselves.
    center : {"auto", "global", "sample", "instance"}, default "auto"
        "sample" enlarges deviations from the level of each series and channel, as in `fit_scaling`; of the level, which
        may matter to labels, a quarter stays. "auto" does so where levels lie more than 3 times farther apart than
        values within a series, as of stars. "instance" divides deviations by their own spread as well, of which the
        fourth root stays.
    clock : {"sample", "shared"}, default "sample"
        Where time begins: at each series' own first time, so that data recorded later get the same answers, or at one
        moment for all, the first time in X, where it matters when something was measured. Predictions at times that
        training did not have then come with a warning.
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
    frozen : bool, default False
        Whether the encoder keeps its weights after pre-training, and only the head is trained (linear probing).
    features : "auto", "summary" or None, default "auto"
        "summary" sets simpler models beside the network and answers with all of them: boosted trees and a linear model
        on summary features (`romae.summary_features`), and convolutions of series that are dense enough for a grid. How
        much each counts follows from the held-out series. "auto" does so for series, None never.
    n_models : int or None, default None
        How many networks answer together; each holds out another part of the series. None takes five of fewer than 1000
        series where there is time for them, else one.
    early_stopping : bool, default True
        Whether to keep the weights that do best on a validation split, and to stop when they no longer improve.
    validation_fraction : float or None, default None
        The share of series for that split. None takes a fifth of up to 500, a tenth of 1000 and more, none of fewer
        than 20.
    scoring : str or None, default None
        The score that decides which weights do best on that split, by its name in scikit-learn: "r2",
        "neg_mean_squared_error" or "neg_mean_absolute_error". None takes the loss, which is the squared error of
        standardised targets, or that of the likelihood.
    device : str, default "auto"
        "auto", "cpu", "cuda", or one GPU of several, such as "cuda:1".
    random_state : int, RandomState or None, default None
        Decides the split, the first weights, the order and the masks. Give a number for results that can be repeated.
    verbose : int, default 0
        1 shows progress.
    likelihood : {"normal", "student", "mixture", "quantiles"}, likelihood, dict or None, default None
        The distribution that the networks learn of each target, such as `Mixture(n=4)`, or `{"kind": "mixture", "n":
        4}` as in a file; intervals are then wider for series of which less is known. None learns the mean alone, and
        intervals are as wide for all series.

    Attributes
    ----------
    n_outputs_ : int
        The number of targets.
    task_ : Regression
        The trained task, for `romae.predict`, `romae.embed` and the like; the first of `tasks_`.
    tasks_ : list of Regression
        The networks that answer together.
    histories_ : list of list of dict
        The losses of each stage.
    n_features_in_ : int
        The number of channels.
    skipped_ : list of (id, reason)
        What the latest answers with on_error="skip" left out.

    See Also
    --------
    RoMAEClassifier : predicts classes.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> random = np.random.default_rng(0)
    >>> X = [(np.sort(random.uniform(0, 10, n)), random.normal(size=n)) for n in random.integers(5, 12, 12)]
    >>> y = [values.mean() for times, values in X]
    >>> regressor = romae.RoMAERegressor(
    ...     size={"width": 16, "heads": 2, "depth": 1}, pretrain_epochs=1, epochs=1, random_state=0
    ... )
    >>> regressor.fit(X, y).predict(X).shape
    (12,)
    """

    _saved: ClassVar[tuple[str, ...]] = (
        *Estimator._saved,
        "n_outputs_",
        "is_flat_",
        "held_out_errors_",
        "held_out_weights_",
    )
    _scores: ClassVar[tuple[str, ...]] = OF_NUMBERS
    n_outputs_: int
    is_flat_: bool
    held_out_errors_: Float64[np.ndarray, "n"] | None = None  # row by row, for a file holds no tables
    held_out_weights_: Float64[np.ndarray, "v"] | None = None

    def __init__(
        self,
        *,
        size: str | Size | Mapping[str, int] | None = None,
        pretrain_epochs: int | None = None,
        epochs: int | None = None,
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
        tokens: Tokens | None = None,
        columns: Any = None,
        ladders: Sequence[Ladder] | None = None,
        phase: bool | Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        frozen: bool = False,
        features: Literal["auto", "summary"] | None = "auto",
        n_models: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float | None = None,
        scoring: str | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        likelihood: Likelihood | Name | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            size=size,
            pretrain_epochs=pretrain_epochs,
            epochs=epochs,
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
            tokens=tokens,
            columns=columns,
            ladders=ladders,
            phase=phase,
            pretrained=pretrained,
            frozen=frozen,
            features=features,
            n_models=n_models,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            scoring=scoring,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _labels(self, X: Any, samples: Sequence[Sample], y: Any) -> Shaped[np.ndarray, "b *k"]:
        labels = super()._labels(X, samples, y)
        _require_numbers(labels)
        return labels

    def fit(
        self, X: Any, y: Any = None, unlabelled: Any = None, static: Any = None, sample_weight: Any = None
    ) -> "RoMAERegressor":
        """Pre-train on the series, then fine-tune on their targets.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : sequence, optional
            One number, or row of numbers, per series; for a table a pandas column indexed by id, or a dictionary.
            Without it, labels are those that samples or a table bring along.
        unlabelled : as X, optional
            Further series without labels to pre-train on, read under the names of X.
        static : table, dict or list of dict, optional
            Static facts, such as age and sex, as in `from_table`: for a table names of its columns or another table
            with a row for each id; for series a row for each, in their order.
        sample_weight : array [b], optional
            A weight for each series, by which it counts in everything that labels teach; 0 leaves a series out. For a
            table a pandas column indexed by id, or a dictionary. Without it, weights are those that samples bring
            along. A factor of all weights changes nothing.

        Returns
        -------
        RoMAERegressor
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
        samples = self._read(X, before, with_labels=y is None, static=static)
        self._require_series(samples)
        y = check_array(self._labels(X, samples, y), ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim > 2:
            raise ValueError(f"y must be [b] or [b, k], got shape {list(y.shape)}")
        require_variation_kept(
            y.reshape(len(y), -1), ["y"] if y.ndim == 1 else [f"y[:, {i}]" for i in range(y.shape[1])]
        )
        samples, y, weights = _that_count(samples, y, weights_of(X, samples, sample_weight))
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        labelled = _with_targets(samples, y.reshape(len(y), -1), None, normalised(weights))
        last = Regress(
            n_targets=n_outputs,
            frozen=self.frozen,
            drop_tokens=DROP_TOKENS,
            dropout=DROPOUT,
            likelihood=self._likelihood(),
        )
        self._train(labelled, before, unlabelled=self._read_unlabelled(unlabelled, samples, before), last=last)
        self.is_flat_, self.n_outputs_ = y.ndim == 1, n_outputs
        self._rows_of_fit = TableRows.of(X, schema_of(samples))
        return self

    def predict(self, X: Any, *, return_std: bool = False, on_error: OnError = "raise", static: Any = None) -> Any:
        """The numbers of each series.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        return_std : bool, default False
            Whether to return the standard deviation of the error as well. It is that of the answer of all models
            together for series that were held out from training, larger and smaller as the networks' own where they
            have a likelihood.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some. Those of a table are by default in the columns that they were in. A
            category that fit did not have is told in a warning and left out.

        Returns
        -------
        Float64 array [b] or [b, k], pandas.Series or pandas.DataFrame, or tuple of two arrays
            Shaped as y was, in its units; for a table indexed by its ids. With `return_std` numbers and deviations,
            alike; for a table they are columns of one table, `label` and `label_std`.

        Raises
        ------
        ValueError
            If X cannot be read, or does not fit the data that the estimator was fitted on, or if deviations are asked
            of an estimator that held out no series.
        NotFittedError
            If the estimator has not been fitted.
        """
        X = opened(X, self.columns)
        samples = self._read_to_judge(X, on_error=on_error, static=static)
        errors = self._held_out_errors() if return_std else None
        numbers = self._answers(samples).reshape(len(samples), -1)
        if errors is not None:
            return self._side_by_side(X, samples, {"": numbers, "_std": errors.deviation(self._spread_of(samples))})
        return by_id(X, samples, numbers[:, 0] if self.is_flat_ else numbers, name=self._label_name)

    def predict_interval(self, X: Any, level: float = 0.9, *, on_error: OnError = "raise", static: Any = None) -> Any:
        """The intervals in which the numbers of new series lie with some probability.

        Around the answer of all models together, by split conformal: as wide as its errors ask for on the series that
        were held out from training. New series of the same kind are covered with at least this probability.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        level : float, default 0.9
            The probability, between 0 and 1.
        on_error : {"raise", "skip"}, default "raise"
            What to do with series that cannot be read or that the model refuses: an error, or answers for the others
            alone, with one warning and the list `skipped_`.
        static : table, dict or list of dict, optional
            Static facts of X, where fit had some.

        Returns
        -------
        tuple of two Float64 arrays [b] or [b, k], or pandas.DataFrame
            Lower and upper ends, shaped as y was, in its units; for a table they are columns of one table,
            `label_lower` and `label_upper`, indexed by its ids. Of several targets each is covered by itself.

        Raises
        ------
        ValueError
            If the level is no probability, no series were held out or too few of them for this level, or X does not
            fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        level = require_level(level)
        X = opened(X, self.columns)
        samples = self._read_to_judge(X, on_error=on_error, static=static)
        half_width = self._held_out_errors().half_width(self._spread_of(samples), level)
        numbers = self._answers(samples).reshape(len(samples), -1)
        return self._side_by_side(X, samples, {"_lower": numbers - half_width, "_upper": numbers + half_width})

    def _side_by_side(self, X: Any, samples: Sequence[Sample], parts: Mapping[str, Float64[np.ndarray, "b o"]]) -> Any:
        """Arrays as y was shaped or, for a table, columns of one table with an ending each."""
        if not is_table(X):
            return tuple(part[:, 0] if self.is_flat_ else part for part in parts.values())
        name = "value" if self._label_name is None else self._label_name
        names = [name] if self.n_outputs_ == 1 else [f"{name}_{i}" for i in range(self.n_outputs_)]
        columns = [f"{one}{ending}" for one in names for ending in parts]
        rows = np.stack([*parts.values()], axis=-1).reshape(len(samples), -1)
        return by_id(X, samples, rows, columns=columns)

    def _learn_errors(
        self, tasks: Sequence[Task], samples: Sequence[Sample], parts: Sequence[Part], stack: Stack | None
    ) -> None:
        self.held_out_errors_ = self.held_out_weights_ = None
        judged = [(task, part.held_out) for task, part in zip(tasks, parts, strict=True) if len(part.held_out) > 0]
        if not judged:
            return
        held_out = [[samples[i] for i in indices.tolist()] for _, indices in judged]
        indices = np.concatenate([indices for _, indices in judged])
        spread = np.concatenate([_spread([task], some) for (task, _), some in zip(judged, held_out, strict=True)])
        if stack is None or stack.held_out is None:
            predicted = np.concatenate([_said([task], some) for (task, _), some in zip(judged, held_out, strict=True)])
        else:
            predicted = stack.held_out.answers
        truth = np.stack([np.asarray(samples[i].target, dtype=np.float64).reshape(-1) for i in indices.tolist()])
        weights = sample_weights(samples)
        errors = HeldOutErrors.of(truth, predicted, spread, None if weights is None else weights[indices])
        self.held_out_errors_, self.held_out_weights_ = errors.errors.ravel(), errors.weights

    def _held_out_errors(self) -> HeldOutErrors:
        if self.held_out_errors_ is None or self.held_out_weights_ is None:
            raise ValueError(
                "no series were held out from training, so that nothing is known of errors for new ones: intervals and "
                "deviations need early_stopping=True and at least 20 series, or a validation_fraction"
            )
        return HeldOutErrors(self.held_out_errors_.reshape(-1, self.n_outputs_), self.held_out_weights_)

    def _spread_of(self, samples: Sequence[Sample]) -> Float64[np.ndarray, "b o"]:
        return _spread(self.tasks_, samples)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, static: Any = None) -> float:
        """Coefficient of determination R²: 1 is perfect, 0 as good as the mean of y.

        Parameters
        ----------
        X : list of (times, values) pairs, list of arrays [n, c], array [b, n, c], samples or table
            The series. Values of a pair are [n] or [n, c]; NaN means missing. A table is what `from_table` reads, with
            `columns`.
        y : sequence, optional
            The true numbers; by default those that samples or a table bring along.
        sample_weight : array [b], optional
            A weight for each series; for a table a pandas column indexed by id, or a dictionary.
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
            If X cannot be read, or does not fit the data that the estimator was fitted on.
        NotFittedError
            If the estimator has not been fitted.
        """
        samples, labels, weights = self._read_to_score(X, y, sample_weight, static)
        return float(super().score(samples, labels, weights))


def _said(tasks: Sequence[Task], samples: Sequence[Sample]) -> Float64[np.ndarray, "b o"]:
    """What networks say together: logarithms of the mean probabilities, those of several labels, or mean numbers."""
    if isinstance(tasks[0], MultiLabel):
        return np.mean([inference.predict_proba(task, samples) for task in tasks], axis=0)
    if isinstance(tasks[0], Classification):
        probabilities = np.mean([inference.predict_proba(task, samples) for task in tasks], axis=0)
        return np.log(np.maximum(probabilities, SMALLEST))
    numbers = [np.asarray(inference.predict(task, samples), dtype=np.float64) for task in tasks]
    return np.mean(numbers, axis=0).reshape(len(samples), -1)


def _spread(tasks: Sequence[Task], samples: Sequence[Sample]) -> Float64[np.ndarray, "b o"]:
    """The deviation that networks with a likelihood tell of each number, on average, and 1 without one."""
    if getattr(tasks[0], "likelihood", None) is None:
        return np.ones((len(samples), 1 if not isinstance(tasks[0], Regression) else tasks[0].n_targets))
    told = [inference.predict(task, samples, returns="distribution", calibrated=False) for task in tasks]
    return np.mean([one.std() for one in told if isinstance(one, Distribution)], axis=0).reshape(len(samples), -1)


def _views(task: Task, samples: Sequence[Sample], times: Float64[np.ndarray, "p"] | None) -> Views:
    """What the simpler models see, on a grid of these times if there is one."""
    n_kinds = None if task.schema is None else task.schema.n_channels
    grid = None if times is None else on_grid(samples, times, n_kinds=n_kinds)
    return Views(summary_features(samples, n_kinds=n_kinds).values, grid)


def _is_series(samples: Sequence[Sample]) -> bool:
    """Whether positions are a time and perhaps a channel."""
    schema, n_axes = schema_of(samples), samples[0].positions.shape[1]
    has_phase = schema is not None and schema.phase is not None
    return n_axes - has_phase - (schema is not None and schema.n_channels is not None) == 1


def _fitting_grid(samples: Sequence[Sample]) -> Float64[np.ndarray, "p"] | None:
    """As many points as a series has on average, over the longest of them; None for series too sparse for a grid."""
    schema = schema_of(samples)
    n_kinds = 1 if schema is None else schema.n_channels or 1
    n_points = int(min(lengths_of(samples).mean() / n_kinds, MOST_POINTS))
    duration = longest_duration(samples)
    return np.linspace(0, duration, n_points) if n_points >= FEWEST_POINTS and duration > 0 else None


def _require_numbers(labels: Shaped[np.ndarray, "b *k"]) -> None:
    """Refuse text, even where it looks like a number, and dates, of which scikit-learn would count nanoseconds."""
    if labels.dtype.kind in "iufbc":
        return
    wrong = [label for label in labels.ravel() if labels.dtype != object or not isinstance(label, Number)]
    if wrong:
        raise TypeError(
            f"a regressor learns numbers, and y holds {str(wrong[0])!r}; convert it, with y.astype(float) where "
            "numbers are written as text, or use RoMAEClassifier for names of classes"
        )


def _plain(name: Any) -> Any:
    """A label as a schema holds it."""
    return name if isinstance(name, str | int | bool) else str(name)


def _that_count(
    samples: Sequence[Sample], y: Shaped[np.ndarray, "b *k"], weights: Weights | None
) -> tuple[Sequence[Sample], Shaped[np.ndarray, "c *k"], Float64[np.ndarray, "c"] | None]:
    """The samples of weights above 0, their labels and their weights: one of weight 0 is as good as not given."""
    if weights is None or weights.all():
        return samples, y, weights
    places = np.flatnonzero(weights)
    chosen, schema = [samples[i] for i in places.tolist()], schema_of(samples)
    return chosen if schema is None else SampleSet(chosen, schema), y[places], weights[places]


def _with_targets(
    samples: Sequence[Sample],
    targets: Shaped[np.ndarray, "b *k"],
    classes: tuple[Any, ...] | None,
    weights: Float32[np.ndarray, "b"] | None,
    names: tuple[Any, ...] | None = None,
) -> Sequence[Sample]:
    """Samples with targets; `classes` name classes, `names` several labels."""
    targets = np.array(targets)  # a copy: the caller's may be read-only
    by_sample = [None] * len(samples) if weights is None else weights
    parts = zip(samples, targets, by_sample, strict=True)
    labelled = [replace(sample, target=target, weight=weight) for sample, target, weight in parts]
    schema = schema_of(samples)
    return labelled if schema is None else SampleSet(labelled, replace(schema, classes=classes, labels=names))
