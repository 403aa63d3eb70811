"""Tasks: what the encoder is trained to do. A task is an encoder, a head and a loss.

Shapes: t tokens, b samples, c channels, q hidden tokens, w width, k outputs.
"""

import operator
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, SupportsIndex

import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F

from romae.model.autoencoder import Decoder, Encoder
from romae.model.calibration import Calibration
from romae.model.config import ModelConfig
from romae.model.conformal import Conformal
from romae.model.gate import Gate
from romae.model.heads import Head
from romae.model.likelihoods import Likelihood, Mixture, Name, Numbers, Quantiles, as_likelihood, loss_of_normal
from romae.model.pooling import pooled_layers
from romae.tokens.augmentation import Augmentation, Noise, RandAugment
from romae.tokens.cuts import Clock
from romae.tokens.errors import variances
from romae.tokens.layout import Layout
from romae.tokens.levels import Levels
from romae.tokens.masking import (
    Masking,
    RandomSource,
    SparingStatic,
    Strategy,
    UniformTokens,
    hide_at_random,
    is_static,
    noise,
    visible_and_hidden,
)
from romae.tokens.packed import kind_mean, second_part
from romae.tokens.tokens import Batch, Tokens, require_kinds


class Loss(NamedTuple):
    """A loss as a sum and the number of terms, so that batches and ranks can be added up and divided once.

    Where samples have weights, each term is multiplied by that of its sample, and counts as much.

    Attributes
    ----------
    total : Tensor
        The sum.
    weight : Tensor
        The number of terms, or the sum of their weights.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> romae.Loss(total=torch.tensor(6.0), weight=torch.tensor(4.0)).mean
    tensor(1.5000)
    """

    total: Tensor
    weight: Tensor

    @property
    def mean(self) -> Tensor:
        """The sum divided by the number of terms; 0 where there are none."""
        return self.total / torch.where(self.weight > 0, self.weight, 1)


class Task(nn.Module):
    """An encoder with a head and a loss: the base of all tasks, such as `Classification`.

    Subclass it for a loss of your own: define `forward`, which returns a `Loss`, `predict`, and `trivial`. `train`
    takes any task. What a step draws at random (masks, dropped tokens) is drawn by `prepare`, before anything is
    compiled.

    Parameters
    ----------
    encoder : Encoder or ModelConfig
        An encoder, such as that of a pre-trained task (`task.encoder.rebuilt()`), or the configuration of a new one.
    drop_tokens : float
        The largest share of each sample's tokens that is dropped at each step of training, from 0 to below 1.
    settings : dict
        What a checkpoint needs to make the task again, by the names of its parameters.

    Attributes
    ----------
    encoder : Encoder
        The encoder.
    scaling : Scaling or None
        What was done to the data in training; predictions undo it.
    schema : Schema or None
        The names of columns, channels and classes.

    Raises
    ------
    ValueError
        If `drop_tokens` lies outside its range.
    TypeError
        If the encoder is none.

    Examples
    --------
    >>> import torch
    >>> import romae
    >>> class Spread(romae.Task):
    ...     def __init__(self, encoder):
    ...         super().__init__(encoder, drop_tokens=0.0, settings={})
    ...         self.head = torch.nn.Linear(self.config.encoder.width, 1)
    ...     def predict(self, batch):
    ...         return self.head(self.pooled(self.encoder(batch.tokens)))
    ...     def forward(self, batch):
    ...         error = (self.predict(batch).squeeze(-1) - batch.target).square()
    ...         return romae.Loss(error.sum(), torch.tensor(float(len(error))))
    >>> task = Spread(romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow"))
    >>> sample = romae.Sample([[0.0], [2.0]], [[0.0], [1.0]], target=1.0)
    >>> task(romae.collate([sample])).weight
    tensor(1.)
    """

    def __init__(self, encoder: Encoder | ModelConfig, drop_tokens: float, settings: dict[str, Any]) -> None:
        super().__init__()
        if not isinstance(drop_tokens, float | Real) or not 0 <= drop_tokens < 1:
            raise ValueError(
                f"drop_tokens is the largest share of tokens to drop, from 0 to below 1, not {drop_tokens!r}"
            )
        if isinstance(encoder, Task):
            raise TypeError(
                f"a task is made around an encoder; take that of the {type(encoder).__name__}: task.encoder.rebuilt()"
            )
        if not isinstance(encoder, Encoder | ModelConfig):
            raise TypeError(f"a task is made around an Encoder or a ModelConfig, not {type(encoder).__name__}")
        self.encoder = encoder if isinstance(encoder, Encoder) else Encoder(encoder)
        self.scaling = None
        self.schema: Any = None  # data.schema.Schema: the names of columns, channels and classes
        self.drop_tokens = drop_tokens
        self.augment: Augmentation | None = None
        self.settings = {**settings, "drop_tokens": drop_tokens}

    @property
    def config(self) -> ModelConfig:
        """The architecture of the encoder."""
        return self.encoder.config

    @property
    def calibration(self) -> Any:
        """What makes probabilities mean what they say (`romae.calibrate`); the loss knows nothing of it."""
        return self.settings.get("calibration")

    @calibration.setter
    def calibration(self, calibration: Any) -> None:
        if calibration is not None:
            self._require_calibration(calibration)
        self.settings.pop("calibration", None)  # without one, settings are those of older versions
        if calibration is not None:
            self.settings["calibration"] = calibration

    def _require_calibration(self, calibration: Any) -> None:
        """Refuse a calibration that is not for this task."""
        raise TypeError(f"a {type(self).__name__} tells no probabilities that could be calibrated")

    def point(self, output: Float[Tensor, "*n k"]) -> Float[Tensor, "*n j"]:
        """What the output of the head tells in one number each: itself, or the mean where there is a likelihood.

        Parameters
        ----------
        output : Tensor
            The output of the head.

        Returns
        -------
        Tensor
            With as many entries in a row as there are numbers to predict.
        """
        return output

    @property
    def scaling(self) -> Any:
        """What was done to the data (data.scaling.Scaling), undone in predictions."""
        return self._scaling

    @scaling.setter
    def scaling(self, scaling: Any) -> None:
        self._scaling = scaling
        self._gain: Tensor | None
        is_centred = scaling is not None and scaling.centres_samples
        # On the device of the model, since a recorded step cannot read from the host; no weight, so in no checkpoint.
        device = next(self.encoder.parameters()).device
        self.register_buffer("_gain", scaling.gain.to(device) if is_centred else None, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        super()._apply(fn, recurse)
        if self._gain is not None:
            self._gain = self._scaling.gain.to(self._gain.device)  # in double precision whatever the model is cast to
        return self

    def levels(self, visible: Tokens) -> Levels | None:
        """The level of each sample and channel, by which a scaling with center="sample" or "instance" centres it.

        Parameters
        ----------
        visible : Tokens
            What the model may see of each sample, scaled.

        Returns
        -------
        Levels or None
            None where samples are not centred.
        """
        if self._gain is None:
            return None
        n_channels = self._scaling.n_channels or 1
        own_spread = self._scaling.center == "instance"
        return Levels.of(
            visible,
            self._gain,
            n_channels,
            static_from=self.config.static_from,
            own_spread=own_spread,
            n_errors=self.config.errors,
        )

    def encode(self, tokens: Tokens) -> Tokens:
        """The output of the encoder for samples, their levels included.

        With a scaling that centres samples, deviations from the level of a sample and channel are enlarged as in
        pre-training, and a quarter of the level stays: it may tell classes apart.

        Parameters
        ----------
        tokens : Tokens
            The samples, scaled.

        Returns
        -------
        Tokens
            Embeddings of the tokens, after that of CLS where the model has one.
        """
        return self.encoder(self._enlarged(tokens))

    def encode_layers(self, tokens: Tokens) -> list[Tokens]:
        """What enters the encoder, and the output of its middle and its last layer, for `pool_layers`.

        Parameters
        ----------
        tokens : Tokens
            The samples, scaled.

        Returns
        -------
        list of Tokens
            Embeddings of the tokens in each of these layers, after that of CLS where the model has one.
        """
        return self.encoder.layers(self._enlarged(tokens), pooled_layers(self.config))

    def _enlarged(self, tokens: Tokens) -> Tokens:
        levels = self.levels(tokens)
        return tokens if levels is None else self._cast(levels.enlarged(tokens))

    def _cast(self, tokens: Tokens) -> Tokens:
        """Tokens in the precision of a model of half precision, which they were centred in full precision for."""
        return tokens.to(dtype=next(self.encoder.parameters()).dtype)

    def prepare(self, batch: Batch, source: RandomSource = None, *, is_training: bool | None = None) -> Batch:
        """Draw what is random in a step: masks and, in training, dropped tokens.

        Parameters
        ----------
        batch : Batch
            The batch; one that is prepared already comes back as it is.
        source : torch.Generator, SampleKeys or None, default None
            The source of random numbers; None is the global generator of torch.
        is_training : bool, optional
            Whether tokens are dropped; by default the mode of the module.

        Returns
        -------
        Batch
            With `is_prepared` set.

        Raises
        ------
        ValueError
            If targets or kinds do not fit the task.
        """
        if batch.is_prepared:
            return batch
        if batch.tokens.device.type == "cpu":
            self.require_kinds(batch)
        batch = self._draw(batch, source)
        if self.drop_tokens > 0 and (self.training if is_training is None else is_training):
            batch = self._drop(batch, source)
        return replace(batch, is_prepared=True, origins=None)

    def require_kinds(self, batch: Batch) -> None:
        """Refuse tokens of kinds that the model does not have, and static facts that samples hide; on a GPU this waits.

        Parameters
        ----------
        batch : Batch
            The batch.

        Raises
        ------
        ValueError
            If a token's last position is no kind of the model, or a sample hides a static fact.
        """
        first = self.config.static_from
        if first is not None and batch.hidden is not None and bool(is_static(batch.hidden.positions, first).any()):
            raise ValueError("a sample hides a static fact, which nobody predicts; let Sample(hidden=…) be False there")
        if self.config.kinds is not None:
            for tokens in (batch.tokens, batch.hidden):
                if tokens is not None:
                    require_kinds(tokens, self.config.kinds, batch.ids or ())

    def augmented(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Augment the values of a batch for a step of training; without `augment`, it stays as it is.

        Parameters
        ----------
        batch : Batch
            The batch.
        generator : torch.Generator, optional
            The source of random numbers, on the device of the batch.

        Returns
        -------
        Batch
            With changed values.

        Raises
        ------
        ValueError
            If the augmentation is for images and the batch holds something else.
        """
        if self.augment is None:
            return batch
        layout, augment = batch.tokens.layout, self.augment
        if isinstance(augment, RandAugment) and not (layout.is_equal and layout.longest == augment.n_tokens):
            raise ValueError(
                f"augment takes whole images of {augment.n_tokens} tokens, and this batch holds something else"
            )
        values, n = batch.tokens.values, self.config.n_values
        if self.config.errors:
            values = torch.cat([augment(values[:, :n], generator), values[:, n:]], 1)
        else:
            values = augment(values, generator)
        return replace(batch, tokens=replace(batch.tokens, values=values))

    def _draw(self, batch: Batch, source: RandomSource) -> Batch:
        return batch

    def _drop(self, batch: Batch, source: RandomSource) -> Batch:
        """Leave out a share of each sample's tokens, drawn between 0 and `drop_tokens`; static facts stay."""
        layout = batch.tokens.layout
        if self.config.static_from is not None:
            static = is_static(batch.tokens.positions, self.config.static_from)
            measured, _ = layout.selected(~static)
            share = noise(Layout.singles(layout.n_samples), source) * self.drop_tokens
            n_dropped = (share * measured.lengths).long()
            keep = torch.ones_like(static)
            keep[~static] = ~hide_at_random(noise(measured, source), measured, n_dropped)
            return self._kept(batch, keep, layout.lengths - n_dropped)
        share = noise(Layout.singles(layout.n_samples), source) * self.drop_tokens
        n_dropped = (share * layout.lengths).long()
        keep = ~hide_at_random(noise(layout, source), layout, n_dropped)
        return self._kept(batch, keep, layout.lengths - n_dropped)

    def _kept(self, batch: Batch, keep: Tensor, lengths: Tensor) -> Batch:
        return replace(batch, tokens=batch.tokens.select(keep, lengths))

    def forward(self, batch: Batch) -> Loss:
        """The loss of a batch.

        Parameters
        ----------
        batch : Batch
            The batch; it is prepared first if it is not.

        Returns
        -------
        Loss
            The sum over all targets, and their number.

        Raises
        ------
        TypeError
            If the task does not say what its loss is.
        """
        raise TypeError(f"{type(self).__name__} does not say what its loss is")

    def predict(self, batch: Batch) -> Tensor:
        """The output for a batch, as the model sees the data (scaled); `romae.predict` answers in the data's own units.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor
            One row per sample, per token or per hidden token.

        Raises
        ------
        TypeError
            If the task does not say what it predicts.
        """
        raise TypeError(f"{type(self).__name__} does not say what it predicts")

    def trivial(self, batch: Batch) -> Loss:
        """The loss of the best constant prediction for a batch: what a model that learns nothing would get.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Loss
            The sum over all targets, and their number.

        Raises
        ------
        TypeError
            If the task does not say what its trivial loss is.
        """
        raise TypeError(f"{type(self).__name__} does not say what its trivial loss is")

    def save(self, directory: str | Path, *, half: bool = False, card: str | None = None) -> None:
        """Write weights and configuration to a folder that `romae.load` reads.

        Parameters
        ----------
        directory : str or Path
            The folder. It appears when it is whole; a checkpoint that is there already is replaced, anything else is
            refused.
        half : bool, default False
            Whether to store weights in 16 bits; they come back in full precision, rounded.
        card : str, optional
            The text of a README.md beside them (the model card).

        Raises
        ------
        ValueError
            If the folder holds something else, or the task could not be read back.
        """
        from romae.checkpoints import (
            native as checkpoint,  # a file below this one; imported when called, so that the core needs torch alone
        )

        checkpoint.save(self, directory, half=half, card=card)

    def push_to_hub(self, name: str, *, private: bool = False, half: bool = False, card: str | None = None) -> str:
        """Upload to the Hugging Face Hub, from where `romae.load(name)` reads it.

        Parameters
        ----------
        name : str
            The name of the model there, such as "someone/light-curves".
        private : bool, default False
            Whether others cannot see it.
        half : bool, default False
            Whether to store weights in 16 bits; they come back in full precision, rounded.
        card : str, optional
            The text of a README.md beside them (the model card).

        Returns
        -------
        str
            Its address.

        Raises
        ------
        ValueError
            If the name is none, or the upload fails.
        """
        from romae.checkpoints import native as checkpoint

        return checkpoint.push_to_hub(self, name, private=private, half=half, card=card)

    def pooled(self, encoded: Tokens) -> Float[Tensor, "b w"]:
        """Pool each sample into one vector: its CLS, or the mean of its tokens or kinds.

        Parameters
        ----------
        encoded : Tokens
            The output of the encoder.

        Returns
        -------
        Tensor [b, w]
            One row per sample.
        """
        if self.config.pool == "kinds" and self.config.kinds is not None:
            kind_of_token = encoded.positions[:, -1].long()
            return kind_mean(encoded.values, kind_of_token, self.config.kinds, encoded.layout)
        return encoded.first() if self.config.cls else encoded.mean()

    def per_token(self, encoded: Tokens, layout: Layout) -> Float[Tensor, "t w"]:
        """The embeddings of the tokens, CLS left out.

        Parameters
        ----------
        encoded : Tokens
            The output of the encoder.
        layout : Layout
            That of the tokens that went in.

        Returns
        -------
        Tensor [t, w]
            One row per token.
        """
        if not self.config.cls:
            return encoded.values
        return second_part(encoded.values, Layout.singles(layout.n_samples, encoded.device), layout)


# What each row of a loss counts: True or False where some only fill a batch, a weight where samples have such, and None
# where all count alike.
Counts = Bool[Tensor, "n"] | Float32[Tensor, "n"] | None


class MaskedReconstruction(Task):
    """Masked autoencoding: predict hidden tokens from visible ones, for pre-training and interpolation.

    Parameters
    ----------
    encoder : Encoder or ModelConfig
        An encoder, such as that of a pre-trained task (`task.encoder.rebuilt()`), or the configuration of a new one.
    masking : UniformTokens, Rows, Channels, Spans, Future, Mixed or Masking, default UniformTokens(ratio=0.75)
        Which tokens to hide. Samples that choose their own (`Sample.hidden`) keep them.
    normalise : bool, default False
        Whether each token's target is brought to mean 0 and variance 1 over its own channels, as is done for image
        patches. Such a model cannot interpolate.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step of training, from 0 to below 1: the
        regulariser for small data.
    likelihood : {"normal", "student", "mixture", "quantiles"} or a likelihood, optional
        The distribution that is learned of each hidden number, whose mean is the prediction, such as
        `Mixture(n=4)`; None learns the mean alone, by a squared error.
    calibration : Conformal, optional
        What is done to the levels of these distributions; `romae.calibrate` fits it. None leaves them as they were
        learned, and so does `task.calibration = None` later.
    weights : "channel" or None, default None
        What counts alike in the loss: every hidden number (None), or every channel that a batch hides something of
        ("channel"), as where people are judged by the mean over channels.
    gate : Gate, optional
        For a model that takes series in units of their own: how much of its answers are those of Gaussian processes
        averaged over kernels, query by query. None, as with `task.gate = None` later, leaves answers to the network.

    Raises
    ------
    ValueError
        If `normalise` is asked of tokens with one channel, a number lies outside its range, the likelihood is none,
        quantiles or `normalise` meet measurement errors, or a gate is given without a mixture.
    TypeError
        If the masking is no strategy, or the calibration or the gate is none.

    Notes
    -----
    Where tokens have measurement errors (`ModelConfig(errors=)`), those of visible tokens are read beside their values,
    and values alone are predicted. A likelihood tells the distribution of what was measured without its error: in the
    loss, the variance of the error is added to that of the prediction. An error that is not known adds nothing.

    With weights="channel" each number is multiplied by the number of hidden numbers over that of its channel, so that
    the weight of a batch stays what it was. Channels are counted in what one process sees at once: with several
    processes or `accumulate`, in its piece of the batch. Where a channel is a column, all have as many numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow")
    >>> task = romae.MaskedReconstruction(config, masking=romae.UniformTokens(ratio=0.5))
    >>> samples = romae.from_arrays(np.random.default_rng(0).normal(size=(4, 10, 1)))
    >>> loss = task(romae.collate(samples))
    >>> int(loss.weight)  # half of 40 tokens were hidden
    20
    """

    def __init__(
        self,
        encoder: Encoder | ModelConfig,
        *,
        masking: Strategy | Masking = UniformTokens(),  # noqa: B008  (a frozen value)
        normalise: bool = False,
        drop_tokens: float = 0.0,
        likelihood: Likelihood | Name | None = None,
        calibration: Conformal | None = None,
        weights: Literal["channel"] | None = None,
        gate: Gate | None = None,
    ) -> None:
        likelihood = as_likelihood(likelihood)
        settings = {"masking": masking, "normalise": normalise}
        kept_weights = {} if weights is None else {"weights": weights}  # without them, settings are those of before
        super().__init__(encoder, drop_tokens, settings | _kept_likelihood(likelihood) | kept_weights)
        config = self.config
        if weights not in (None, "channel"):
            raise ValueError(f"weights must be 'channel' or None, not {weights!r}")
        if isinstance(masking, type) or not isinstance(masking, Masking):
            raise TypeError(f"masking must be a strategy such as UniformTokens(ratio=0.5), not {masking!r}")
        if normalise and config.channels == 1:
            raise ValueError(
                "normalise needs tokens of several values (a patch); with one channel nothing would be left"
            )
        if config.errors and isinstance(likelihood, Quantiles):
            raise ValueError(
                "quantiles know nothing of measurement errors; take the likelihood 'normal', 'student' or 'mixture', "
                "or leave the errors out"
            )
        if config.errors and normalise:
            raise ValueError("normalise is for patches, which have no measurement errors; leave one of both out")
        self.masking, self.normalise, self.likelihood, self.weights = masking, normalise, likelihood, weights
        self.decoder = Decoder(config)
        self.head = Head(config.decoder.width, config.n_values * _n_parameters(likelihood), config.norm_eps)
        self.calibration = calibration
        self.gate = gate

    @property
    def gate(self) -> Gate | None:
        """What mixes answers with those of Gaussian processes; the loss knows nothing of it."""
        return self.settings.get("gate")

    @gate.setter
    def gate(self, gate: Any) -> None:
        if gate is not None and not isinstance(gate, Gate):
            raise TypeError(f"a gate is Gate(…) or None, not {gate!r}")
        if gate is not None and not (isinstance(self.likelihood, Mixture) and self.config.n_values == 1):
            raise ValueError(
                "a gate mixes distributions of single numbers: it needs likelihood='mixture' and one value"
            )
        self.settings.pop("gate", None)  # without one, settings are those of older versions
        if gate is not None:
            self.settings["gate"] = gate

    def _require_calibration(self, calibration: Any) -> None:
        _require_conformal(calibration, self.likelihood)

    def point(self, output: Float[Tensor, "*n k"]) -> Float[Tensor, "*n j"]:
        return _mean(self.likelihood, output)

    def _draw(self, batch: Batch, source: RandomSource) -> Batch:
        if batch.hidden is not None:
            return batch
        first = self.config.static_from
        masking = self.masking if first is None else SparingStatic(self.masking, first)
        visible, hidden = visible_and_hidden(batch.tokens, masking, source, self.clock(batch))
        return replace(batch, tokens=visible, hidden=hidden)

    def clock(self, batch: Batch) -> Clock:
        """How the positions of a batch that is not prepared follow from those of the data, for cuts in their own time.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Clock
            With the origin of each sample, where it is known.
        """
        scaling, origins = self.scaling, batch.origins
        rules = () if scaling is None else scaling.origins
        if origins is None and not any(rule in ("first", "min") for rule in rules):
            shared = [0.0 if rule == "none" else float(rule) for rule in rules] or [0.0] * batch.tokens.position_dims
            origins = torch.tensor([shared] * len(batch), dtype=torch.float64, device=batch.tokens.device)
        return Clock(units=() if scaling is None else scaling.units, origins=origins, schema=self.schema)

    def forward(self, batch: Batch) -> Loss:
        batch = self.prepare(batch)
        assert batch.hidden is not None
        hidden = batch.hidden
        levels = self.levels(batch.tokens)
        output = self.output(batch.tokens, hidden.positions, hidden.layout, levels).float()
        target, variance = self._targets(hidden, levels)
        return _loss(self.likelihood, output, target, self._counted(batch, hidden), variance)

    def _counted(self, batch: Batch, hidden: Tokens) -> Counts:
        """What each hidden token counts in the loss."""
        counted, n_channels = _counts(batch, hidden.layout), self.n_channels()
        if self.weights is None or n_channels == 1:
            return counted
        channel = hidden.positions[:, -1].round().long()
        weight = torch.ones_like(channel, dtype=torch.float64) if counted is None else counted.double()
        of_channel = weight.new_zeros(n_channels).index_add_(0, channel, weight)
        n_present = (of_channel > 0).sum().clamp(min=1)
        share = weight.sum() / (n_present * of_channel.clamp(min=torch.finfo(torch.float32).tiny))
        return (weight * share[channel]).float()

    def trivial(self, batch: Batch) -> Loss:
        """The loss of the best simple prediction: a constant, or the mean of what is visible of sample and channel.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Loss
            The lower one of both. With `normalise`, each target has had its own mean subtracted, and it is that of the
            constant.
        """
        batch = self.prepare(batch)
        assert batch.hidden is not None
        visible, hidden = batch.tokens, batch.hidden
        levels = self.levels(visible)
        target, variance = self._targets(hidden, levels)
        counts = self._counted(batch, hidden)
        constant = _average(target, counts).expand_as(target)
        of_constant = _simple_loss(self.likelihood, constant, target, counts, variance)
        if self.normalise:
            return of_constant
        mean = torch.zeros_like(target)  # what is centred already lies around 0
        if levels is None:
            gain = torch.ones(1, 1, dtype=torch.float64, device=visible.device)
            own = Levels.of(visible, gain, self.n_channels(), n_errors=self.config.errors)
            mean = own.absolute(mean, hidden.positions, hidden.layout).to(target.dtype)
        of_mean = _simple_loss(self.likelihood, mean, target, counts, variance)
        return Loss(torch.minimum(of_constant.total, of_mean.total), of_constant.weight)

    def n_channels(self) -> int:
        """How many channels the last position axis tells apart, as far as is known.

        Returns
        -------
        int
            1 where it is a coordinate like any other.
        """
        if self.config.kinds is not None:
            return self.config.kinds
        scaling = self.scaling
        if scaling is not None and scaling.moves_channels:
            return 1
        if scaling is not None and scaling.by_channel:
            return len(scaling.scale)
        has_axis = self.weights is not None and self.schema is not None and self.schema.n_channels is not None
        return self.schema.n_channels if has_axis else 1

    def _targets(self, hidden: Tokens, levels: Levels | None) -> tuple[Float[Tensor, "q c"], Numbers | None]:
        """What is to be predicted, and the variance with which it was measured, where a likelihood makes use of it."""
        target = (hidden if levels is None else levels.relative(hidden)).values.float()
        if self.config.errors:
            target, errors = target.tensor_split([self.config.n_values], dim=1)
            return target, None if self.likelihood is None else variances(errors)
        if not self.normalise:
            return target, None
        mean, deviation = _moments(target)
        return (target - mean) / deviation, None

    def reconstruct(self, visible: Tokens, positions: Float[Tensor, "q d"], layout: Layout) -> Float[Tensor, "q c"]:
        """Decode at positions of your choice.

        Parameters
        ----------
        visible : Tokens
            The tokens that are seen.
        positions : Float32 Tensor [q, d]
            Where to decode, sample by sample, as the model sees positions.
        layout : Layout
            How many of these positions belong to each sample.

        Returns
        -------
        Tensor [q, c]
            The values, with the level of each sample where the scaling centres samples; normalised if the targets
            were.

        Raises
        ------
        ValueError
            If the positions do not fit the layout or the model.
        """
        levels = self.levels(visible)
        output = self.point(self.output(visible, positions, layout, levels))
        return output if levels is None else levels.absolute(output, positions, layout).to(output.dtype)

    def centred(self, visible: Tokens, levels: Levels | None) -> Tokens:
        """What the encoder sees of samples: their values relative to their levels, where the scaling centres samples.

        Parameters
        ----------
        visible : Tokens
            The tokens that are seen, scaled.
        levels : Levels or None
            Those of these tokens, from `levels`.

        Returns
        -------
        Tokens
            For the encoder.
        """
        return visible if levels is None else self._cast(levels.relative(visible))

    def output(
        self, visible: Tokens, positions: Float[Tensor, "q d"], layout: Layout, levels: Levels | None
    ) -> Float[Tensor, "q k"]:
        """The output of the head at positions: values, or raw parameters of their distributions.

        Parameters
        ----------
        visible : Tokens
            The tokens that are seen.
        positions : Float32 Tensor [q, d]
            Where to decode, sample by sample, as the model sees positions.
        layout : Layout
            How many of these positions belong to each sample.
        levels : Levels or None
            Those of the visible tokens, from `levels`; the output is relative to them.

        Returns
        -------
        Tensor [q, k]
            For each position as many numbers as there are columns of values, times the parameters of a likelihood.

        Raises
        ------
        ValueError
            If the positions do not fit the layout or the model.
        """
        encoded = self.encoder(self.centred(visible, levels))
        if positions.ndim != 2 or positions.shape[1] != self.config.position_dims or len(positions) != layout.n_tokens:
            raise ValueError(
                f"expected {layout.n_tokens} positions of {self.config.position_dims} coordinates, got "
                f"{list(positions.shape)}"
            )
        return self.head(self.decoder(encoded, positions, layout))

    def predict(self, batch: Batch) -> Float[Tensor, "q c"]:
        """The values of the hidden tokens.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [q, c]
            In the units of the batch.
        """
        batch = self.prepare(batch)
        assert batch.hidden is not None
        hidden = batch.hidden
        levels = self.levels(batch.tokens)
        output = self.point(self.output(batch.tokens, hidden.positions, hidden.layout, levels).float())
        if self.normalise:
            mean, deviation = _moments((hidden if levels is None else levels.relative(hidden)).values.float())
            output = output * deviation + mean
        return output if levels is None else levels.absolute(output, hidden.positions, hidden.layout).float()


class Classification(Task):
    """Classification of samples, from CLS or from the mean of all tokens.

    Parameters
    ----------
    encoder : Encoder or ModelConfig
        An encoder, such as that of a pre-trained task (`task.encoder.rebuilt()`), or the configuration of a new one.
    n_classes : int
        The number of classes, at least 2. Targets are class indices.
    confidence : float, default 1.0
        The probability that the target gives to the true class; below 1 it is label smoothing, and the other classes
        share the rest.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step of training, from 0 to below 1: the
        regulariser for small data.
    augment : RandAugment or Noise, optional
        Augmentation of values in training.
    calibration : Calibration, optional
        What makes probabilities of logits that mean what they say; the estimators fit it. None leaves logits as they
        are, and so does `task.calibration = None` later.

    Raises
    ------
    ValueError
        If there are fewer than two classes, a number lies outside its range, or RandAugment meets `drop_tokens`.
    TypeError
        If the augmentation or the calibration is none.

    Examples
    --------
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow")
    >>> task = romae.Classification(config, n_classes=3, confidence=0.9)
    >>> batch = romae.collate([romae.Sample([[0.1], [0.2]], [[0.0], [1.5]], target=2)])
    >>> task.predict(batch).shape  # logits
    torch.Size([1, 3])
    """

    def __init__(
        self,
        encoder: Encoder | ModelConfig,
        n_classes: int,
        *,
        confidence: float = 1.0,
        drop_tokens: float = 0.0,
        augment: Augmentation | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if not isinstance(n_classes, SupportsIndex) or operator.index(n_classes) < 2:
            raise ValueError(f"classification needs at least two classes, n_classes=2 or more, not {n_classes!r}")
        n_classes = operator.index(n_classes)
        settings = {"n_classes": n_classes, "confidence": confidence, "augment": augment}
        super().__init__(encoder, drop_tokens, settings)
        if not isinstance(augment, Augmentation | None):
            raise TypeError(f"augment is RandAugment(…) or Noise(…), not {augment!r}")
        if not 1 / n_classes < confidence <= 1:
            raise ValueError(f"confidence must be above chance (1/{n_classes}) and at most 1, not {confidence}")
        if isinstance(augment, RandAugment) and drop_tokens > 0:
            raise ValueError("augment changes whole images, and drop_tokens leaves parts of them out; use one of them")
        self.n_classes, self.confidence, self.augment = n_classes, confidence, augment
        self.calibration = calibration
        self.head = Head(self.config.encoder.width, n_classes, self.config.norm_eps)

    def _require_calibration(self, calibration: Any) -> None:
        if not isinstance(calibration, Calibration):
            raise TypeError(f"a calibration is Calibration(…) or None, not {calibration!r}")
        if len(calibration.bias) != self.n_classes:
            raise ValueError(
                f"the calibration is for {len(calibration.bias)} classes, and the task has {self.n_classes}"
            )

    def _draw(self, batch: Batch, source: RandomSource) -> Batch:
        target = _require_target(batch)
        if target.is_floating_point() or target.ndim != 1:
            raise ValueError(f"classes must be one integer per sample, not {target.dtype} {list(target.shape)}")
        if target.device.type == "cpu" and not bool(((target >= 0) & (target < self.n_classes)).all()):
            class_range = f"{int(target.min())} to {int(target.max())}"
            raise ValueError(f"classes must lie in 0 to {self.n_classes - 1}, and this batch has {class_range}")
        return batch

    def forward(self, batch: Batch) -> Loss:
        batch = self.prepare(batch)
        target = _require_target(batch)
        smoothing = (1 - self.confidence) * self.n_classes / (self.n_classes - 1)
        logits = self._logits(batch.tokens).float()
        losses = F.cross_entropy(logits, target.long(), reduction="none", label_smoothing=smoothing)
        return _summed(losses.unsqueeze(-1), _counts(batch))

    def trivial(self, batch: Batch) -> Loss:
        target = F.one_hot(_require_target(batch).long(), self.n_classes).double()
        rest = (1 - self.confidence) / (self.n_classes - 1)
        mean_target = _average(target * (self.confidence - rest) + rest, batch.weight)
        entropy = -torch.special.xlogy(mean_target, mean_target).sum()
        total = _count(entropy, len(batch)) if batch.weight is None else batch.weight.double().sum()
        return Loss(entropy * total, total)

    def predict(self, batch: Batch) -> Float[Tensor, "b k"]:
        """The logits of each class, calibrated if the task has a calibration.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [b, k]
            One row per sample.
        """
        logits = self.output(batch)
        return logits if self.calibration is None else self.calibration.apply(logits, self.confidence).float()

    def output(self, batch: Batch) -> Float[Tensor, "b k"]:
        """The output of the head: logits of each class as they were learned.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [b, k]
            One row per sample.
        """
        return self._logits(batch.tokens).float()

    def _logits(self, tokens: Tokens) -> Float[Tensor, "b k"]:
        return self.head(self.pooled(self.encode(tokens)))


class MultiLabel(Task):
    """Several labels per sample, of which any number may be true: one independent probability for each.

    Parameters
    ----------
    encoder : Encoder or ModelConfig
        An encoder, such as that of a pre-trained task (`task.encoder.rebuilt()`), or the configuration of a new one.
    n_labels : int
        The number of labels. Targets are vectors [k] of 0 and 1, in their order.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step of training, from 0 to below 1: the
        regulariser for small data.
    augment : Noise, optional
        Augmentation of values in training.
    calibration : Calibration, optional
        A temperature, and a bias for each label, of the logits; `romae.calibrate` fits it. None leaves them as they
        are, and so does `task.calibration = None` later.

    Raises
    ------
    ValueError
        If there is no label, a number lies outside its range, or a calibration is for another number of labels.
    TypeError
        If the augmentation or the calibration is none.

    See Also
    --------
    Classification : one class per sample.

    Notes
    -----
    The loss is the binary cross-entropy, a mean over samples and labels. `romae.predict_proba` gives a probability for
    each label, and `romae.predict` is True where it is at least one half, which makes the fewest errors by label; for
    other aims, such as F1, choose thresholds of your own on held-out samples. Explanations and exported files know
    classes and numbers alone.

    Examples
    --------
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow")
    >>> task = romae.MultiLabel(config, n_labels=3)
    >>> batch = romae.collate([romae.Sample([[0.1], [0.2]], [[0.0], [1.5]], target=[1, 0, 1])])
    >>> task.predict(batch).shape  # logits
    torch.Size([1, 3])
    """

    def __init__(
        self,
        encoder: Encoder | ModelConfig,
        n_labels: int,
        *,
        drop_tokens: float = 0.0,
        augment: Noise | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if not isinstance(n_labels, SupportsIndex) or operator.index(n_labels) < 1:
            raise ValueError(f"there is at least one label, n_labels=1 or more, not {n_labels!r}")
        n_labels = operator.index(n_labels)
        super().__init__(encoder, drop_tokens, {"n_labels": n_labels, "augment": augment})
        if not isinstance(augment, Noise | None):
            raise TypeError(f"augment is Noise(…), not {augment!r}")
        self.n_labels, self.augment = n_labels, augment
        self.calibration = calibration
        self.head = Head(self.config.encoder.width, n_labels, self.config.norm_eps)
        nn.init.zeros_(self.head.linear.weight)  # labels begin alike, so that their order changes nothing

    def _require_calibration(self, calibration: Any) -> None:
        if not isinstance(calibration, Calibration):
            raise TypeError(f"a calibration is Calibration(…) or None, not {calibration!r}")
        if len(calibration.bias) != self.n_labels:
            raise ValueError(f"the calibration is for {len(calibration.bias)} labels, and the task has {self.n_labels}")

    def _draw(self, batch: Batch, source: RandomSource) -> Batch:
        target = _require_target(batch)
        if target.shape != (len(batch), self.n_labels):
            raise ValueError(
                f"targets are {self.n_labels} numbers of 0 and 1 per sample ([{len(batch)}, {self.n_labels}]), and "
                f"these have the shape {list(target.shape)}"
            )
        if target.device.type == "cpu" and not bool(((target == 0) | (target == 1)).all()):
            raise ValueError("each label is 0 or 1, and this batch has others; a scaling of targets is for regression")
        return batch

    def forward(self, batch: Batch) -> Loss:
        batch = self.prepare(batch)
        target = _require_target(batch).float()
        losses = F.binary_cross_entropy_with_logits(self.output(batch), target, reduction="none")
        return _summed(losses, _counts(batch))

    def trivial(self, batch: Batch) -> Loss:
        target, counts = _require_target(batch).double(), _counts(batch)
        share = _average(target, counts).expand_as(target)
        return _summed(-torch.special.xlogy(target, share) - torch.special.xlogy(1 - target, 1 - share), counts)

    def predict(self, batch: Batch) -> Float[Tensor, "b k"]:
        """The logit of each label, calibrated if the task has a calibration: its probability is the sigmoid.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [b, k]
            One row per sample.
        """
        logits = self.output(batch)
        return logits if self.calibration is None else self.calibration.apply(logits, 1.0).float()

    def output(self, batch: Batch) -> Float[Tensor, "b k"]:
        """The output of the head: the logit of each label as it was learned.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [b, k]
            One row per sample.
        """
        return self.head(self.pooled(self.encode(batch.tokens))).float()


class Regression(Task):
    """Regression: one or several numbers per sample, or per token, with a squared error or a likelihood.

    Parameters
    ----------
    encoder : Encoder or ModelConfig
        An encoder, such as that of a pre-trained task (`task.encoder.rebuilt()`), or the configuration of a new one.
    n_targets : int, default 1
        The number of targets.
    per : {"sample", "token"}, default "sample"
        Whether targets belong to samples, read from CLS or the mean of all tokens, or to tokens.
    drop_tokens : float, default 0.0
        The largest share of each sample's tokens that is dropped at each step of training, from 0 to below 1: the
        regulariser for small data.
    augment : Noise, optional
        Augmentation of values in training.
    likelihood : {"normal", "student", "mixture", "quantiles"} or a likelihood, optional
        The distribution that is learned of each target, whose mean is the prediction, such as `Mixture(n=4)`; None
        learns the mean alone, by a squared error.
    calibration : Conformal, optional
        What is done to the levels of these distributions; `romae.calibrate` fits it. None leaves them as they were
        learned, and so does `task.calibration = None` later.

    Raises
    ------
    ValueError
        If there is no target, `per` is something else, or the likelihood is none.
    TypeError
        If the augmentation or the calibration is none.

    Notes
    -----
    Standardise targets: `fit_scaling(samples, target=True)`. Predictions come back in the data's own units.

    Examples
    --------
    >>> import romae
    >>> config = romae.ModelConfig(channels=1, position_dims=1, encoder="tiny-shallow")
    >>> task = romae.Regression(config, n_targets=2)
    >>> batch = romae.collate([romae.Sample([[0.1], [0.2]], [[0.0], [1.5]], target=[0.3, 0.7])])
    >>> task.predict(batch).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        encoder: Encoder | ModelConfig,
        n_targets: int = 1,
        *,
        per: Literal["sample", "token"] = "sample",
        drop_tokens: float = 0.0,
        augment: Noise | None = None,
        likelihood: Likelihood | Name | None = None,
        calibration: Conformal | None = None,
    ) -> None:
        if not isinstance(n_targets, SupportsIndex) or operator.index(n_targets) < 1:
            raise ValueError(f"regression needs at least one target, n_targets=1 or more, not {n_targets!r}")
        n_targets = operator.index(n_targets)
        likelihood = as_likelihood(likelihood)
        settings = {"n_targets": n_targets, "per": per, "augment": augment}
        super().__init__(encoder, drop_tokens, settings | _kept_likelihood(likelihood))
        if not isinstance(augment, Noise | None):
            raise TypeError(f"augment is Noise(…), not {augment!r}")
        if per not in ("sample", "token"):
            raise ValueError(f"per must be 'sample' or 'token', not {per!r}")
        self.n_targets, self.per, self.augment, self.likelihood = n_targets, per, augment, likelihood
        n_outputs = n_targets * _n_parameters(likelihood)
        self.head = Head(self.config.encoder.width, n_outputs, self.config.norm_eps)
        self.calibration = calibration

    def _require_calibration(self, calibration: Any) -> None:
        _require_conformal(calibration, self.likelihood)
        if calibration.by == "distance":
            raise ValueError("targets have no distance to an observation; calibrate with by='channel' or 'global'")

    def point(self, output: Float[Tensor, "*n k"]) -> Float[Tensor, "*n j"]:
        return _mean(self.likelihood, output)

    def _draw(self, batch: Batch, source: RandomSource) -> Batch:
        target = _require_target(batch)
        if self.per == "token" and batch.hidden is not None:
            raise ValueError("targets are for every token, and the samples hide some; leave Sample(hidden=…) out")
        n_rows = batch.tokens.layout.n_tokens if self.per == "token" else len(batch)
        if target.shape not in ((n_rows, self.n_targets), (n_rows,) if self.n_targets == 1 else ()):
            raise ValueError(
                f"expected {self.n_targets} targets per {self.per} ([{n_rows}, {self.n_targets}]), got "
                f"{list(target.shape)}"
            )
        return batch

    def _kept(self, batch: Batch, keep: Tensor, lengths: Tensor) -> Batch:
        if self.per == "sample":
            return super()._kept(batch, keep, lengths)
        target = _require_target(batch)
        _, index = batch.tokens.layout.selected(keep, lengths)
        return replace(super()._kept(batch, keep, lengths), target=target.index_select(0, index))

    def forward(self, batch: Batch) -> Loss:
        batch = self.prepare(batch)
        output = self.output(batch)
        counts = _counts(batch, None if self.per == "sample" else batch.tokens.layout)
        target = _require_target(batch).float().reshape(len(output), self.n_targets)
        return _loss(self.likelihood, output, target, counts)

    def trivial(self, batch: Batch) -> Loss:
        target = _require_target(batch).float().reshape(-1, self.n_targets)
        counts = _counts(batch, None if self.per == "sample" else batch.tokens.layout)
        return _simple_loss(self.likelihood, _average(target, counts).expand_as(target), target, counts)

    def predict(self, batch: Batch) -> Float[Tensor, "n k"]:
        """The targets of each sample, or of each token.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [n, k]
            One row per sample or token.
        """
        return self.point(self.output(batch))

    def output(self, batch: Batch) -> Float[Tensor, "n k"]:
        """The output of the head: numbers, or raw parameters of their distributions.

        Parameters
        ----------
        batch : Batch
            The batch.

        Returns
        -------
        Tensor [n, k]
            One row per sample or token.
        """
        tokens = batch.tokens
        encoded = self.encode(tokens)
        if self.per == "sample":
            return self.head(self.pooled(encoded)).float()
        return self.head(self.per_token(encoded, tokens.layout)).float()


TASKS: dict[str, type[Task]] = {
    task.__name__: task for task in (MaskedReconstruction, Classification, MultiLabel, Regression)
}


def _count(like: Tensor, n: int) -> Tensor:
    return like.new_full((), n, dtype=torch.float64)


def _counts(batch: Batch, layout: Layout | None = None) -> Counts:
    """What each sample of a batch counts, or each token of a layout."""
    counts = batch.real
    if batch.weight is not None:
        counts = batch.weight if batch.real is None else torch.where(batch.real, batch.weight, 0.0)
    return counts if counts is None or layout is None else counts[layout.sample_of_token]


def _n_parameters(likelihood: Likelihood | None) -> int:
    return 1 if likelihood is None else likelihood.n_parameters


def _kept_likelihood(likelihood: Likelihood | None) -> dict[str, Likelihood]:
    """For the settings of a checkpoint; without one they are those of older versions."""
    return {} if likelihood is None else {"likelihood": likelihood}


def _require_conformal(calibration: Any, likelihood: Likelihood | None) -> None:
    """Refuse a calibration of numbers that is none, or of a task that has learned no distribution."""
    if not isinstance(calibration, Conformal):
        raise TypeError(f"a calibration of numbers is Conformal(…) or None, not {calibration!r}")
    if likelihood is None:
        raise ValueError(
            "a task that has learned no distribution cannot be calibrated; train it with likelihood='mixture'"
        )


def _mean(likelihood: Likelihood | None, output: Float[Tensor, "*n k"]) -> Float[Tensor, "*n j"]:
    if likelihood is None:
        return output
    raw = output.unflatten(-1, (-1, likelihood.n_parameters))
    return likelihood.mean(raw.flatten(0, -3)).reshape(raw.shape[:-1])


def _loss(
    likelihood: Likelihood | None,
    output: Float[Tensor, "n p"],
    target: Numbers,
    counts: Counts,
    variance: Numbers | None = None,
) -> Loss:
    if likelihood is None:
        return _squared_error(output, target, counts)
    return _summed(likelihood.loss(output.unflatten(-1, (-1, likelihood.n_parameters)), target, variance), counts)


def _simple_loss(
    likelihood: Likelihood | None,
    prediction: Numbers,
    target: Numbers,
    counts: Counts,
    variance: Numbers | None = None,
) -> Loss:
    """The loss of a prediction that nothing was learned for; a likelihood is that of a normal with its mean error."""
    squared = _squared_error(prediction, target, counts)
    if likelihood is None:
        return squared
    if variance is None:
        spread = squared.mean.sqrt().clamp(min=1e-3).to(target.dtype)
    else:  # what measurement errors leave of the mean error, and for each number its own added
        left = (squared.mean - _summed(variance, counts).mean).clamp(min=1e-6).to(target.dtype)
        spread = torch.sqrt(left + variance)
    return _summed(loss_of_normal(likelihood, target, prediction, spread, variance), counts)


def _squared_error(output: Float[Tensor, "n k"], target: Float[Tensor, "n k"], counts: Counts = None) -> Loss:
    if counts is None:
        return Loss(F.mse_loss(output, target, reduction="sum"), _count(output, output.numel()))
    same = torch.where(counts.unsqueeze(-1) > 0, output, target)  # what does not count is no error
    if counts.dtype == torch.bool:
        total = F.mse_loss(same, target, reduction="sum")
    else:
        total = (F.mse_loss(same, target, reduction="none") * counts.unsqueeze(-1)).sum()
    return Loss(total, counts.double().sum() * output.shape[1])


def _summed(losses: Float[Tensor, "n k"], counts: Counts) -> Loss:
    """The sum over the rows that count, and how many numbers those hold."""
    if counts is None:
        return Loss(losses.sum(), _count(losses, losses.numel()))
    kept = torch.where(counts.unsqueeze(-1) > 0, losses, 0.0) * counts.unsqueeze(-1)
    return Loss(kept.sum(), counts.double().sum() * losses.shape[1])


def _average(x: Float[Tensor, "n k"], counts: Counts) -> Float[Tensor, "1 k"]:
    """The mean over the rows, each as much as it counts."""
    if counts is None:
        return x.mean(0, keepdim=True)
    share = counts.double() / counts.double().sum()
    return (x * share.unsqueeze(-1)).sum(0, keepdim=True).to(x.dtype)


def _moments(x: Float[Tensor, "n c"]) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each token's values."""
    mean = x.mean(-1, keepdim=True)
    return mean, (x.var(-1, keepdim=True) + 1e-6).sqrt()


def _require_target(batch: Batch) -> Tensor:
    if batch.target is None:
        raise ValueError("this task learns from targets, and the samples have none: set Sample(target=…)")
    return batch.target
