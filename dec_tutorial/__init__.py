__version__ = "0.1.0"

__all__ = ['DEC', 'load_data']

def __getattr__(name): # imported when first asked for, since PyTorch takes seconds
    if name == 'DEC':
        from .dec import DEC
        return DEC
    if name == 'load_data':
        from .data import load_data
        return load_data
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

def __dir__(): return sorted({*globals(), *__all__})
