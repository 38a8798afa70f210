"A job that is killed at any moment and started again ends as if nothing had happened"
import abc, collections, copy, functools, importlib, json, os, random, re, signal, socket, subprocess, sys
import threading, time, warnings
from dataclasses import replace
from pathlib import Path
import numpy as np, pandas as pd, pytest, scipy.special, torch
from safetensors import safe_open
from scipy import sparse
from conftest import Child, files, run_script, small
from dec_tutorial import command_line, dec, sae, training
from dec_tutorial.practice import how_many
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC, Recipe
from dec_tutorial.checkpoint import job_key
from dec_tutorial.inside.workers import apart, workers
from dec_tutorial.checkpoint import Checkpoint
from dec_tutorial.training import Stage

tiny = Recipe('tiny', pretrain=Stage(30, lr=.1, dropout=.2), finetune=Stage(60, lr=.3, average=.8),
              cluster=Stage(60, lr=.05, reset_momentum=True), dims=(24, 6), init='uniform',
              update_interval=15)

@pytest.fixture(scope='module')
def x(): # points that overlap, so that equal labels are no accident
    return np.random.default_rng(0).random((300, 20)).astype(np.float32)

def model(folder): # all that a run made: arrays, and what the header tells of its course
    with safe_open(folder/'model.safetensors', 'pt') as f:
        arrays = {k: f.get_tensor(k) for k in f.keys()}
        header = json.loads(f.metadata()['dec_tutorial'])
    return arrays, {k: header[k] for k in ('history', 'n_iter', 'stop_reason')}

def assert_same(a, b):
    (a, head_a), (b, head_b) = model(a), model(b)
    assert head_a == head_b and a.keys() == b.keys()
    for k in a: assert torch.equal(a[k], b[k]), k                                  # bit for bit

# ---- What happens inside the child
def with_tiny(): dec.RECIPES['fast'] = tiny
def save_always(): Checkpoint.__init__.__defaults__ = (None, -1., True)

def watch(log, moment=None, sig=None):
    "Note every batch in `log`; die at the moment named: 'STAGE T', or a step of the job"
    def before(module, name, at, times=1):
        old, left = getattr(module, name), [times]
        def new(*args, **kw):
            left[0] -= at == moment and (at != 'saving' or '.checkpoint' in str(args[1]))
            if at == moment and left[0] == 0: signal.raise_signal(sig)
            return old(*args, **kw)
        setattr(module, name, new)
    step = training.Trainer.step
    def noted(self):
        with open(log, 'a') as f: f.write(f'{self.name} {self.t}\n')
        old_loss = self.loss_func
        def loss_func(b):
            loss = old_loss(b)
            # after dropout has drawn, before the step
            if f'{self.name} {self.t}' == moment: signal.raise_signal(sig)
            return loss
        self.loss_func = loss_func
        try: step(self)
        finally: self.loss_func = old_loss
    training.Trainer.step = noted
    before(command_line, 'raw_kmeans', 'raw k-means')
    before(dec.DEC, '_start', 'k-means')
    before(os, 'replace', 'saving', 20)
    before(command_line, '_report', 'report')

class Watch: # as an argument for `before`, which must be a function without arguments
    def __init__(self, *args): self.args = args
    def __call__(self): watch(*self.args)

def run_tiny(folder, tmp, x, out, moment=None, sig=None, setup=(save_always,)):
    "`dec_fit` with tiny layers that dies at the moment; its batches are noted in OUT.log"
    np.save(folder/'x.npy', x)
    argv = ['dec_fit', 'x.npy', '--n_clusters', 4, '--out', out]
    return Child(tmp, folder, run_script, argv,
                 (with_tiny, *setup, Watch(folder/f'{out}.log', moment, sig))).finish()

@pytest.fixture
def fit(tmp_path, tmp_path_factory, x):
    return lambda *args, **kw: run_tiny(tmp_path, tmp_path_factory.mktemp('child'), x, *args, **kw)

@pytest.fixture(scope='module')
def whole(tmp_path_factory, x): # the folder of a run that nobody disturbed
    folder = tmp_path_factory.mktemp('whole')
    assert run_tiny(folder, folder, x, 'whole').returncode == 0
    assert (len(batches(folder/'whole.log')) == len(set(batches(folder/'whole.log'))) == 2*30 + 60
            + 60)
    return folder/'whole'

def batches(log): return log.read_text().splitlines()

# ---- The tests
def test_a_seed_fixes_everything(x):
    a, b, c = (DEC(4, recipe=tiny, random_state=s).fit(x) for s in (1, 1, 2))
    assert ((a.labels_ == b.labels_).all() and (a.cluster_centers_ == b.cluster_centers_).all()
            and a.history_ == b.history_)
    assert (a.cluster_centers_ != c.cluster_centers_).any()

moments = ['raw k-means', 'layer 1 of 2 7', 'layer 2 of 2 0', 'autoencoder 17', 'saving', 'k-means',
           'clusters 5', 'clusters 30', 'clusters 44', 'report']

@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGINT], ids=['SIGKILL', 'SIGINT'])
def test_killed_again_and_again(fit, whole, tmp_path, sig):
    "One job that dies at every moment in turn, against one that lives"
    for m in moments:
        r = fit('torn', m, sig)
        assert r.returncode == (-sig if sig == signal.SIGKILL else 1), (m, r)
        if sig == signal.SIGINT:
            assert 'give the same command again' in r.stderr and 'Traceback' not in r.stderr
        assert not (tmp_path/'torn'/'record.json').exists()
    r = fit('torn')
    assert r.returncode == 0, r.stderr
    assert_same(tmp_path/'torn', whole)
    once, torn = batches(whole.with_suffix('.log')), batches(tmp_path/'torn.log')
    # no life repeats more than the batch that the last one died in
    assert set(torn) == set(once) and len(torn) <= len(once) + len(moments)
    assert files(tmp_path/'torn') == files(whole)                     # no fragment of a file either

@pytest.mark.parametrize('moment', ['layer 1 of 2 7', 'clusters 5', 'clusters 30'])
def test_ctrl_c_within_a_batch(fit, whole, tmp_path, moment):
    """The timed save is far away, so what is remembered is what Ctrl-C leaves: it must not be
    half a batch (dropout drawn, target refreshed)"""
    assert fit('torn', moment, signal.SIGINT, setup=()).returncode == 1
    assert fit('torn', setup=()).returncode == 0
    assert_same(tmp_path/'torn', whole)

@pytest.mark.parametrize('sig', [signal.SIGKILL, signal.SIGINT], ids=['SIGKILL', 'SIGINT'])
def test_killed_from_outside(start, tmp_path, x, sig):
    "At whatever moment the signal comes"
    np.save(tmp_path/'x.npy', x)
    run = lambda out: start(run_script, ['dec_fit', 'x.npy', '--n_clusters', 4, '--ae_iter', 1200,
                                         '--max_iter', 40, '--update_interval', 20, '--out', out],
                            (small, save_each_tenth))
    child, deadline = run('torn'), time.time() + 60
    while time.time() < deadline and child.process.exitcode is None:
        time.sleep(.05)
        saved = ([Checkpoint(f) for f in (tmp_path/'torn').glob('.checkpoint-*.pt')]
                 if (tmp_path/'torn').exists() else [])
        if saved and saved[0].running and saved[0].running[1]['t'] > 5: break
    assert child.process.exitcode is None, child.finish().stderr
    os.kill(child.pid, sig)
    r = child.finish()
    assert r.returncode == (-sig if sig == signal.SIGKILL else 1), r
    [ck] = (Checkpoint(f) for f in (tmp_path/'torn').glob('.checkpoint-*.pt'))
    assert (ck.running[0] == 'autoencoder' and 5 < ck.running[1]['t'] < 1200
            and 'raw k-means' in ck.done)
    again, once = run('torn').finish(), run('whole').finish()
    assert again.returncode == once.returncode == 0, again.stderr + once.stderr
    assert_same(tmp_path/'torn', tmp_path/'whole')
    assert files(tmp_path/'torn') == files(tmp_path/'whole')

def test_killed_at_random(whole, tmp_path, tmp_path_factory, x):
    """Ten kills, or DEC_TUTORIAL_KILLS of them, at any moment, several in the life of a job: it
    ends as if nothing had happened"""
    left, rng = int(os.environ.get('DEC_TUTORIAL_KILLS', 10)), random.Random(0)
    np.save(tmp_path/'x.npy', x)
    def life(out):
        return Child(tmp_path_factory.mktemp('child'), tmp_path, run_script,
                     ['dec_fit', 'x.npy', '--n_clusters', 4, '--out', out],
                     (with_tiny, save_always))
    start = time.time()
    assert life('timed').finish().returncode == 0
    takes, jobs = time.time() - start, 0
    while left:
        out, jobs = f'torn{jobs}', jobs + 1
        for _ in range(min(left, rng.randint(2, 6))):
            child = life(out)
            child.process.join(rng.uniform(0, takes))
            if child.process.exitcode is not None: break
            child.process.kill(); child.process.join(); left -= 1
            with warnings.catch_warnings():
                warnings.simplefilter('error')   # a checkpoint that cannot be read would be told of
                for f in (tmp_path/out).glob('.checkpoint-*.pt'): Checkpoint(f)
        r = life(out).finish()
        assert r.returncode == 0 and 'cannot be read' not in r.stderr, r.stderr
        assert_same(tmp_path/out, whole)
        assert files(tmp_path/out) == files(whole)

def save_each_tenth(): Checkpoint.__init__.__defaults__ = (None, .1, True)

@pytest.mark.parametrize('harm', [lambda b: b[:len(b)//2], lambda b: b'',
                                  lambda b: b'no checkpoint', lambda b: b[:200] + bytes(64)
                                  + b[264:]], ids=['cut', 'empty', 'text', 'holes'])
def test_damaged_checkpoint(fit, whole, tmp_path, harm):
    fit('torn', 'clusters 20', signal.SIGKILL)
    [ck] = (tmp_path/'torn').glob('.checkpoint-*.pt')
    ck.write_bytes(harm(ck.read_bytes()))
    r = fit('torn')
    assert (r.returncode == 0
            and re.search('checkpoint .* cannot be read .* starts over', r.stderr)), r.stderr
    assert_same(tmp_path/'torn', whole)
    assert batches(tmp_path/'torn.log')[-180:] == batches(whole.with_suffix('.log'))

class Stop(training.Callback):
    def __init__(self, at): self.at = at
    def after_batch(self, trainer):
        if trainer.t == self.at: raise KeyboardInterrupt

@pytest.fixture
def left(tmp_path, x): # the checkpoint of a run that was interrupted in its KL phase
    with pytest.raises(KeyboardInterrupt):
        DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/'ck.pt',
            callbacks=[Stop(20)]).fit(x)
    return tmp_path/'ck.pt'

def test_an_estimator_resumes(left, x):
    whole = DEC(4, recipe=tiny, random_state=0).fit(x)
    # at batch 20 already, so that it never stops there
    resumed = DEC(4, recipe=tiny, random_state=0, checkpoint=left, callbacks=[Stop(20)]).fit(x)
    assert ((resumed.cluster_centers_ == whole.cluster_centers_).all()
            and resumed.history_ == whole.history_)
    assert not left.exists()

@pytest.mark.parametrize('given', [str, Checkpoint])
def test_a_path_is_gone_at_the_end_and_a_checkpoint_stays(tmp_path, x, given):
    path = tmp_path/'ck.pt'
    dec = DEC(4, recipe=tiny, random_state=0, checkpoint=given(path))
    dec.fit_autoencoder(x)
    assert path.exists() == (given is Checkpoint)
    dec.fit(x)
    assert path.exists() == (given is Checkpoint)

@pytest.mark.parametrize('what,value',
                         [('random_state', 1), ('n_clusters', 5), ('alpha', 2.), ('n_init', 3),
                          ('backprop', False), ('max_iter', 61), ('update_interval', 9),
                          ('recipe', replace(tiny, dims=(24, 5)))])
def test_a_checkpoint_of_another_job_is_refused(left, x, what, value):
    args = dict(n_clusters=4, recipe=tiny, random_state=0, checkpoint=left) | {what: value}
    before = left.read_bytes()
    with pytest.raises(DecError, match='another job'): DEC(**args).fit(x)
    assert left.read_bytes() == before

def test_other_points_are_another_job(left, x):
    y = x.copy(); y[-1, -1] += 1e-3
    for other in (y, x[:-1]):
        with pytest.raises(DecError, match='another job'):
            DEC(4, recipe=tiny, random_state=0, checkpoint=left).fit(other)

def test_another_autoencoder_is_another_job(tmp_path, x):
    one, two = (sae.AutoEncoder(20, (6,), 'uniform', s) for s in (0, 1))
    make = lambda ae, **kw: DEC(4, recipe=tiny, random_state=0, autoencoder=ae, **kw)
    with pytest.raises(KeyboardInterrupt):
        make(one, checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)]).fit(x)
    with pytest.raises(DecError, match='another job'):
        make(two, checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)]).fit(x)
    resumed = make(one, checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)]).fit(x)
    assert (resumed.cluster_centers_ == make(one).fit(x).cluster_centers_).all()

@pytest.mark.parametrize('kind', [np.asarray, sparse.csr_matrix])
def test_the_key_of_a_job_sees_the_shape(kind):
    assert (job_key(kind(np.eye(4, 6, dtype=np.float32)))
            != job_key(kind(np.eye(4, 8, dtype=np.float32))))
    if kind is np.asarray:
        assert job_key(np.ones((4, 6), np.float32)) != job_key(np.ones((6, 4), np.float32))

def bent(power): # two functions of one name, and one that only looks like them
    def target(q): return q**power/(q**power).sum(1, keepdim=True)
    return target

class Weighed:
    def __init__(self, weight): self.weight = weight
    def __call__(self, batch): return self.weight*dec.dec_loss(batch)

def test_the_key_of_a_job_sees_what_functions_do():
    key = lambda **what: job_key(np.eye(3, dtype=np.float32), **what)
    assert key(target=bent(2)) == key(target=bent(2)) != key(target=bent(3))
    # not their addresses
    assert key(loss=Weighed(1.)) == key(loss=Weighed(1.)) != key(loss=Weighed(2.))
    assert (key(loss=Weighed(1.).__call__) == key(loss=Weighed(1.).__call__)
            != key(loss=Weighed(2.).__call__))
    assert key(loss=lambda b: 1) != key(loss=lambda b: 2)
    assert (key(network=sae.AutoEncoder(4, (2,), seed=0))
            != key(network=sae.AutoEncoder(4, (2,), seed=1)))
    mine = []; mine.append(mine)
    with pytest.raises(DecError, match='cannot be told'): key(target=lambda q: mine)

def reads(held): # a loss that reads an object, in a closure
    def loss(batch): return held
    return loss

@pytest.mark.parametrize('one, two', [
    (pd.Series([1.]), pd.Series([2.])), (sparse.eye(3, format='csr'), 2*sparse.eye(3, format='csr')),
    (collections.deque([1]), collections.deque([2])), ({1}, {2}), (range(3), range(4)), (1j, 2j),
    (b'a', b'b'), (re.compile('a'), re.compile('b')), (Path('a'), Path('b')),
    (np.array([{1: 2}]), np.array([{1: 3}])), (torch.ones(2).bfloat16(), torch.zeros(2).bfloat16()),
    (torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)), (np, scipy.special),
    (torch.softmax, scipy.special.softmax)], ids=lambda v: type(v).__name__)
def test_the_key_of_a_job_sees_what_objects_hold(one, two):
    key = lambda v: job_key(np.eye(3, dtype=np.float32), loss=reads(v))
    again = one if callable(one) or one is np or isinstance(one, torch.Generator) else copy.copy(one)
    assert key(one) == key(again) != key(two)

def power(q, p=1): return q**p
def wrapped(w):
    @functools.wraps(torch.nn.functional.mse_loss)
    def f(*a): return w*torch.nn.functional.mse_loss(*a)
    return f
class ByHand: # a decorator as a class
    def __init__(self, f, w): functools.update_wrapper(self, f); self.f, self.w = f, w
    def __call__(self, q): return self.w*self.f(q)
class Doubled(float):
    def __call__(self, q): return self*q
class Added(float):
    def __call__(self, q): return self + q
def with_attribute(p):
    def f(q): return q**f.p
    f.p = p
    return f
def has(f): return type('Has', (), dict(f=f))
def boxed(v): # repr would leave its middle out
    a, box = np.zeros(5000), np.empty(1, object)
    a[2500], box[0] = v, a
    return box
def two_parts(order):
    parts = [('a', torch.nn.ReLU()), ('b', torch.nn.BatchNorm1d(2))]
    return torch.nn.Sequential(collections.OrderedDict(parts[::order]))
def frozen(yes):
    torch.manual_seed(0)
    return torch.nn.Linear(2, 2).requires_grad_(not yes)
def as_property(f): return property(lambda self: 0, f)
def thrice(*which):
    a, b = Weighed(1.), Weighed(2.)
    return [dict(a=a, b=b)[w] for w in which]
partial, partialmethod = functools.partial, functools.partialmethod

@pytest.mark.parametrize('one, two', [
    (lambda: wrapped(1), lambda: wrapped(100)),
    (lambda: wrapped(1), lambda: torch.nn.functional.mse_loss),
    (lambda: torch.no_grad()(torch.nn.functional.relu), lambda: torch.nn.functional.relu),
    (lambda: torch.vmap(power), lambda: torch.vmap(power, in_dims=1)),
    (lambda: thrice(*'aba'), lambda: thrice(*'abb')),
    (lambda: functools.update_wrapper(partial(power, p=2), power),
     lambda: functools.update_wrapper(partial(power, p=3), power)),
    (lambda: ByHand(power, 1), lambda: ByHand(power, 2)),
    (lambda: has(partial(power, p=2)), lambda: has(partial(power, p=3))),
    (lambda: has(partialmethod(power, p=2))(), lambda: has(partialmethod(power, p=3))()),
    (lambda: has(Weighed(1.).__call__), lambda: has(Weighed(2.).__call__)),
    (lambda: has(staticmethod(power)), lambda: has(classmethod(power))),
    (lambda: has(as_property(lambda self, v: 1)), lambda: has(as_property(lambda self, v: 2))),
    (lambda: torch.ones(2).mul, lambda: torch.zeros(2).mul), (lambda: {1: 2}.get, lambda: {1: 3}.get),
    (lambda: np.eye(2).dot, lambda: (2*np.eye(2)).dot),
    (lambda: lambda *q: sum(q), lambda: lambda q: sum(q)),
    (lambda: lambda *q: len(q), lambda: lambda **q: len(q)),
    (lambda: lambda a, b: b, lambda: lambda a, *b: b),
    (lambda: two_parts(1), lambda: two_parts(-1)), (lambda: frozen(True), lambda: frozen(False)),
    (lambda: with_attribute(2), lambda: with_attribute(3)), (lambda: Doubled(1), lambda: Added(1)),
    (lambda: collections.defaultdict(int), lambda: collections.defaultdict(list)),
    (lambda: {1: 2}, lambda: {'1': 2}), (lambda: b'a', lambda: '61'), (lambda: boxed(0), lambda: boxed(1)),
    (lambda: np.zeros(1, [('a', 'i4'), ('b', 'i4')]), lambda: np.zeros(1, [('b', 'i4'), ('a', 'i4')])),
    (lambda: np.ma.array([1e20], mask=[True]), lambda: np.ma.array([1e20]))], ids=range(28))
def test_jobs_that_look_alike(one, two):
    key = lambda v: job_key(np.eye(3, dtype=np.float32), loss=v)
    assert key(one()) == key(one()) != key(two()) == key(two())

@pytest.mark.parametrize('code', [
    'def loss(q):\n    import my_module\n    return q*my_module.k',
    'def loss(q):\n    from my_module import k\n    return q*k',
    'def make():\n    import my_module\n    return lambda q: q*my_module.k\nloss = make()',
    'import my_module\ndef loss(q, m=my_module): return q*m.k',
    'import my_module\nclass Loss:\n    m = my_module\nloss = Loss()'])
def test_a_module_of_the_user_in_any_place(tmp_path, monkeypatch, code):
    (tmp_path/'my_module.py').write_text('k = 1')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'my_module', raising=False)
    my_module = importlib.import_module('my_module')
    exec(code, made := dict(__name__='of_the_user'))
    key = lambda: job_key(np.eye(3, dtype=np.float32), loss=made['loss'])
    before = key()
    my_module.k = 2
    assert key() != before
    my_module.k = 1
    assert key() == before

def test_what_cannot_be_told_apart_is_refused():
    for v in ((i for i in range(3)), threading.Lock()):
        with pytest.raises(DecError, match='cannot be told from others'):
            job_key(np.eye(3, dtype=np.float32), loss=v)

def test_a_slow_disk_does_not_save_at_every_batch(tmp_path, monkeypatch):
    now, saves = [0.], []
    monkeypatch.setattr(training.time, 'monotonic', lambda: now[0])
    def keep(self): now[0] += 10; saves.append(now[0])
    monkeypatch.setattr(Checkpoint, 'keep', keep)
    class Tick(training.Callback):
        def after_batch(self, trainer): now[0] += 1
    w = torch.nn.Parameter(torch.ones(1))
    trainer = training.Trainer(lambda b: (w**2).sum(), [w], 8, Stage(60, lr=.1), callbacks=[Tick()])
    Checkpoint(tmp_path/'ck.pt', every=5).run('job', trainer)
    assert 8 <= len(saves) <= 12                       # 60 batches of a second, a save after each 5

def test_a_drawn_seed_is_kept_without_a_key_too(tmp_path, x):
    # of some drawn seeds a run settles before batch 20; with tol=0 none does
    make = lambda: DEC(4, recipe=tiny, tol=0., callbacks=[Stop(20)],
                       checkpoint=Checkpoint(tmp_path/'ck.pt', check=False))
    with pytest.raises(KeyboardInterrupt): make().fit(x)
    resumed = make().fit(x)
    whole = DEC(4, recipe=tiny, tol=0., random_state=resumed.seed_).fit(x)
    assert (resumed.cluster_centers_ == whole.cluster_centers_).all()

def test_more_workers_than_rows(monkeypatch):
    rows = training.Rows(np.arange(6, dtype=np.float32).reshape(3, 2))
    monkeypatch.setattr(training, 'worker', lambda: (3, 4))
    monkeypatch.setattr(training, '_gather', lambda out, share: out)
    assert training.apply_chunked(lambda b: b, rows).shape == (1, 2)      # one to send, of no account

def test_a_checkpoint_without_a_file_remembers_nothing(x):
    job = DEC(4, recipe=tiny, random_state=0, checkpoint=Checkpoint())
    other = np.ascontiguousarray(x[::-1])
    a = job.fit(x).labels_
    assert ((job.fit(other).labels_ == DEC(4, recipe=tiny, random_state=0).fit(other).labels_).all()
            and (job.fit(x).labels_ == a).all())

def test_an_open_checkpoint_of_another_job_is_refused(left, x):
    with pytest.raises(DecError, match='another job'):
        DEC(5, recipe=tiny, random_state=0, checkpoint=Checkpoint(left)).fit(x)

def test_other_callbacks_are_refused(left, x):
    with pytest.raises(DecError, match='other callbacks'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=left).fit(x)

def test_a_seed_that_was_drawn_belongs_to_the_job(tmp_path, x):
    make = lambda **kw: DEC(4, recipe=tiny, checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)], **kw)
    with pytest.raises(KeyboardInterrupt): make().fit(x)
    resumed = make().fit(x)
    whole = DEC(4, recipe=tiny, random_state=resumed.seed_).fit(x)
    assert (resumed.cluster_centers_ == whole.cluster_centers_).all()

def test_what_a_callback_moved_is_kept(tmp_path, x):
    "Centroids that are frozen for the optimiser, and moved by a callback before the kill"
    class Move(training.Callback):
        def after_batch(self, trainer):
            if trainer.t == 10: trainer.batch.layer.mu.data.add_(1.)
    make = lambda *stop, **kw: DEC(4, recipe=tiny, random_state=0, train_centroids=False,
                                   callbacks=[Move(), *stop], **kw)
    with pytest.raises(KeyboardInterrupt): make(Stop(20), checkpoint=tmp_path/'ck.pt').fit(x)
    assert (make(Stop(20), checkpoint=tmp_path/'ck.pt').fit(x).cluster_centers_
            == make().fit(x).cluster_centers_).all()

@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_an_autoencoder_resumes_on_a_gpu(tmp_path, x, monkeypatch):
    "While its weights are averaged; the average comes from the file, too"
    make = lambda **kw: DEC(4, recipe=tiny, random_state=0, device='cuda', precision='float32',
                            **kw)
    step = training.Trainer.step
    def stop(self):
        if self.name == 'autoencoder' and self.t == 40: raise KeyboardInterrupt
        step(self)
    with monkeypatch.context() as m:
        m.setattr(training.Trainer, 'step', stop)
        with pytest.raises(KeyboardInterrupt): make(checkpoint=tmp_path/'ck.pt').fit(x)
    assert np.allclose(make(checkpoint=tmp_path/'ck.pt').fit(x).cluster_centers_,
                       make().fit(x).cluster_centers_, atol=1e-4)

@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_resume_on_a_gpu(tmp_path, x):
    make = lambda **kw: DEC(4, recipe=tiny, random_state=0, device='cuda', precision='float32',
                            **kw)
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)]).fit(x)
    # between two refreshes: the target comes from the file
    resumed = make(checkpoint=tmp_path/'ck.pt', callbacks=[Stop(20)]).fit(x)
    assert np.allclose(resumed.cluster_centers_, make().fit(x).cluster_centers_, atol=1e-4)

@pytest.mark.parametrize('name', ['customers.csv', 'model.safetensors'])
def test_a_file_that_is_no_checkpoint_is_kept(tmp_path, x, name):
    (tmp_path/name).write_bytes(b'a,b\n1,2\n')
    with pytest.raises(DecError, match='is not a checkpoint, and is left as it is'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/name).fit(x)
    assert os.listdir(tmp_path) == [name] and (tmp_path/name).read_bytes() == b'a,b\n1,2\n'

def test_zips_of_other_kinds_are_kept(tmp_path, x): # what torch.save writes is a zip, too
    np.savez(tmp_path/'points.npz', x=x)
    torch.save(dict(weights=torch.ones(3)), tmp_path/'weights.pt')
    for f in (tmp_path/'points.npz', tmp_path/'weights.pt'):
        before = f.read_bytes()
        with pytest.raises(DecError, match='is not a checkpoint, and is left as it is'): Checkpoint(f)
        assert f.read_bytes() == before and len(os.listdir(tmp_path)) == 2

def test_a_model_of_the_users_is_not_renamed(tmp_path): # a whole module, which is not read
    torch.save(torch.nn.Linear(2, 2), tmp_path/'model.pt')
    before = (tmp_path/'model.pt').read_bytes()
    with pytest.raises(DecError, match='is not a checkpoint, and is left as it is'):
        Checkpoint(tmp_path/'model.pt')
    assert os.listdir(tmp_path) == ['model.pt'] and (tmp_path/'model.pt').read_bytes() == before

def test_a_checkpoint_with_any_byte_turned(tmp_path): # goes on, is set aside, or is left as it is
    Checkpoint(f := tmp_path/'f.pt').once('step', lambda: torch.arange(4.))
    whole, ends = f.read_bytes(), set()
    for i in range(0, len(whole), 7):
        f.write_bytes(whole[:i] + bytes([whole[i] ^ 32]) + whole[i + 1:])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter('always')
            try: Checkpoint(f); ends.add('aside' if told else 'read')
            except DecError: ends.add('left')
        for kept in tmp_path.glob('*.unreadable*'): kept.unlink()
    assert 'aside' in ends

def test_what_cannot_be_stored_is_refused_every_time_and_forgotten(tmp_path):
    ck = Checkpoint(tmp_path/'ck.pt')
    for _ in range(2):
        with pytest.raises(DecError, match="'odd'.* no set"): ck.once('odd', lambda: {1, 2})
    assert type(ck.once('fine', lambda: np.float64(1.5))) is float         # as a later life has it
    assert Checkpoint(tmp_path/'ck.pt').done == dict(fine=1.5)

class Diary(training.Callback): # keeps what a checkpoint has to hold
    def __init__(self, page): self.page = page
    def state_dict(self): return dict(page=self.page)
    def load_state_dict(self, s): self.page = s['page']

def test_what_a_checkpoint_holds_can_be_read_again(tmp_path, x):
    fit = lambda file, diary, at: DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/file,
                                      callbacks=[diary, Stop(at)]).fit(x)
    with pytest.raises(KeyboardInterrupt): fit('ck.pt', Diary(np.float64(2.5)), 20)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        fit('ck.pt', again := Diary(None), -1)
    assert again.page == 2.5
    with pytest.raises(DecError, match="'page'.* no ndarray"): fit('new.pt', Diary(np.ones(3)), 20)

def test_a_curve_is_not_taken_for_that_of_other_points(tmp_path, x, monkeypatch):
    curve = lambda x, **kw: how_many.k_curve(DEC('auto', recipe=tiny, random_state=0, **kw), x,
                                             ks=[2, 3], checkpoint=Checkpoint(tmp_path/'ck.pt'))
    real = how_many._row
    monkeypatch.setattr(how_many, '_row', lambda a, b, h, k: real(a, b, h, k) if k == 2 else 1/0)
    with pytest.raises(ZeroDivisionError): curve(x)                     # the first k is in the file
    monkeypatch.setattr(how_many, '_row', real)
    for other in (lambda: curve(x[:100]), lambda: curve(x, alpha=2.)):
        with pytest.raises(DecError, match='another curve'): other()
    assert [r['k'] for r in curve(x)] == [2, 3] and not os.listdir(tmp_path)

def test_a_damaged_checkpoint_is_kept_beside_a_new_one(tmp_path, x):
    (tmp_path/'ck.pt').write_bytes(b'PK, and nothing')
    with pytest.warns(UserWarning, match='the file is ck.pt.unreadable now'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/'ck.pt').fit(x)
    assert (tmp_path/'ck.pt.unreadable').read_bytes() == b'PK, and nothing'

def test_seconds_between_saves_are_a_number(monkeypatch):
    monkeypatch.setenv('DEC_TUTORIAL_SAVE_EVERY', 'abc')
    with pytest.raises(DecError, match='DEC_TUTORIAL_SAVE_EVERY'): Checkpoint()

def test_halves_of_another_job_are_not_taken_up(tmp_path, x, monkeypatch):
    auto = lambda x, seed, ck: DEC('auto', recipe=tiny, random_state=seed, checkpoint=ck).fit(x)
    monkeypatch.setattr(how_many, '_row', lambda *_: 1/0)       # stops when both halves are trained
    with pytest.raises(ZeroDivisionError): auto(x, 0, tmp_path/'ck.pt')
    assert len(list(tmp_path.glob('ck-half-*.pt'))) == 2
    (tmp_path/'ck.pt').unlink()
    monkeypatch.undo()
    other = x[::-1]**2
    assert auto(other, 1, tmp_path/'ck.pt').k_curve_ == auto(other, 1, None).k_curve_

def test_modules_and_globals_belong_to_the_job(x):
    key = lambda m: job_key(x, augment=m)
    assert key(torch.nn.Dropout(.1)) == key(torch.nn.Dropout(.1)) != key(torch.nn.Dropout(.7))
    line = torch.nn.Linear(3, 3)
    assert (key(torch.nn.Sequential(line, torch.nn.ReLU()))
            != key(torch.nn.Sequential(line, torch.nn.Tanh())))
    made = {}
    for factor in (1., 100.):
        exec(f'factor = {factor}\ndef loss(b): return factor*b.q.sum()', made)
        made[factor] = job_key(x, loss=made['loss'])
    assert made[1.] != made[100.]

@pytest.mark.parametrize('code', [
    'def scaled(b): return {}*b.q.sum()\ndef loss(b): return scaled(b)',
    'def again(b, n=2): return again(b, n - 1) if n else {}*b.q.sum()\nloss = again',
    'class Loss:\n    def __call__(self, b): return {}*b.q.sum()\nloss = Loss()',
    'class Base:\n    def scaled(self, b): return {}*b.q.sum()\n'
    'class Loss(Base):\n    def __call__(self, b): return self.scaled(b)\nloss = Loss()',
    'import types\nhow = types.SimpleNamespace(c={})\ndef loss(b): return how.c*b.q.sum()',
    'class Loss:\n    c = {}\n    @property\n    def d(self): return Loss.c\nloss = Loss'])
def test_what_a_function_reaches_belongs_to_the_job(x, code):
    def key(c): exec(code.format(c), made := dict(__name__='of_the_user')); return job_key(x, f=made['loss'])
    assert key(1.) == key(1.) != key(100.)

@pytest.mark.parametrize('code', [
    'def scaled(q): return {}*q.sum()', 'rate = {}\ndef scaled(q): return rate*q.sum()',
    'import functools\n@functools.lru_cache\ndef scaled(q): return {}*q',
    'class Scale:\n    from functools import cached_property\n    @cached_property\n'
    '    def c(self): return {}\ndef scaled(q): return Scale().c*q'])
def test_a_module_of_the_user_belongs_to_the_job(x, tmp_path, monkeypatch, code):
    monkeypatch.syspath_prepend(tmp_path)
    def key(c, more=''):
        (tmp_path/'my_losses.py').write_text(code.format(c) + more)
        sys.modules.pop('my_losses', None); importlib.invalidate_caches()
        exec('import my_losses\ndef loss(b): return my_losses.scaled(b.q)',
             made := dict(__name__='of_the_user'))
        return job_key(x, loss=made['loss'])
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    assert key(1.) == key(1., '\ndef unused(): pass') != key(100.)

def test_a_module_that_is_imported_late_belongs_to_the_job(x, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    def key(w, load=True):
        (tmp_path/'my_weights.py').write_text(f'w = {w}')
        sys.modules.pop('my_weights', None); importlib.invalidate_caches()
        if load: importlib.import_module('my_weights')
        exec('def loss(b):\n    import my_weights, no_such_module, colorsys\n'
             '    return my_weights.w', made := dict(__name__='of_the_user'))
        return job_key(x, loss=made['loss'])
    assert key(1.) == key(1.) != key(2.)
    with pytest.raises(DecError, match='loss imports my_weights when it runs'): key(1., load=False)
    (tmp_path/'of_mine').mkdir(); (tmp_path/'of_mine'/'__init__.py').write_text('')
    (tmp_path/'of_mine'/'weights.py').write_text('w = 1.')
    exec('import of_mine\ndef loss(b):\n    from of_mine import weights\n    return weights.w',
         made := dict(__name__='of_the_user'))
    with pytest.raises(DecError, match='imports of_mine.weights'): job_key(x, loss=made['loss'])

def test_abstract_classes_have_a_key(x):
    class Loss(abc.ABC):
        def __init__(self, c): self.c = c
        def __call__(self, b): return self.c*b.q.sum()
    assert job_key(x, loss=Loss(1.)) == job_key(x, loss=Loss(1.)) != job_key(x, loss=Loss(2.))

def test_an_open_checkpoint_is_not_changed_by_later_runs(x):
    class Power(training.Callback):
        def __init__(self, at, error): self.at, self.error = at, error
        def after_batch(self, trainer):
            if trainer.t == self.at: raise self.error
    ck = Checkpoint(None, every=1e9)
    fit = lambda *stop: DEC(4, recipe=tiny, random_state=0, checkpoint=ck,
                            callbacks=[Power(*stop)]).fit(x).cluster_centers_
    whole = fit(-1, ValueError)
    ck = Checkpoint('unused.pt', every=1e9)
    ck.save = lambda: None                                                 # in memory only
    with pytest.raises(KeyboardInterrupt): fit(20, KeyboardInterrupt)
    with pytest.raises(ValueError): fit(40, ValueError)
    assert np.array_equal(fit(-1, ValueError), whole)

def test_a_disk_that_is_full_for_a_moment(tmp_path, x, monkeypatch):
    want = DEC(4, recipe=tiny, random_state=0).fit(x).labels_
    save, calls = Checkpoint.save, []
    def full(self):
        calls.append(1)
        if self.running and len(calls) % 3 == 0: raise DecError('cannot write: File too large')
        save(self)
    monkeypatch.setattr(Checkpoint, 'save', full)
    with pytest.warns(UserWarning, match='goes on from the save before it'):
        m = DEC(4, recipe=tiny, random_state=0, checkpoint=Checkpoint(tmp_path/'ck.pt', -1)).fit(x)
    assert np.array_equal(m.labels_, want)

def test_ctrl_c_twice_does_not_wait(tmp_path, x):
    class Slow(training.Callback):
        def after_batch(self, trainer):
            if trainer.t == 20:
                signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGINT)
                raise AssertionError('still here')
    was = signal.signal(signal.SIGINT, signal.default_int_handler)     # a shell's & has it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            DEC(4, recipe=tiny, random_state=0, checkpoint=Checkpoint(tmp_path/'ck.pt', 1e9),
                callbacks=[Slow()]).fit(x)
    finally: signal.signal(signal.SIGINT, was)
    assert Checkpoint(tmp_path/'ck.pt').running is None                  # half a batch is not saved

def test_a_folder_is_no_checkpoint(tmp_path, x):
    (tmp_path/'mine').mkdir()
    with pytest.raises(DecError, match='mine: Is a directory; name another file'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/'mine').fit(x)
    assert (tmp_path/'mine').is_dir()

def test_a_path_that_cannot_be_written_is_told_before_any_work(tmp_path, x):
    (tmp_path/'file').write_text('')
    done = []
    class Count(training.Callback):
        def after_batch(self, trainer): done.append(1)
    with pytest.raises(DecError, match='cannot write'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=tmp_path/'file'/'x.pt',
            callbacks=[Count()]).fit(x)
    assert not done

@pytest.mark.parametrize('where, error, says', [
    ((torch, 'load'), MemoryError(), 'not enough memory'),
    ((torch, 'load'), RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. "
                                   "DefaultCPUAllocator: can't allocate memory"), 'not enough memory'),
    ((Path, 'read_bytes'), OSError(5, 'Input/output error'), 'Input/output error')])
def test_a_good_checkpoint_stays_where_it_cannot_be_read_now(left, monkeypatch, where, error, says):
    def fail(*_, **__): raise error
    monkeypatch.setattr(*where, fail)
    with pytest.raises(DecError, match=says): Checkpoint(left)
    assert [*left.parent.iterdir()] == [left]

def test_globals_that_are_not_used_do_not_matter(x):
    made = {}
    exec('def loss(b): return (lambda v: v*factor)(b.q).sum()', made)
    key = lambda **more: made.update(more) or job_key(x, loss=made['loss'])
    assert key(factor=1., q=1) == key(q=np.arange(3)) != key(factor=2.)

def test_another_version_is_another_job(left, x, monkeypatch):
    monkeypatch.setattr(dec, '__version__', '99')
    with pytest.raises(DecError, match='another version'):
        DEC(4, recipe=tiny, random_state=0, checkpoint=left).fit(x)

@pytest.mark.parametrize('where', ['after_refresh', 'after_batch'])
def test_a_callback_that_stops_a_run(tmp_path, x, where): # half a batch is not remembered
    changes = lambda m: m.history_['changes']
    make = lambda *cb, **kw: DEC(4, recipe=tiny, random_state=0, tol=.01, callbacks=[*cb], **kw)
    class Stop(training.Callback):
        due = True
        def stop(self, trainer, *_):
            if trainer.t >= 30 and self.due:
                self.due = False
                raise KeyboardInterrupt
    setattr(Stop, where, Stop.stop)
    once, ck = make(training.Callback()).fit(x), tmp_path/'ck'
    torn = make(Stop(), checkpoint=ck)
    with pytest.raises(KeyboardInterrupt): torn.fit(x)
    torn.fit(x)
    assert changes(torn) == changes(once) and torn.n_iter_ == once.n_iter_
    assert (torn.labels_ == once.labels_).all()

# ---- Several workers, as torchrun starts them or in a group of the user's own
def free_port():
    with socket.socket() as s: s.bind(('127.0.0.1', 0)); return s.getsockname()[1]

# 'shards': other points for each; 'one': the second predicts nothing; 'apart': nor fits
def in_a_group(what):
    torch.distributed.init_process_group('gloo')
    x, rank = np.random.default_rng(0).random((304, 20), dtype=np.float32), int(os.environ['RANK'])
    even = replace(tiny, finetune=replace(tiny.finetune, batch_size=64),
                   cluster=replace(tiny.cluster, batch_size=64), pretrain=None)
    mine = x[rank::2]
    if what == 'apart':
        if not rank:
            with apart(): DEC(4, recipe=tiny, random_state=0).fit(x).save('alone')
    elif what == 'noise':
        noise = []
        loss = lambda b: w.sum()*0 + (noise.append(torch.rand(5)) or 0)
        w = torch.nn.Parameter(torch.ones(2))
        with workers(): training.Trainer(loss, [w], 64, Stage(3, batch_size=8)).fit()
        np.save(f'noise-{rank}.npy', torch.stack(noise).numpy())
    elif what == 'one':
        m = DEC.load('m.safetensors')
        if not rank: np.save('got.npy', m.predict(mine))
    else:
        m = DEC(4, recipe=even, random_state=0, checkpoint='ck.pt')
        if what == 'fit': m.fit(x)
        else:
            with pytest.raises(DecError, match='must be given the same points'): m.fit(mine)
            m = DEC.load('m.safetensors')
        np.save(f'labels-{rank}.npy', m.labels_), np.save(f'mine-{rank}.npy', m.predict(mine))
    torch.distributed.barrier(); torch.distributed.destroy_process_group()

def two(start, what):
    place = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()))
    for c in [start(in_a_group, what, env=place | dict(RANK=str(i))) for i in (0, 1)]:
        r = c.finish()
        assert r.returncode == 0, r.stderr[-2000:]

def test_workers_draw_noise_of_their_own(start, tmp_path):
    two(start, 'noise')
    a, b = (np.load(tmp_path/f'noise-{i}.npy') for i in (0, 1))
    assert a.shape == b.shape == (3, 5) and not np.isin(a, b).any()

def test_one_of_a_group_fits_alone(start, tmp_path):
    two(start, 'apart')
    x = np.random.default_rng(0).random((304, 20), dtype=np.float32)
    want = DEC(4, recipe=tiny, random_state=0).fit(x).labels_
    assert np.array_equal(DEC.load(tmp_path/'alone').labels_, want)

# In processes that import torch for themselves; a thread of a group that outlives Python may abort it
@pytest.mark.parametrize('own', [False, True], ids=['ours', 'a group of the user'])
def test_workers_leave_no_threads_behind(tmp_path, own):
    program = '''
import sys, weakref, numpy as np, torch.distributed as dist
from pathlib import Path
from dec_tutorial.dec import DEC, Recipe
from dec_tutorial.training import Callback, Stage
class Look(Callback):
    def after_fit(self, trainer): self.group = weakref.ref(dist.group.WORLD)
stage, look, own = Stage(20, lr=.1, batch_size=64), Look(), sys.argv[1:] == ['own']
if own: dist.init_process_group('gloo')
m = DEC(4, recipe=Recipe('tiny', stage, stage, None, dims=(24, 6)), random_state=0, callbacks=[look],
        device='cpu').fit(np.random.default_rng(0).random((304, 20), dtype=np.float32))
if own: dist.destroy_process_group()
threads = [f.read_text() for f in Path('/proc/self/task').glob('*/comm')]   # new PyTorch names them
print('group', look.group(), sum('gloo' in t for t in threads))
'''
    place = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()))
    jobs = [subprocess.Popen([sys.executable, '-c', program, *['own']*own], cwd=tmp_path, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=os.environ | place | dict(RANK=str(i))) for i in (0, 1)]
    try: ends = [(*j.communicate(timeout=600), j.returncode) for j in jobs]
    finally:
        for j in jobs: j.kill()
    assert [(out, status) for out, _, status in ends] == [('group None 0\n', 0)]*2, ends

def test_workers_wait_for_a_long_k_means_of_the_first(monkeypatch):
    asked = {}
    def join(backend, timeout): asked.update(timeout=timeout); raise ValueError('enough')
    monkeypatch.setattr(torch.distributed, 'init_process_group', join)
    for name, v in dict(RANK='0', WORLD_SIZE='2', TORCHELASTIC_RUN_ID='x').items():
        monkeypatch.setenv(name, v)
    with pytest.raises(DecError, match='enough'):
        with workers(): pass
    assert asked['timeout'].days >= 1

def test_workers_that_cannot_meet_are_told(monkeypatch, x):
    for name in ('MASTER_ADDR', 'MASTER_PORT'): monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('RANK', '0'); monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(DecError, match='start them with torchrun, or unset both'):
        DEC(4, recipe=tiny, random_state=0).fit(x)

def test_workers_predict_their_own_points(start, tmp_path):
    x = np.random.default_rng(0).random((304, 20), dtype=np.float32)
    m = DEC(4, recipe=tiny, random_state=0).fit(x)
    m.save(tmp_path/'m.safetensors')
    two(start, 'shards')
    for i in (0, 1): assert (np.load(tmp_path/f'mine-{i}.npy') == m.predict(x[i::2])).all()
    two(start, 'one')                                             # and the other does not hang
    assert (np.load(tmp_path/'got.npy') == m.predict(x[::2])).all()
    two(start, 'fit')
    a, b = (np.load(tmp_path/f'labels-{i}.npy') for i in (0, 1))
    assert (a == b).all() and not (tmp_path/'ck.pt').exists()
    for i in (0, 1): assert (np.load(tmp_path/f'mine-{i}.npy') == a[i::2]).all()
