# made from dec_tutorial/model_file.py by .ci/stubs; do not edit
import dec_tutorial.dec
import typing

__all__ = ['write_model', 'read_model']

def write_model(dec: dec_tutorial.dec.DEC, path: typing.Any) -> typing.Any: ...
def read_model(path: typing.Any, device: str = ..., cls: type = ...) -> dec_tutorial.dec.DEC: ...
