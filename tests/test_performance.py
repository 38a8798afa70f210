"Not slower than it was, and never larger than it need be"
import dataclasses, json, time, tracemalloc, warnings
import numpy as np, pytest, torch
from scipy import sparse
from sklearn.decomposition import PCA
from conftest import make_blobs
from dec_tutorial.inside import reading
from dec_tutorial.command_line import raw_kmeans
from dec_tutorial.data import DecError, load_data, scale_factor
from dec_tutorial.inside.reading import on_disk
from dec_tutorial.evaluation import cluster_accuracy, flat
from dec_tutorial.dec import DEC, Recipe
from dec_tutorial.practice.performance import in_turn, our_ae_step, products
from dec_tutorial.checkpoint import Checkpoint
from dec_tutorial.inside.machine import has_fast_bf16
from dec_tutorial.training import Callback, Diverged, Rows, Stage, Trainer

tiny = Recipe('tiny', pretrain=Stage(20, dropout=.2), finetune=Stage(40, average=.5),
              cluster=Stage(30, lr=.01), dims=(16, 8, 3), init='uniform', update_interval=10)

@pytest.mark.parametrize('kind, dtype, limit',
                         [('float32', torch.float32, 1.5), ('auto', torch.bfloat16, 2.2)])
def test_step_stays_near_the_floor(kind, dtype, limit, record_property):
    "A ratio, since times depend on the machine; on a busy one, the best of three counts"
    if kind == 'auto' and not has_fast_bf16(): pytest.skip('this CPU has no units for bfloat16')
    step = our_ae_step(np.random.default_rng(0).random((4096, 784), dtype=np.float32), kind)
    floor = products(dtype=dtype)
    for _ in range(3):
        t = in_turn(dict(step=step, floor=floor), 60)
        ratio = t['step']/t['floor']
        if ratio <= limit: break
    record_property('took', f"{t['step']:.1f} ms, {ratio:.2f} × floor")
    assert ratio <= limit

def test_bench_command(cli, tmp_path):
    done = cli('dec_bench', '--quick', '--json', tmp_path/'b.json',
               env=dict(DEC_TUTORIAL_SAVE_EVERY='15'))
    assert done.returncode == 0, done.stderr
    rows = {r['name']: r for r in json.loads((tmp_path/'b.json').read_text())}
    assert {'ae_step_float32', 'ae_step_auto', 'kl_step_auto', 'refresh', 'encode',
            'naive_ae_step'} <= rows.keys()
    for name, r in rows.items():
        assert (list(r) == ['name', 'median_ms', 'floor_ms', 'ratio', 'precision', 'device']
                and name in done.stdout)
        assert r['median_ms'] > 0
        assert (r['ratio'] is None) == (name == 'kmeans_start')

def test_products_are_the_23(monkeypatch):
    calls, mm = [], torch.mm
    monkeypatch.setattr(torch, 'mm',
                        lambda *a, **k: calls.append(a[0].shape[0]*a[0].shape[1]*a[1].shape[1])
                        or mm(*a, **k))
    products(m=8)()
    dims = [784, 500, 500, 2000, 10, 2000, 500, 500, 784]
    layers = [8*a*b for a, b in zip(dims, dims[1:])]
    assert len(calls) == 23 and sum(calls) == 3*sum(layers) - layers[0]

def test_sparse_is_never_dense(monkeypatch):
    x, _ = make_blobs(9000, 40)
    x = sparse.csr_matrix(np.where(x > .6, x, 0))
    seen, dense = [], sparse.csr_matrix.toarray
    monkeypatch.setattr(sparse.csr_matrix, 'toarray',
                        lambda s, *a, **k: seen.append(s.shape[0]) or dense(s, *a, **k))
    a = DEC(3, recipe=tiny, random_state=0).fit(x)
    assert seen and max(seen) <= 2048 and set(a.predict(x)) <= {0, 1, 2}

def test_file_stays_on_disk(tmp_path, monkeypatch):
    x, _ = make_blobs(500, 20)
    np.save(tmp_path/'x.npy', x)
    want = DEC(3, recipe=tiny, random_state=0).fit(load_data(tmp_path/'x.npy').x)
    monkeypatch.setattr(reading, 'IN_MEMORY', 0)
    ds = load_data(tmp_path/'x.npy')
    assert on_disk(ds.x) and not Rows(ds.x).held and not on_disk(x)
    assert on_disk(ds.x[3:]) and not on_disk(np.load(tmp_path/'x.npy', mmap_mode='r').astype('f2'))
    np.save(tmp_path/'double.npy', x.astype(float))
    with pytest.warns(UserWarning, match='float64 and has to be copied'):
        load_data(tmp_path/'double.npy')
    got = DEC(3, recipe=tiny, random_state=0).fit(ds.x)
    assert torch.equal(got.layer_.mu, want.layer_.mu) and (got.labels_ == want.labels_).all()

def test_the_command_takes_what_stays_on_disk(tmp_path, monkeypatch):
    x, _ = make_blobs(900, 20)
    np.save(tmp_path/'x.npy', x)
    monkeypatch.setattr(reading, 'IN_MEMORY', x.nbytes)             # a quarter of the points at a time
    ds = load_data(tmp_path/'x.npy')
    ds = dataclasses.replace(ds, x=np.load(tmp_path/'x.npy', mmap_mode='r'))
    raw, want = raw_kmeans(ds.x, 3), raw_kmeans(x, 3)
    assert (raw['fitted_on'] == 225 and want['fitted_on'] == 900
            and cluster_accuracy(want['labels'].numpy(), raw['labels'].numpy()) > .99)
    assert (flat(ds.x).shape == (900, 2)
            and abs(np.corrcoef(flat(ds.x)[:, 0], PCA(2).fit_transform(x)[:, 0])[0, 1]) > .99)

def test_scales_are_found_in_parts():
    x = np.random.default_rng(0).random((3000, 1000), dtype=np.float32)
    tracemalloc.start()
    scale_factor(np.concatenate([x]*12))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12*x.nbytes + 2**28                # the data, and no more than parts of it beside

def test_average_is_the_mean_of_the_path():
    path = []
    class Look(Callback):
        def after_batch(self, tr): path.append(tr.params[0].detach().clone())
    w = torch.nn.Parameter(torch.zeros(5))
    x = torch.randn(100, 5, generator=torch.Generator().manual_seed(0))
    Trainer(lambda b: (x[b] - w).square().mean(), [w], 100,
            Stage(100, batch_size=4, lr=.5, average=.4), callbacks=[Look()]).fit()
    assert torch.allclose(w, torch.stack(path[69::10]).mean(0), atol=1e-6)
    assert not torch.allclose(w, path[-1], atol=1e-3)

@pytest.mark.parametrize('field', ['average', 'decay', 'batch_share'])
def test_shares(field):
    with pytest.raises(DecError, match=f'{field} must be from 0 to 1'):
        Stage(10, **{field: 1.5})

def test_a_rate_too_high_is_halved(tmp_path):
    "Also across a kill: the second life begins at the rate that the first had come down to"
    x = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    wild = dataclasses.replace(tiny, finetune=Stage(60, lr=6.), pretrain=None)
    with pytest.warns(UserWarning, match='half the rate'):
        once = DEC(3, recipe=wild, random_state=0).fit(x)
    class Die(Callback):
        def after_batch(self, tr): raise KeyboardInterrupt
    with pytest.warns(UserWarning, match='half the rate'), pytest.raises(KeyboardInterrupt):
        DEC(3, recipe=wild, random_state=0, checkpoint=tmp_path/'c', callbacks=[Die()]).fit(x)
    again = DEC(3, recipe=wild, random_state=0, checkpoint=tmp_path/'c',
                callbacks=[Callback()]).fit(x)
    assert torch.equal(once.layer_.mu, again.layer_.mu)
    memory = Checkpoint()                               # without a path: nothing to take up from it
    for _ in range(2):
        with pytest.warns(UserWarning, match='half the rate'):
            fresh = DEC(3, recipe=wild, random_state=0, checkpoint=memory).fit(x)
        assert torch.equal(once.layer_.mu, fresh.layer_.mu)

def test_a_rate_too_low_stays(tmp_path, monkeypatch):
    "Half of it is tried, found worse, and taken back; also across a kill"
    g = np.random.default_rng(0)
    x = (g.standard_normal((300, 3)) @ g.standard_normal((3, 20))).astype(np.float32)
    class Die(Callback):
        def after_batch(self, tr): raise KeyboardInterrupt
    def fit(n=1000, **kw):
        slow = dataclasses.replace(tiny, dims=(16, 3), pretrain=None,
                                   finetune=Stage(n, batch_size=32, lr=.001))
        return DEC(3, recipe=slow, random_state=0, **kw).fit(x)
    begun = time.perf_counter()
    with pytest.warns(UserWarning, match='half the rate made it worse'): once = fit()
    ran = time.perf_counter() - begun
    with warnings.catch_warnings():
        warnings.simplefilter('error'); alone = fit(999)          # too short to be looked at
    assert abs(once.reconstruction_/alone.reconstruction_ - 1) < .05
    assert .7*ran < once.seconds_['autoencoder'] < ran                 # both attempts took their time
    assert once.history_['autoencoder'][:-1] == alone.history_['autoencoder'][:-1]
    with pytest.warns(UserWarning, match='made it worse'), pytest.raises(KeyboardInterrupt):
        fit(checkpoint=tmp_path/'c', callbacks=[Die()])
    with pytest.warns(UserWarning, match='made it worse'):
        again = fit(checkpoint=tmp_path/'c', callbacks=[Callback()])
    assert torch.equal(once.layer_.mu, again.layer_.mu)
    assert once.history_ == again.history_
    from dec_tutorial import dec as module
    inner, calls = module.finetune, []
    def blows_up(*a, **kw):
        calls.append(a)
        if len(calls) > 1: raise Diverged('autoencoder: the loss became nan')
        return inner(*a, **kw)
    monkeypatch.setattr(module, 'finetune', blows_up)
    with pytest.warns(UserWarning, match='made it worse .the loss blew up.'): kept = fit()
    assert len(calls) == 4 and torch.equal(once.layer_.mu, kept.layer_.mu)

@pytest.mark.parametrize('behind, best, says', [
    ((.5, .3, .32, .34), 1, 'by 30% .*at four rates'), ((.3, .34, .38), 0, 'worse .38%'),
    ((.5, .3, np.inf, .31), 1, 'by 30% .*at four rates'), ((.3, np.nan, np.nan, .2), 3, 'by 20% ')])
def test_the_best_of_four_rates_is_kept(monkeypatch, behind, best, says):
    from dec_tutorial import dec as module
    x = np.random.default_rng(0).standard_normal((200, 10)).astype(np.float32)
    fit = lambda lr: DEC(3, random_state=0, recipe=dataclasses.replace(
        tiny, dims=(8, 3), pretrain=None,
        finetune=Stage(1000, batch_size=8, lr=lr))).fit_autoencoder(x).reconstruction_
    monkeypatch.setattr(module, 'behind_pca', lambda *_: 0.)
    want, left = fit(.1*.5**best), iter(behind)
    monkeypatch.setattr(module, 'behind_pca', lambda *_: next(left))
    with pytest.warns(UserWarning, match=says): assert fit(.1) == want
    assert not [*left]
    monkeypatch.setattr(module, 'behind_pca', lambda *_: np.nan)
    with (pytest.warns(UserWarning, match='no numbers; .*half the rate'),
          pytest.raises(Diverged, match='no numbers')): fit(.1)
