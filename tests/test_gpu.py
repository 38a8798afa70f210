"""A GPU does what the CPU does. Where there is one, these tests run on it; elsewhere once more in a
process of their own, on a GPU that is none (`pretended_gpu`)"""
import copy, pickle, sys
from dataclasses import replace
import numpy as np, pytest, torch
from scipy import sparse
from torch.utils import backend_registration
from dec_tutorial import training
from dec_tutorial.dec import DEC
from dec_tutorial.practice.seeing import Snapshots
from dec_tutorial.family.images import for_pictures
from dec_tutorial.methods import METHODS, Recipe
from dec_tutorial.sae import behind_pca
from dec_tutorial.practice.seeing import Journey, moving_map
from dec_tutorial.training import Rows, Stage

pretended = sys.modules.get('pretended_gpu')
gpu = pytest.mark.skipif(not (torch.cuda.is_available() or pretended), reason='needs a GPU')
tiny = Recipe('tiny', pretrain=Stage(5, lr=.1), finetune=Stage(12, lr=.3, average=.8),
              cluster=Stage(12, lr=.05, reset_momentum=True), dims=(24, 6), init='uniform',
              update_interval=4)
noisy = replace(tiny, pretrain=replace(tiny.pretrain, dropout=.2))   # each device has its own noise

def walk(): # in a process of its own: PyTorch cannot forget a kind of device
    del sys.modules[__name__]
    raise SystemExit(pytest.main([__file__, '-q', '-n0', '-p', 'pretended_gpu', '-p',
                                  'no:cacheprovider']))

@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available() or bool(pretended), reason='there is a GPU')
@pytest.mark.skipif(not hasattr(backend_registration, '_setup_privateuseone_for_python_backend'),
                    reason='this PyTorch knows no devices made in Python')
def test_on_a_gpu_that_is_none(start):
    r = start(walk).finish(1200)
    assert r.returncode == 0, (r.stdout + r.stderr)[-6000:]

@pytest.fixture(scope='module')
def x(): # points that overlap, so that equal results are no accident
    return np.random.default_rng(0).random((300, 16)).astype(np.float32)

def fitted(x, device='cuda', recipe=tiny, **kw):
    return DEC(3, recipe=recipe, max_iter=12, n_init=2, random_state=0, device=device,
               precision='float32', **kw).fit(x)

def suited(method): # arguments of a DEC whose points are pictures of 4 by 4
    convolves = 'Conv' in method                          # which cannot be trained layer by layer
    recipe = replace(tiny, pretrain=None) if convolves else tiny
    return dict(method=for_pictures(method, (4, 4)), recipe=recipe)

def assert_same(a, b, x):
    "Bit for bit, if the CPU computes for the pretended GPU, too"
    tol = dict(rtol=0, atol=0) if pretended else dict(rtol=1e-3, atol=1e-3)
    for f in ('transform', 'predict_proba'):
        np.testing.assert_allclose(getattr(a, f)(x), getattr(b, f)(x), **tol)
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, **tol)

@gpu
@pytest.mark.parametrize('method', METHODS)
def test_as_on_the_cpu(x, monkeypatch, method):
    "And no step waits for the GPU, only a look at the loss now and then, and a refresh"
    how, step, waited = suited(method), training.Trainer.step, []
    def watched(self): # a real GPU does not say when a program waits
        before = pretended.waits.copy()
        step(self)
        waited.extend(pretended.waits - before)
    with monkeypatch.context() as m:
        if pretended: m.setattr(training.Trainer, 'step', watched)
        there = fitted(x, **how)
    assert there.layer_.mu.device.type == ('pretended' if pretended else 'cuda')
    assert waited == []
    assert pretended is None or pretended.waits
    if method != 'IMSAT': assert_same(there, fitted(x, 'cpu', **how), x)        # which draws noise

@gpu
def test_points_that_stay_on_the_cpu(x):
    given = sparse.csr_matrix(x*(x > .5))
    assert_same(fitted(given), fitted(given, 'cpu'), given)

@gpu
@pytest.mark.parametrize('at', ['autoencoder 8', 'clusters 6'])
def test_resumes(tmp_path, x, monkeypatch, at):
    "Between two refreshes, and while weights are averaged; target and average come from the file"
    step = training.Trainer.step
    def stop(self):
        if f'{self.name} {self.t}' == at: raise KeyboardInterrupt
        step(self)
    with monkeypatch.context() as m:
        m.setattr(training.Trainer, 'step', stop)
        with pytest.raises(KeyboardInterrupt):
            fitted(x, recipe=noisy, checkpoint=tmp_path/'ck.pt')
    assert_same(fitted(x, recipe=noisy, checkpoint=tmp_path/'ck.pt'), fitted(x, recipe=noisy), x)

@gpu
def test_a_model_goes_anywhere(tmp_path, x):
    d = fitted(x)
    d.save(tmp_path/'m.safetensors')
    there, here = (DEC.load(tmp_path/'m.safetensors', device=at) for at in ('auto', 'cpu'))
    copies = copy.deepcopy(d), pickle.loads(pickle.dumps(d))
    for other in (there, here, *copies): assert_same(other, d, x)
    assert there.layer_.mu.device == d.layer_.mu.device
    assert here.layer_.mu.device.type == 'cpu'

@gpu
def test_goes_on_with_new_points(x):
    there, here = fitted(x), fitted(x, 'cpu')
    for d in (there, here): d.partial_fit(x[:64] + .1).partial_fit(x[64:])
    assert_same(there, here, x)

@gpu
def test_components_are_compared(x):
    there, here = fitted(x), fitted(x, 'cpu')
    a, b = (behind_pca(dec.autoencoder_, Rows(x, dec.scale_)) for dec in (there, here))
    assert a == pytest.approx(b, abs=0 if pretended else 1e-3)

@gpu
def test_is_watched(x):
    d = DEC(3, recipe=tiny, random_state=0, device='cuda')
    class Follow(training.Callback):
        def before_fit(self, trainer): self.journey = Journey(d, x)
        def after_refresh(self, trainer, q): self.journey.after_refresh(trainer, q)
    seen, kept = Follow(), Snapshots(lambda: d.transform(x), at=(0, 1))
    d.callbacks = [seen, kept]
    d.fit(x)
    assert len(kept.kept) == len(seen.journey.t) and '<svg' in moving_map(seen.journey)
