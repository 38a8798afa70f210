# made from dec_tutorial/family/images.py by .ci/stubs; do not edit
import dec_tutorial.inside.reading
import torch.nn.modules.module
import typing

__all__ = ['ConvAutoEncoder', 'BothEnds', 'PooledAutoEncoder', 'needs_pictures', 'for_pictures']


class ConvAutoEncoder(torch.nn.modules.module.Module):
    d: typing.Any
    decoder: typing.Any
    dims: typing.Any
    encoder: typing.Any
    image_shape: typing.Any
    def __init__(self, d: int, dims: tuple = ..., init: str = ..., seed: int = ..., image_shape: tuple | None = ..., channels: tuple = ...) -> None: ...
    def forward(self, x: typing.Any) -> typing.Any: ...

class BothEnds(torch.nn.modules.module.Module):
    first: typing.Any
    rest: typing.Any
    def __init__(self, first: typing.Any, rest: typing.Any) -> None: ...
    def forward(self, x: typing.Any) -> typing.Any: ...

class PooledAutoEncoder(ConvAutoEncoder):
    encoder: typing.Any
    def __init__(self, d: typing.Any, dims: typing.Any = ..., init: typing.Any = ..., seed: typing.Any = ..., image_shape: typing.Any = ..., channels: typing.Any = ...) -> None: ...
def needs_pictures(method: str) -> bool: ...
def for_pictures(method: str, ds: dec_tutorial.inside.reading.Dataset) -> dict: ...
