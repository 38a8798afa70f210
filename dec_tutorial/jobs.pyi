# made from dec_tutorial/jobs.py by .ci/stubs; do not edit
import typing

__all__ = ['job_key']

def job_key(x: typing.Any, **what: typing.Any) -> str: ...
