# made from dec_tutorial/paper/reproduction.py by .ci/stubs; do not edit
import dataclasses
import dec_tutorial.inside.reading
import dec_tutorial.paper.tables
import typing

__all__ = ['KL_CHANGES', 'AE_CHANGES', 'WHAT', 'WORK', 'shortened', 'details_cells', 'details_rows', 'Item', 'reproduce', 'dec_reproduce']

KL_CHANGES: dict
AE_CHANGES: dict
WHAT: dict
WORK: str
def shortened(recipe: typing.Any, share: float = ...) -> typing.Any: ...
def details_cells(cells: dec_tutorial.paper.tables.Cells, seeds: typing.Any, recipe: str, work: typing.Any, quick: bool = ...) -> typing.Any: ...
def details_rows(records: list) -> list: ...

@dataclasses.dataclass(frozen=True)
class Item:
    experiment: str
    run: object
    rows: object
    draw: object = ...
def reproduce(what: str, ds: dec_tutorial.inside.reading.Dataset, seeds: typing.Any = ..., recipe: str = ..., folder: typing.Any = ..., work: typing.Any = ..., quick: bool = ..., command: str | None = ..., say: typing.Any = ..., only: str | None = ...) -> list: ...
def dec_reproduce(what: str, data: str = ..., seeds: str = ..., recipe: str = ..., quick: bool = ..., out: str | None = ..., only: str | None = ...) -> typing.Any: ...
