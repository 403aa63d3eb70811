"""Measurement errors as a model sees them: the logarithm of an error, in units of what its value was divided by.

Errors stand behind the values of a token, each in the place of its value: (flux, magnitude, error of the flux, error of
the magnitude). In the data's own units an error of 0 says that it is not known. Scaled, that is `LEAST`, and of others
exp(2 e) is the variance of a measurement in scaled units.

Shapes: n tokens, c columns of values.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = -7.0  # where likelihoods have their smallest scale (LOG_RANGE): smaller errors say no more, nor does 0
MOST = 20.0  # of a logarithm that becomes a variance, so that single precision holds it

Errors = Float[Tensor, "*n c"]


def scaled_errors(errors: Errors, unit: Errors) -> Errors:
    """Errors as a model sees them, where values are divided by `unit`; those that are not known are `LEAST`."""
    return torch.log(errors / unit).clamp(min=LEAST)


def original_errors(scaled: Errors, unit: Errors) -> Errors:
    """The inverse of `scaled_errors`: 0 where an error is not known."""
    return torch.where(scaled > LEAST, torch.exp(scaled) * unit, 0.0)


def enlarged_errors(scaled: Errors, gain: Errors) -> Errors:
    """The errors of values that are enlarged by a gain; what is not known stays so."""
    return torch.where(scaled > LEAST, (scaled + torch.log(gain)).clamp(min=LEAST), LEAST)


def variances(scaled: Errors) -> Errors:
    """The variance that measurements have by their errors, 0 where these are not known."""
    return torch.where(scaled > LEAST, torch.exp(2 * scaled.clamp(max=MOST)), 0.0)
