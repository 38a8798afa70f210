# made from dec_tutorial/paper/mistakes.py by .ci/stubs; do not edit
import dec_tutorial.paper.ablations
import typing

__all__ = ['EXPONENT', 'BATCH_TARGET', 'CHASING', 'NO_PARAMETER', 'DROPOUT', 'BEST_EPOCH', 'SKIPPED', 'PURITY', 'FRESH', 'MEAN', 'INVERTED', 'UNUSED', 'SCALES', 'RELU_CODE', 'RELU_DATA', 'RAGGED', 'MISTAKES', 'squared_kernel', 'chasing_loss', 'noisy_loss', 'skipping_accuracy', 'mean_loss', 'ragged_start']

EXPONENT: dec_tutorial.paper.ablations.Variant
BATCH_TARGET: dec_tutorial.paper.ablations.Variant
CHASING: dec_tutorial.paper.ablations.Variant
NO_PARAMETER: dec_tutorial.paper.ablations.Variant
DROPOUT: dec_tutorial.paper.ablations.Variant
BEST_EPOCH: dec_tutorial.paper.ablations.Variant
SKIPPED: dec_tutorial.paper.ablations.Variant
PURITY: dec_tutorial.paper.ablations.Variant
FRESH: dec_tutorial.paper.ablations.Variant
MEAN: dec_tutorial.paper.ablations.Variant
INVERTED: dec_tutorial.paper.ablations.Variant
UNUSED: dec_tutorial.paper.ablations.Variant
SCALES: dec_tutorial.paper.ablations.Variant
RELU_CODE: dec_tutorial.paper.ablations.Variant
RELU_DATA: dec_tutorial.paper.ablations.Variant
RAGGED: dec_tutorial.paper.ablations.Variant
MISTAKES: tuple
def squared_kernel(z: typing.Any, mu: typing.Any, alpha: typing.Any) -> typing.Any: ...
def chasing_loss(batch: typing.Any) -> typing.Any: ...
def noisy_loss(batch: typing.Any) -> typing.Any: ...
def skipping_accuracy(y: typing.Any, c: typing.Any) -> typing.Any: ...
def mean_loss(batch: typing.Any) -> typing.Any: ...
def ragged_start(z: typing.Any, k: typing.Any, n_init: typing.Any, seed: typing.Any) -> typing.Any: ...
