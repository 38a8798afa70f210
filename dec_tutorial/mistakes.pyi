# made from dec_tutorial/mistakes.py by .ci/stubs; do not edit
import typing

__all__ = ['EXPONENT', 'BATCH_TARGET', 'CHASING', 'NO_PARAMETER', 'DROPOUT', 'BEST_EPOCH', 'SKIPPED', 'PURITY', 'FRESH', 'MEAN', 'INVERTED', 'UNUSED', 'SCALES', 'RELU_CODE', 'RELU_DATA', 'RAGGED', 'MISTAKES', 'squared_kernel', 'chasing_loss', 'noisy_loss', 'skipping_accuracy', 'mean_loss', 'ragged_start']

from dec_tutorial.ablations import EXPONENT as EXPONENT
from dec_tutorial.ablations import BATCH_TARGET as BATCH_TARGET
from dec_tutorial.ablations import CHASING as CHASING
from dec_tutorial.ablations import NO_PARAMETER as NO_PARAMETER
from dec_tutorial.ablations import DROPOUT as DROPOUT
from dec_tutorial.ablations import BEST_EPOCH as BEST_EPOCH
from dec_tutorial.ablations import SKIPPED as SKIPPED
from dec_tutorial.ablations import PURITY as PURITY
from dec_tutorial.ablations import FRESH as FRESH
from dec_tutorial.ablations import MEAN as MEAN
from dec_tutorial.ablations import INVERTED as INVERTED
from dec_tutorial.ablations import UNUSED as UNUSED
from dec_tutorial.ablations import SCALES as SCALES
from dec_tutorial.ablations import RELU_CODE as RELU_CODE
from dec_tutorial.ablations import RELU_DATA as RELU_DATA
from dec_tutorial.ablations import RAGGED as RAGGED
MISTAKES: tuple
def squared_kernel(z: typing.Any, mu: typing.Any, alpha: typing.Any) -> typing.Any: ...
def chasing_loss(batch: typing.Any) -> typing.Any: ...
def noisy_loss(batch: typing.Any) -> typing.Any: ...
def skipping_accuracy(y: typing.Any, c: typing.Any) -> typing.Any: ...
def mean_loss(batch: typing.Any) -> typing.Any: ...
def ragged_start(z: typing.Any, k: typing.Any, n_init: typing.Any, seed: typing.Any) -> typing.Any: ...
