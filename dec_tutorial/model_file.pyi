# made from dec_tutorial/model_file.py by .ci/stubs; do not edit
import dec_tutorial.dec
import typing

__all__ = ['read_model', 'write_model']

def read_model(path: typing.Any, device: str = ..., cls: type = ...) -> dec_tutorial.dec.DEC: ...
def write_model(dec: dec_tutorial.dec.DEC, path: typing.Any) -> typing.Any: ...
