"""A GPU that is none, so that a machine without one can walk the way through one all the same

Its tensors say that they lie on a device of their own, and the CPU computes their numbers. What a
real GPU refuses is refused here (tensors of two devices in one operation, NumPy looking at them),
and `waits` counts what makes a program wait for a GPU. 'cuda' and 'auto' mean this device.
A plugin of pytest: `python -m pytest test_gpu.py -p pretended_gpu`, in the folder of the tests;
`.ci/seeds 22 --seeds 0 --gpu` runs pages on it."""
import os, sys, traceback
from collections import Counter
import pytest, torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from dec_tutorial.inside import machine

aten = torch.ops.aten
reading = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default,
           aten.nonzero.default, aten.masked_select.default}
moving, indexing = {aten._to_copy.default, aten.copy_.default}, {aten.index.Tensor,
                                                                 aten.index_put_.default}
waits = Counter()           # (what, the line of the package that did it): how often

class OnGPU(torch.Tensor):
    @staticmethod
    def __new__(cls, t): # t: the same numbers, on the CPU
        return torch.Tensor._make_wrapper_subclass(
            cls, t.shape, strides=t.stride(), storage_offset=t.storage_offset(), dtype=t.dtype,
            layout=t.layout, device=device)
    def __init__(self, t): self.numbers = t
    __torch_function__ = torch._C._disabled_torch_function_impl
    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kw=None): return compute(f, args, kw or {})
    def __format__(self, spec): return format(self.item() if self.ndim == 0 else str(self), spec)
    def __reduce_ex__(self, protocol): # in a file
        return self.numbers.detach().__reduce_ex__(protocol)
    def __deepcopy__(self, memo):
        new = OnGPU(self.numbers.clone())
        if isinstance(self, torch.nn.Parameter): new = torch.nn.Parameter(new, self.requires_grad)
        return memo.setdefault(id(self), new)

def wait(what):
    at = [f'{os.path.basename(f.filename)}: {f.line}' for f in traceback.extract_stack()
          if 'dec_tutorial' in f.filename and 'tests' not in f.filename]
    waits[what, at[-1] if at else ''] += 1

def tensors_in(values): # arguments of an operation, some of which are lists
    lists = [v if isinstance(v, (tuple, list)) else (v,) for v in values]
    return [v for some in lists for v in some if isinstance(v, torch.Tensor)]

def exchanged(v, kind, f): # `f` of each tensor of a kind
    if isinstance(v, kind): return f(v)
    return type(v)(exchanged(one, kind, f) for one in v) if isinstance(v, (tuple, list)) else v

def compute(f, args, kw):
    "One operation of PyTorch, some of whose tensors lie on the GPU or shall"
    tensors = tensors_in((*args, *kw.values()))
    there = [v for v in tensors if isinstance(v, OnGPU)]
    here = [v for v in tensors if not isinstance(v, OnGPU)]
    to = kw.get('device') and torch.device(kw['device']).type
    result_there = (isinstance(args[0], OnGPU) if f is aten.copy_.default
                    else to == device.type if to else bool(there))
    if f in moving or f in reading:
        if there and not (f in moving and result_there): wait(str(f))
    # a mask has to be counted, indices on the CPU are brought over
    elif f in indexing and isinstance(args[0], OnGPU):
        if any(v.dtype == torch.bool or not isinstance(v, OnGPU) for v in tensors_in(args[1])):
            wait(str(f))
    elif there and any(v.ndim for v in here):
        raise RuntimeError(f'{f}: expected all tensors to be on the same device, but they are on '
                           f'{", ".join(str(v.device) for v in tensors)}')
    def numbers(v): return exchanged(v, OnGPU, lambda g: g.numbers)
    kw = {name: numbers(v) for name, v in kw.items()} | (dict(device='cpu') if to else {})
    out = f(*numbers(args), **kw)
    if not result_there: return out
    same = {id(v.numbers): v for v in there}                      # what was changed in place
    return exchanged(out, torch.Tensor, lambda t: same[id(t)] if id(t) in same else OnGPU(t))

class Watch(TorchDispatchMode):
    "For what makes tensors, or moves them, and sees none of `OnGPU` before"
    def __torch_dispatch__(self, f, types, args=(), kw=None):
        kw = kw or {}
        mine = (torch.device(kw.get('device') or 'cpu').type == device.type
                or any(isinstance(v, OnGPU) for v in tensors_in((*args, *kw.values()))))
        return (compute if mine else lambda f, args, kw: f(*args, **kw))(f, args, kw)

backend_registration._setup_privateuseone_for_python_backend('pretended')    # PyTorch 2.10 or newer
device = torch.device('pretended', 0)
torch.set_num_threads(1)                                    # small matrices, and much else to do

torch.cuda.get_device_name = lambda *_: 'none, pretended'
real = machine.pick_device
def pick_device(kind='auto'): return device if str(kind) in ('auto', 'cuda') else real(kind)
for m in [m for n, m in sys.modules.items() if n.startswith('dec_tutorial')]:
    if getattr(m, 'pick_device', None) is real: m.pick_device = pick_device

@pytest.fixture(autouse=True)
def _watched():
    waits.clear()
    with Watch(): yield
