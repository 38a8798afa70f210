from .data import load_data as load_data
from .dec import DEC as DEC

__version__: str
