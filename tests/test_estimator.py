"DEC among scikit-learn's tools: its own checks, pipelines, searches, data frames"
import gc, json, multiprocessing, pickle, signal, sys, threading, warnings, weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
import numpy as np, pandas as pd, pytest, torch, torch.nn as nn
from joblib import Parallel, delayed
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted
from conftest import make_blobs
from dec_tutorial.paper.ablations import Lloyd
from dec_tutorial.paper.baselines import SEC
from dec_tutorial.data import Dataset, DecError
from dec_tutorial.dec import DEC, get_recipe, show_training
from dec_tutorial.checkpoint import Checkpoint, job_key
from dec_tutorial.model_file import _seal
from dec_tutorial.kl import dec_loss
from dec_tutorial.inside import reading
from dec_tutorial.practice import how_many
from dec_tutorial.evaluation import Snapshots
from dec_tutorial.records import read_records
from dec_tutorial.evaluation import generalizability
from dec_tutorial.practice.how_many import k_curve
from dec_tutorial.family.images import ConvAutoEncoder
from dec_tutorial.practice.own_data import load_pictures, separation
from dec_tutorial.sae import AutoEncoder, behind_pca
from dec_tutorial.practice.seeing import Journey, TensorBoardLog, moving_map
from dec_tutorial.soft_assignment import ClusterLayer, soft_assign
from dec_tutorial.paper.tables import shared_start
from dec_tutorial.target_distribution import target_distribution
from dec_tutorial.training import Callback, Rows, Stage, Trainer, apply_chunked

narrow = replace(get_recipe('fast'), dims=(32, 8))         # so that a fit takes a tenth of a second
def small(k=3, **kw):
    return DEC(k, **dict(recipe=narrow, ae_iter=60, max_iter=40, update_interval=20, n_init=2,
                         random_state=0) | kw)

def test_more_has_the_columns_of_x():
    x = pd.DataFrame(make_blobs()[0]).add_prefix('c')
    for other in (x[x.columns[::-1]], x.rename(columns=str.upper)):
        with pytest.raises(DecError, match='other column names'): small().fit(x, more=other)
    small().fit(x, more=x)

def test_a_new_start_forgets_the_old_clusters():
    m = small().fit(make_blobs()[0])
    m.set_params(n_clusters=5).fit_autoencoder(make_blobs()[0])
    assert m.n_clusters_ == 5 and not {'cluster_centers_', 'soft_sizes_', 'n_iter_'} & {*vars(m)}

def test_a_loaded_model_may_change_its_method(tmp_path):
    x = make_blobs()[0]
    small().fit(x).save(tmp_path/'m')
    m = DEC.load(tmp_path/'m').set_params(method='IDEC', ae_iter=60, max_iter=40)
    assert m._use.keep_decoder and m.fit(x).n_iter_ > 0
    small(train_centroids=False).fit(x).save(tmp_path/'m')
    assert DEC.load(tmp_path/'m')._use.train_centroids is False

def kinds(v): # types, dtypes and values, all the way down
    if isinstance(v, nn.Module): v = v.state_dict()
    if isinstance(v, dict): return type(v).__name__, {n: kinds(w) for n, w in v.items()}
    if isinstance(v, (list, tuple)): return type(v).__name__, [kinds(w) for w in v]
    return type(v).__name__, str(getattr(v, 'dtype', '')), getattr(v, 'tolist', lambda: v)()

@pytest.mark.parametrize('args', [dict(), dict(method='IDEC'), dict(method='DCN'), dict(k='auto'),
                                  dict(cluster=Stage(40, optimizer='adam', lr=1e-3))],
                         ids=['DEC', 'IDEC', 'DCN', 'auto', 'Adam'])
def test_a_loaded_model_has_all_that_was_saved(tmp_path, args):
    x = pd.DataFrame(make_blobs()[0]).add_prefix('c')
    held = lambda dec: {n: kinds(v) for n, v in vars(dec).items() if n.endswith('_')
                        # a file leaves these out
                        and n not in ('start_codes_', 'callbacks_', 'own_')}
    dec = small(**args)
    for learn in (dec.fit, dec.partial_fit):
        learn(x).save(tmp_path/'m')
        assert held(DEC.load(tmp_path/'m')) == held(dec)

class Few(DEC):
    def __init__(self, n_clusters=3, *, recipe='fast', random_state=None):
        super().__init__(n_clusters, recipe=recipe, random_state=random_state, ae_iter=60,
                         max_iter=40, update_interval=20, n_init=2)

points, _ = make_blobs()

def test_a_file_tells_of_the_fit_and_not_of_later_wishes(tmp_path):
    dec = small().fit(points)
    dec.set_params(method='IDEC').save(tmp_path/'m.safetensors')
    assert (DEC.load(tmp_path/'m.safetensors').method, dec.method) == ('DEC', 'IDEC')

@pytest.mark.parametrize('name', ['backprop', 'train_centroids', 'keep_decoder'])
def test_yes_or_no(name):
    with pytest.raises(DecError, match=f"{name} must be True or False, not 'no'"):
        small(**{name: 'no'}).fit(points)
    small(**{name: np.True_}).fit(points)

def test_a_given_autoencoder_sees_the_scale_that_it_knows(tmp_path):
    first = small().fit(points)
    first.save(tmp_path/'m.safetensors')
    for dec in (first, DEC.load(tmp_path/'m.safetensors')):
        again = small(autoencoder=dec.autoencoder_)
        assert again.fit(points*3).scale_ == first.scale_
        assert again.set_params(recipe=replace(get_recipe('fast'), scale='none')).fit(points).scale_ == 1

def test_formulas_take_what_an_estimator_returns():
    dec = small().fit(points)
    q = soft_assign(dec.transform(points), dec.cluster_centers_)
    np.testing.assert_allclose(q.numpy(), dec.predict_proba(points), rtol=1e-4, atol=1e-6)
    assert torch.equal(target_distribution(q.numpy()), target_distribution(q))
    whole = soft_assign(torch.tensor([[0], [4]]), torch.tensor([[0], [4]]))
    torch.testing.assert_close(whole.sum(1), torch.ones(2))

def test_keys_tell_shapes_and_types_apart():
    key = lambda x, **kw: job_key(np.asarray(x), **kw)
    keys = {key(np.zeros((2, 2), t)) for t in ('f4', 'i4', 'f8')}
    keys |= {key([[1.]], w=np.zeros(shape)) for shape in (6, (2, 3), (3, 2))}
    assert len(keys) == 6

def test_a_subclass_that_takes_fewer_arguments_is_read_back(tmp_path):
    m = Few(recipe=narrow, random_state=0).fit(make_blobs()[0])
    m.save(tmp_path/'m')
    assert np.array_equal(Few.load(tmp_path/'m').predict(make_blobs()[0]), m.labels_)

@pytest.mark.parametrize('own', [signal.SIG_IGN, lambda *_: None], ids=['ignored', 'their own'])
def test_ctrl_c_of_somebody_else_is_left_alone(own):
    heard, was = [], signal.signal(signal.SIGINT, own)
    class Press(Callback):
        def after_batch(self, trainer): signal.raise_signal(signal.SIGINT); heard.append(1)
    try: small(callbacks=[Press()]).fit(make_blobs()[0])
    finally: signal.signal(signal.SIGINT, was)
    assert len(heard) > 1

def test_threads_leave_the_default_dtype_alone():
    x, before = make_blobs()[0], torch.get_default_dtype()
    models = [small().fit(x) for _ in range(2)]
    def go(m):
        for _ in range(15): m.partial_fit(x)
    torch.set_default_dtype(torch.float64)
    try:
        threads = [threading.Thread(target=go, args=(m,)) for m in models]
        for t in threads: t.start()
        for t in threads: t.join()
        assert torch.get_default_dtype() == torch.float64
    finally: torch.set_default_dtype(before)

def test_small_units_part_clusters_as_well():
    frame = pd.DataFrame(dict(m=[0., 0, 1, 1], nm=[0., 0, 1e-8, 1e-8], same=[.1]*4, hole=[0, 0, 1, np.inf]))
    assert separation(frame, [0, 0, 1, 1]) == dict(m=1., nm=1., same=0., hole=1.)

# 4: one of them counts the classes it made up
@parametrize_with_checks([small(4, precision='float32')])
@pytest.mark.filterwarnings('ignore')
def test_scikit_learns_own_checks(estimator, check): check(estimator)

# with 500 batches one setosa, the 42nd flower, goes astray on some processors
@pytest.mark.parametrize('seed', range(3))
def test_pipeline_on_iris(seed):
    iris = load_iris(as_frame=True)
    pipe = make_pipeline(StandardScaler(), DEC(3, random_state=seed, ae_iter=1500, max_iter=200))
    labels = pipe.fit_predict(iris.data)
    assert labels.shape == (150,) and set(labels) == {0, 1, 2}
    assert ((pipe.predict(iris.data) == labels).all()
            and np.allclose(pipe.predict_proba(iris.data).sum(1), 1, atol=1e-5))
    setosa = labels[iris.target == 0]
    # the one class that lies apart
    assert (setosa == setosa[0]).all() and (labels[iris.target != 0] != setosa[0]).all()

def test_grid_search():
    x, y = make_blobs()
    search = GridSearchCV(make_pipeline(StandardScaler(), small()),
                          {'dec__n_clusters': [2, 3], 'dec__method': ['DEC', 'IDEC']},
                          scoring='adjusted_rand_score', cv=2).fit(x, y)
    assert search.best_params_['dec__n_clusters'] == 3 and search.best_score_ > .9

def test_frames_in_and_out():
    frame = load_iris(as_frame=True).data
    dec = small().set_output(transform='pandas').fit(frame)
    codes = dec.transform(frame)
    assert (list(codes.columns) == list(dec.get_feature_names_out())
            == [f'dec{j}' for j in range(8)] and (codes.index == frame.index).all())
    assert list(dec.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match='feature names should match'):
        dec.predict(frame[frame.columns[::-1]])

def test_names_survive_a_file(tmp_path):
    frame = load_iris(as_frame=True).data
    small().fit(frame).save(tmp_path/'m.safetensors')
    back = DEC.load(tmp_path/'m.safetensors')
    assert list(back.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match='feature names should match'):
        back.predict(frame[frame.columns[::-1]])

def test_subsets_get_the_same_answers():
    x, _ = make_blobs()
    dec, rows = small().fit(x), [3, 77, 150]
    assert dec.transform(x).dtype == dec.predict_proba(x).dtype == np.float32
    assert ((dec.predict(x[rows]) == dec.predict(x)[rows]).all()
            and np.allclose(dec.transform(x[rows]), dec.transform(x)[rows], atol=1e-6))

def test_one_cluster_is_allowed_and_none_is_not():
    x, _ = make_blobs()
    assert set(small(1).fit(x).labels_) == {0}
    with pytest.raises(DecError, match='2 clusters or more'): small(0).fit(x)

def test_a_clone_is_unfitted_and_the_same():
    dec = small(method='IDEC')
    assert clone(dec.fit(make_blobs()[0])).get_params() == dec.get_params()

def test_an_autoencoder_that_learned_nothing_starts_again():
    "With steps this large most of its units die, and its loss is still and finite"
    x = StandardScaler().fit_transform(load_breast_cancer().data)
    harsh = replace(get_recipe('fast'), dims=(64, 64, 5), features=1,
                    finetune=Stage(1000, batch_size=6, lr=.2, average=.2))
    with pytest.warns(UserWarning, match='worse than principal components'):
        fits = [DEC(2, recipe=harsh, random_state=s).fit_autoencoder(x) for s in range(3)]
    assert max(behind_pca(f.autoencoder_, Rows(x.astype(np.float32), f.scale_)) for f in fits) < .1

def test_few_columns_get_a_lower_rate():
    x = StandardScaler().fit_transform(load_iris().data)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert small(recipe=replace(narrow, dims=(500, 10))).fit_autoencoder(x).reconstruction_ < .5

def test_empty_clusters_are_told_of():
    x = np.repeat(np.eye(8, dtype=np.float32)[:2], 30, 0)            # two points, thirty times each
    with pytest.warns(UserWarning, match='2 of 4 clusters are empty'): dec = small(4).fit(x)
    assert len(set(dec.labels_)) == 2

def test_unknown_number_of_clusters(tmp_path):
    x, y = make_blobs(n=240)
    dec = small('auto').fit(x)
    assert (dec.n_clusters_ == 3 == len(dec.cluster_centers_) and len(set(zip(dec.labels_, y))) == 3
            and dec.k_curve_[1]['strength'] > .95)
    dec.save(tmp_path/'m.safetensors')
    assert DEC.load(tmp_path/'m.safetensors').n_clusters_ == 3
    with pytest.raises(DecError, match='too few to find'): small('auto').fit(x[:30])
    with pytest.raises(DecError, match="whole number or 'auto'"): small('three').fit(x)

def test_the_search_for_their_number_resumes(tmp_path, monkeypatch):
    x, y = make_blobs(n=120)
    whole, calls, rate = small('auto').fit(x), [], how_many.generalizability
    def dies(*args):
        calls.append(1)
        if len(calls) == 3: raise KeyboardInterrupt
        return rate(*args)
    monkeypatch.setattr(how_many, 'generalizability', dies)
    with pytest.raises(KeyboardInterrupt): small('auto', checkpoint=tmp_path/'c.pt').fit(x)
    again = small('auto', checkpoint=tmp_path/'c.pt').fit(x)
    assert (len(calls) == 3 + len(whole.k_curve_) - 2 and again.k_curve_ == whole.k_curve_
            and (again.labels_ == whole.labels_).all())
    assert not list(tmp_path.iterdir())

def test_no_clusters_are_told_of():
    with pytest.warns(UserWarning, match='there may be none'):
        dec = small('auto').fit(np.random.default_rng(0).random((200, 16)).astype(np.float32))
    assert dec.n_clusters_ in {r['k'] for r in dec.k_curve_}

def test_a_collapsed_fit_does_not_count(): # all points in one cluster come again, of course
    x = np.repeat(np.eye(8, dtype=np.float32)[:2], 60, 0)
    with pytest.warns(UserWarning): curve = k_curve(small(), x, [2, 4])
    assert curve[0]['strength'] == 1 and curve[1]['strength'] == 0

def test_streams(tmp_path):
    x, _ = make_blobs(n=300)
    dec = small().partial_fit(x[:200])
    assert (dec.labels_ == small().fit(x[:200]).labels_).all()          # the first portion is a fit
    centres = dec.cluster_centers_.copy()
    for part in (x[200:250], x[250:]): dec.partial_fit(part)
    assert (dec.labels_.shape == (50,) and round(float(dec.soft_sizes_.sum())) == 300
            and (dec.cluster_centers_ != centres).any())
    assert (dec.n_iter_ == dec.history_['clusters'][-1][0]
            and [t for t, _ in dec.history_['changes']]
            == sorted(t for t, _ in dec.history_['changes']))
    dec.save(tmp_path/'m.safetensors')
    woken = DEC.load(tmp_path/'m.safetensors')
    assert np.allclose(woken.soft_sizes_, dec.soft_sizes_)
    for model in (dec, woken): model.partial_fit(x[:20])
    # with the momentum of the portion before
    assert woken.labels_.shape == (20,) and (woken.cluster_centers_ == dec.cluster_centers_).all()
    again = dec.set_params(n_clusters=4).fit(x[:200]).partial_fit(x[200:])
    fresh = small(4).fit(x[:200]).partial_fit(x[200:])
    # nothing of the stream before is left
    assert (again.cluster_centers_ == fresh.cluster_centers_).all()

def test_a_damaged_momentum_is_no_surprise_later(tmp_path):
    x, _ = make_blobs()
    small().fit(x).partial_fit(x).save(tmp_path/'m.safetensors')
    with safe_open(tmp_path/'m.safetensors', 'pt') as f:
        header, arrays = f.metadata(), {k: f.get_tensor(k) for k in f.keys()}
    for name, change in (('momentum.99.momentum_buffer', torch.ones(3, 8)),
                         (next(k for k in arrays if k.startswith('momentum.')), torch.ones(2, 2)),
                         ('momentum.x', torch.ones(()))):
        save_file(arrays | {name: change}, tmp_path/'bad.safetensors', header)
        with pytest.raises(DecError, match='do not fit together'):
            DEC.load(tmp_path/'bad.safetensors')

def test_a_forged_momentum_never_reaches_the_optimiser(tmp_path): # a wrong shape there is a segfault
    x, _ = make_blobs()
    small().fit(x).partial_fit(x).save(tmp_path/'m')
    with safe_open(tmp_path/'m', 'pt') as f:
        text, arrays = f.metadata()['dec_tutorial'], {k: f.get_tensor(k) for k in f.keys()}
    name = next(k for k in arrays if k.startswith('momentum.'))
    groups = json.loads(text)['momentum']
    for change, momentum in (({name: arrays['head.mu'].clone()}, groups),
                             ({name: torch.ones(())}, groups), ({}, [g | dict(lr='x', fused=False, rate=1e30) for g in groups])):
        forged = json.dumps(json.loads(text) | dict(momentum=momentum))
        save_file(arrays | change, tmp_path/'z', dict(dec_tutorial=forged,
                                                      seal=_seal(forged, arrays | change)))
        assert np.isfinite(DEC.load(tmp_path/'z').partial_fit(x).predict_proba(x)).all()

def test_adam_goes_on_only_with_all_that_it_remembers(tmp_path):
    x, _ = make_blobs()
    m = small(cluster=Stage(20, optimizer='adam', lr=1e-3)).fit(x).partial_fit(x)
    m.save(tmp_path/'m')
    with safe_open(tmp_path/'m', 'pt') as f:
        text, arrays = f.metadata()['dec_tutorial'], {k: f.get_tensor(k) for k in f.keys()}
    q = DEC.load(tmp_path/'m').partial_fit(x).predict_proba(x)
    assert (q == m.partial_fit(x).predict_proba(x)).all()
    for lost in ('step', 'exp_avg', 'exp_avg_sq'):
        rest = {k: v for k, v in arrays.items() if k != f'momentum.0.{lost}'}
        save_file(rest, tmp_path/'z', dict(dec_tutorial=text, seal=_seal(text, rest)))
        forgot = DEC.load(tmp_path/'z').partial_fit(x).predict_proba(x)
        assert np.isfinite(forgot).all() and (forgot != q).any()

def test_a_stream_may_change_its_method(): # and trains a decoder now, of which nothing moves yet
    dec, fresh = (small().fit(points).partial_fit(points) for _ in range(2))
    fresh.momentum_ = None
    for one in (dec, fresh): one.set_params(method='IDEC').partial_fit(points)
    assert (dec.cluster_centers_ == fresh.cluster_centers_).all()
    assert dec.method_ == 'IDEC'
    dec.set_params(cluster=Stage(40, optimizer='adam', lr=1e-3))
    assert dec.partial_fit(points).labels_.shape == (200,)

def test_a_stream_goes_by_the_arguments_as_they_are(tmp_path):
    dec = small().fit(points)
    mu = dec.cluster_centers_
    dec.set_params(train_centroids=False).partial_fit(points)
    assert (dec.cluster_centers_ == mu).all()
    dec.set_params(train_centroids=True, cluster=Stage(40, lr=1e-9)).partial_fit(points)
    assert np.allclose(dec.cluster_centers_, mu, atol=1e-6) and dec.recipe_.cluster.lr == 1e-9
    dec.set_params(cluster=Stage(40, lr=.1)).partial_fit(points)
    assert not np.allclose(dec.cluster_centers_, mu, atol=1e-6)
    dec.save(tmp_path/'m')
    assert DEC.load(tmp_path/'m').recipe_.cluster.lr == .1

def test_a_stream_keeps_what_it_is_built_of(tmp_path):
    dec = small().fit(points)
    dec.save(tmp_path/'m')
    with pytest.raises(DecError, match="fitted as DEC, and VaDE is built of other parts.*'DEC'"):
        dec.set_params(method='VaDE').partial_fit(points)
    assert dec.set_params(method='DCN').partial_fit(points).layer_.count.sum() > len(points)
    with pytest.raises(DecError, match='DCN.*fit anew'):
        DEC.load(tmp_path/'m').set_params(method='DCN').partial_fit(points)

def test_more_is_routed():
    more = points[:50] + .5
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match='set_fit_request'):
            make_pipeline(small()).fit(points, more=more)
        routed = make_pipeline(small().set_fit_request(more=True)).fit(points, more=more)[-1]
    given, without = small().fit(points, more=more), small().fit(points)
    assert (routed.start_codes_ == given.start_codes_).all()
    assert (routed.start_codes_ != without.start_codes_).any()

def test_only_the_first_rows_decide_the_number_too(monkeypatch):
    seen, real = [], DEC.fit_autoencoder
    def watched(self, X, *args, **kw):
        seen.append(self.train_rows)
        return real(self, X, *args, **kw)
    monkeypatch.setattr(DEC, 'fit_autoencoder', watched)
    k_curve(small(train_rows=120), points, [2])
    assert len(seen) == 2 and sum(seen) == 120

def test_a_stream_of_one_kind_still_teaches():
    "By its own sizes its target would be q itself, nearly; by those of the stream it sharpens"
    x, y = make_blobs(n=300)
    one, rise = x[y == 0], {}
    for remember in (True, False):
        dec = small().fit(x)
        before = dec.predict_proba(one).max(1).mean()
        for _ in range(8):
            if not remember: dec.soft_sizes_ = 0*dec.soft_sizes_
            dec.partial_fit(one)
        rise[remember] = dec.predict_proba(one).max(1).mean() - before
    assert rise[True] > .002 and rise[True] > 5*abs(rise[False])

class Noisy(nn.Module):
    "A network of one's own: no `dims`, and noise that must be off when points are looked at"
    def __init__(self, d, *_):
        super().__init__()
        torch.manual_seed(0)
        self.d, self.encoder, self.decoder = d, nn.Sequential(nn.Dropout(.3), nn.Linear(d, 8),
                                                              nn.BatchNorm1d(8)), nn.Linear(8, d)
    def forward(self, x): return self.decoder(self.encoder(x))

def test_a_network_of_ones_own():
    x, _ = make_blobs()
    dec = small(network=Noisy, ae_iter=1000).fit(x)
    assert ((dec.predict_proba(x) == dec.predict_proba(x)).all()
            and (dec.labels_ == dec.predict(x)).all())
    assert ((dec.predict(x[:7]) == dec.labels_[:7]).all()
            and dec.get_feature_names_out().shape == (8,))
    assert all(m.training for m in dec.autoencoder_.modules())                     # as it was
    with pytest.raises(DecError, match='Noisy cannot be saved'): dec.save('nowhere')

def test_running_means_are_in_a_checkpoint(tmp_path):
    x, _ = make_blobs()
    fit = lambda: small(network=Noisy, checkpoint=Checkpoint(tmp_path/'ck')).fit_autoencoder(x)
    first, again = fit(), fit()
    assert (first.start_codes_ == again.start_codes_).all()
    assert (first.transform(x) == again.transform(x)).all()
    assert first.autoencoder_.encoder[2].running_mean.abs().max() > 0

@pytest.mark.parametrize('method', ['ConvDEC', 'VaDE'])
def test_an_autoencoder_of_another_kind_is_refused(method): # or a name would stand over another network
    with pytest.raises(DecError, match=f'{method} learns with a .*AutoEncoder, and the .* given is'):
        small(method=method, autoencoder=AutoEncoder(16, (32, 8))).fit(make_blobs()[0])

def test_most_batches_are_no_wish_for_so_many():
    x, _ = make_blobs()
    brief = Stage(1000, epochs=2, lr=.01, batch_size=50)
    for most, n in ((500, 8), (3, 3), (None, 8)):
        assert small(cluster=brief, max_iter=most, tol=0.).fit(x).n_iter_ == n

def test_points_are_free_when_the_model_is(): # on a GPU nobody asks Python to collect
    x, alive = make_blobs()[0], []
    class Look(Callback):
        def before_fit(self, trainer): alive.append(weakref.ref(trainer))
    gc.collect(); gc.disable()
    try:
        small(callbacks=lambda dec, x: Look()).fit(x)
        assert alive[0]() is None
    finally: gc.enable()

def test_a_fit_whose_warning_is_an_error_is_whole(tmp_path):
    x = np.repeat(np.eye(2, 16, dtype=np.float32), 20, 0)
    dec = small(5)
    with warnings.catch_warnings():
        warnings.filterwarnings('error', '.*empty in the end')
        with pytest.raises(UserWarning, match='empty in the end'): dec.fit(x)
    dec.save(tmp_path/'m')
    assert DEC.load(tmp_path/'m').n_iter_ == dec.n_iter_

def test_a_search_that_cannot_be_keeps_the_old_model():
    x, _ = make_blobs()
    dec = small().fit(x)
    old = dec.labels_
    with pytest.raises(DecError):
        dec.set_params(n_clusters='auto', autoencoder=dec.autoencoder_).fit(x)
    assert dec.labels_ is old and (dec.predict(x) == old).all()

def test_recipes_can_be_compared_and_kept_in_sets():
    assert hash(replace(narrow, dims=[32, 8])) == hash(narrow) and narrow == replace(narrow,
                                                                                     dims=[32, 8])
    with pytest.raises(DecError, match="no method is called"): small(method=['DEC']).fit(make_blobs()[0])

def test_lloyd_goes_only_as_far_as_the_fit(tmp_path):
    x, _ = make_blobs()
    dec = small(callbacks=Lloyd, train_centroids=False).fit(x)
    assert len(dec.partial_fit(x[:50]).labels_) == 50
    assert not pickle.loads(pickle.dumps(dec)).callbacks_

def test_what_was_fitted_is_saved_whole(tmp_path):
    "Also with numbers that are numpy's, and with an autoencoder that is no recipe's"
    x, _ = make_blobs()
    dec = small(autoencoder=AutoEncoder(16, (12, 5), 'uniform'), max_iter=np.int64(30),
                tol=np.float32(0), alpha=np.float32(1)).fit(x)
    dec.save(tmp_path/'m.safetensors')
    assert (DEC.load(tmp_path/'m.safetensors').predict_proba(x) == dec.predict_proba(x)).all()
    conv = DEC(3, method='ConvDEC', network=partial(ConvAutoEncoder, channels=(2, 2, 2)), ae_iter=5,
               max_iter=5, random_state=0).fit(x)
    with pytest.raises(DecError, match='cannot be saved'): conv.save(tmp_path/'c.safetensors')

class Smooth(AutoEncoder): # the same weights, and another function
    def __init__(self, d, dims, init='uniform', seed=0):
        super().__init__(d, dims, init, seed)
        for i, m in enumerate(self.encoder):
            if isinstance(m, nn.ReLU): self.encoder[i] = nn.Tanh()
Smooth.__name__ = 'AutoEncoder'

class Turned(ClusterLayer):
    def forward(self, z): return super().forward(nn.functional.normalize(z))
Turned.__name__ = 'ClusterLayer'

def positive(x): # a trained autoencoder with one module more
    ae = small().fit_autoencoder(x).autoencoder_
    ae.encoder.append(nn.ReLU())
    return ae

def other(part): # a trained autoencoder with other activations
    def made(x):
        ae = small().fit_autoencoder(x).autoencoder_
        for i, m in enumerate(ae.encoder):
            if isinstance(m, nn.ReLU): ae.encoder[i] = part
        return dict(autoencoder=ae)
    return made

def frozen(x):
    ae = small().fit_autoencoder(x).autoencoder_
    ae.encoder[0].requires_grad_(False)
    return dict(autoencoder=ae)

@pytest.mark.parametrize('own', [lambda x: dict(network=Smooth), lambda x: dict(head=Turned),
                                 lambda x: dict(autoencoder=positive(x)), frozen, other(nn.ReLU6()),
                                 other(nn.LeakyReLU(1e-3)), other(nn.Hardtanh(0, 2.7))],
                         ids=['network', 'head', 'module', 'frozen', 'ReLU6', 'leaky', 'cut'])
def test_a_file_is_not_written_that_gives_back_another_model(tmp_path, own):
    x, _ = make_blobs()
    dec = small(**own(x)).fit(x)
    with pytest.raises(DecError, match='cannot be saved'): dec.save(tmp_path/'m.safetensors')
    assert not list(tmp_path.iterdir())

@pytest.mark.parametrize('change', [lambda m: m.autoencoder_.double(), lambda m: m.layer_.double(),
                                    lambda m: m.autoencoder_.bfloat16(),
                                    lambda m: m.set_params(n_init='auto')],
                         ids=['double', 'head', 'bfloat16', 'n_init'])
def test_a_file_is_not_written_that_could_not_be_read(tmp_path, change):
    change(dec := small().fit(make_blobs()[0]))
    with pytest.raises(DecError, match='cannot be saved, since'): dec.save(tmp_path/'m')
    assert not list(tmp_path.iterdir())

def test_a_stream_hears_of_arguments_that_make_no_sense():
    x, _ = make_blobs()
    dec = small(method='IDEC').fit(x)
    with pytest.raises(DecError, match='backprop=False trains the centroids alone'):
        dec.set_params(backprop=False).partial_fit(x)

def test_tied_weights_are_saved(tmp_path):
    ae = AutoEncoder(16, (8, 8, 5), 'uniform')
    ae.decoder[2].weight = ae.encoder[2].weight                               # both 8 × 8
    x = make_blobs()[0]
    dec = small(autoencoder=ae, max_iter=5).fit(x)
    dec.save(tmp_path/'m')
    assert (DEC.load(tmp_path/'m').predict_proba(x) == dec.predict_proba(x)).all()

@pytest.mark.parametrize('wrong', [dict(features=0), dict(dims=10), dict(dims=(50, 10.)),
                                   dict(dims=()), dict(dims=(3, 0)), dict(factor='1'),
                                   dict(finetune=None), dict(pretrain=5)], ids=str)
def test_recipes_are_checked_when_made(wrong): # and not after an hour of training
    with pytest.raises(DecError, match=f'^{[*wrong][0]} must be'):
        replace(narrow, **wrong)

class Slotted:
    __slots__ = ('w',)
    def __init__(self, w): self.w = w

def test_jobs_see_what_stands_in_slots():
    x, _ = make_blobs()
    one, same, other = (job_key(x, loss=Slotted(w)) for w in (1., 1., 2.))
    assert one == same != other

def test_ragged_points_are_named():
    with pytest.raises(DecError, match='more has rows of different lengths'):
        small().fit(make_blobs()[0], more=[[1, 2], [3]])

class Writer: # of TensorBoard: it holds a thread, which cannot be pickled
    made = []
    def __init__(self, folder):
        self.folder, self.lock, self.told, self.open = folder, threading.Lock(), [], True
        self.made.append(self)
    def add_scalar(self, name, v, t): self.told.append((name, t))
    def close(self): self.open = False

def test_a_model_with_a_log_can_be_pickled(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', SimpleNamespace(SummaryWriter=Writer))
    x, _ = make_blobs()
    dec = small(callbacks=[TensorBoardLog(tmp_path/'log')]).fit(x)
    again = pickle.loads(pickle.dumps(dec))
    assert (again.predict(x) == dec.labels_).all()
    again.partial_fit(x)                                                   # and it goes on telling
    fit, stream = Writer.made
    assert fit.told and stream.told and stream.folder == str(tmp_path/'log')
    assert min(t for _, t in stream.told) >= dec.n_iter_ and not (fit.open or stream.open)

def test_only_the_first_worker_keeps_a_log(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', SimpleNamespace(SummaryWriter=Writer))
    q, told = torch.eye(3), []
    for rank in (0, 1):
        log = TensorBoardLog(tmp_path/'log')
        trainer = SimpleNamespace(rank=rank, t=4, history=[(4, .5)], callbacks=[])
        writer = log.writer
        log.after_refresh(trainer, q); log.after_fit(trainer)
        told.append(len(writer.told))
    assert told[0] > 1 and told[1] == 0

def test_classes_and_callbacks_in_one_list():
    x, log = make_blobs()[0], []
    class Count(Callback):
        def after_refresh(self, trainer, q): log.append(trainer.t)
    dec = small(callbacks=[Journey, Count(), lambda *_: [Count()]]).fit(x)
    assert [type(c) for c in dec.callbacks_] == [Journey, Count, Count] and len(log) > 2
    class Bare(Callback): pass
    for wrong in (['Journey'], [Journey, 7], Bare, [Bare]):
        with pytest.raises(DecError, match='callbacks must be'): small(callbacks=wrong).fit(x)

def test_a_map_of_a_data_frame_shows_its_pictures():
    x = pd.DataFrame(make_blobs()[0])
    way, = small(callbacks=Journey).fit(x).callbacks_
    assert (moving_map(way, x, (4, 4)) == moving_map(way, x.to_numpy(), (4, 4))
            != moving_map(way))

@pytest.mark.parametrize('what', [dict(alpha=9.), dict(n_clusters=7),
                                  dict(assign=lambda z, mu, alpha: soft_assign(z, mu, alpha))])
def test_a_stream_refuses_what_it_cannot_change(what):
    x, _ = make_blobs()
    dec = small().partial_fit(x)
    before, [name] = dec.cluster_centers_.copy(), what
    dec.set_params(**what)
    with pytest.raises(DecError, match=f'{name} is .* partial_fit cannot change it'): dec.partial_fit(x)
    assert (dec.cluster_centers_ == before).all()

def test_a_stream_does_not_throw_an_autoencoder_away():
    x, _ = make_blobs()
    dec = small().fit_autoencoder(x)
    ae = dec.autoencoder_
    with pytest.raises(DecError, match='fit_autoencoder has made no clusters yet'): dec.partial_fit(x)
    assert dec.autoencoder_ is ae and dec.set_params(autoencoder=ae).partial_fit(x).n_iter_

def test_a_head_of_ones_own_goes_on_with_a_stream():
    class Own(ClusterLayer):
        def __init__(self, mu, alpha, assign): super().__init__(mu, 2*alpha, assign)
    dec = small(head=Own).partial_fit(x := make_blobs()[0])
    before = dec.n_iter_
    assert dec.partial_fit(x).n_iter_ > before

def test_seconds_of_the_search_for_a_number(monkeypatch):
    monkeypatch.setattr(how_many, 'k_curve', lambda *_, **__: [dict(k=3, strength=1.)])
    dec = small('auto').fit(make_blobs()[0])
    assert dec.n_clusters_ == 3 and 0 < dec.seconds_['number of clusters'] < 5

def test_nothing_is_no_table():
    dec = small().fit(make_blobs()[0])
    for ask in (dec.predict, dec.transform):
        with pytest.raises(DecError, match='X has shape'): ask(None)

def test_paths_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path)); monkeypatch.setenv('USERPROFILE', str(tmp_path))
    (tmp_path/'pictures').mkdir()
    Image.new('L', (4, 4)).save(tmp_path/'pictures'/'a.png')
    (tmp_path/'r.json').write_text('[{"experiment": "fit"}]')
    assert load_pictures('~/pictures')[0].n == len(read_records('~/r.json')) == 1

def test_spectral_clustering_says_what_is_wrong():
    x, _ = make_blobs()
    half = SEC(3)
    half.embed(x)
    with pytest.raises(NotFittedError): half.predict(x)
    for bad, words in ((dict(mu='a'), 'mu must be a number'), (dict(gamma=None), 'gamma must be'),
                       (dict(mu=np.inf), 'mu must be a number above 0, and finite'),
                       (dict(n_neighbors=0), 'n_neighbors must be a whole number above 0')):
        with pytest.raises(DecError, match=words): SEC(3, **bad).fit(x)

def test_spectral_clustering_knows_the_names_of_columns():
    x = pd.DataFrame(make_blobs()[0]).add_prefix('c')
    sec = SEC(3, random_state=0, n_init=2).fit(x)
    assert (sec.predict(x) == sec.labels_).all() and [*sec.feature_names_in_] == [*x.columns]
    with pytest.raises(ValueError, match='feature names'): sec.predict(x[x.columns[::-1]])

def test_looking_at_eigenvectors_changes_no_fit():
    x, _ = make_blobs()
    sec = SEC(3, random_state=0, n_init=2).fit(x)
    before = kinds(dict(vars(sec)) | dict(kmeans_=None))
    sec.embed(np.tile(x[:, ::-1], 2))
    assert kinds(dict(vars(sec)) | dict(kmeans_=None)) == before and (sec.predict(x) == sec.labels_).all()

def test_a_loaded_model_goes_on_as_it_was(tmp_path):
    x, _ = make_blobs()
    def woken(**kw):
        small(**kw).fit(x).save(tmp_path/'m.safetensors')
        return DEC.load(tmp_path/'m.safetensors')
    frozen = woken(backprop=False)
    z = frozen.transform(x)
    assert (frozen.partial_fit(x).transform(x) == z).all()
    still = woken(train_centroids=False)
    mu = still.cluster_centers_
    assert (still.partial_fit(x).cluster_centers_ == mu).all()
    counts = woken(method='DCN')
    mu = counts.cluster_centers_
    assert (counts.partial_fit(x).cluster_centers_ != mu).any()                    # by its callback
    own = woken(loss=lambda batch: 2*dec_loss(batch))
    with pytest.raises(DecError, match='fitted with loss of its own'): own.partial_fit(x)
    assert (own.set_params(loss=dec_loss).partial_fit(x).labels_ >= 0).all()

def test_nothing_of_an_older_fit_is_left():
    x, _ = make_blobs()
    dec = small().fit(x)
    centres = dec.cluster_centers_
    kept = centres.copy()
    # what was handed out does not move
    assert (dec.partial_fit(x).cluster_centers_ != kept).any() and (centres == kept).all()
    old = dec.transform(x)
    dec.fit_autoencoder(x)
    for ask in (dec.predict, lambda x: dec.save('nowhere')):
        with pytest.raises(NotFittedError): ask(x)
    assert (dec.transform(x) != old).any()                          # the new network's, not trained on

@pytest.mark.parametrize('given', [lambda x: pd.DataFrame(x.astype(float)), lambda x: x.tolist()],
                         ids=['frame', 'list'])
def test_callbacks_get_the_matrix(given): # whatever the user gave, and whatever transform hands out
    x, got = make_blobs()[0], []
    dec = small(callbacks=lambda dec, x: got.append(x)
                or [Journey(dec, x)]).set_output(transform='pandas').fit(given(x))
    [seen], [way] = got, dec.callbacks_
    assert isinstance(seen, np.ndarray) and seen.dtype == np.float32 and (seen == x).all()
    assert way.t[-1] == dec.n_iter_ and (way.q[-1].argmax(1).numpy() == dec.labels_[way.rows]).all()
    # its callback asks for codes
    with warnings.catch_warnings():
        warnings.filterwarnings('error', '.*valid feature names')
        again = small(method='Aljalbout').set_output(transform='pandas').fit(given(x))
    plain = small(method='Aljalbout').fit(x)
    assert ((again.cluster_centers_ == plain.cluster_centers_).all()
            and (again.labels_ == plain.labels_).all())

def test_backprop_needs_a_method_for_it():
    for method in ('IDEC', 'VaDE', 'DEC-DA'):
        with pytest.raises(DecError, match='backprop=False'):
            small(method=method, backprop=False).fit(make_blobs()[0])

def test_further_points_are_of_the_same_kind():
    x, _ = make_blobs()
    with pytest.raises(DecError, match='sparse and the other dense'):
        small().fit(x, more=sparse.csr_matrix(x))

@pytest.mark.parametrize('method', ['DCN', 'Aljalbout'])
def test_watching_a_method_does_not_change_it(method):
    x, _ = make_blobs()
    plain = small(method=method).fit(x)
    watched = small(method=method, callbacks=[Snapshots()]).fit(x)
    assert ((plain.cluster_centers_ == watched.cluster_centers_).all()
            and (plain.labels_ == watched.labels_).all())
    assert len(watched.callbacks_) == 2 and not small(method=method, callbacks=()).fit(x).callbacks_

@pytest.mark.parametrize('name, value',
                         [('callbacks', Snapshots()), ('callbacks', [1]), ('loss', 'kl'),
                          ('start', 'x'), ('augment', 'x'), ('cluster', 'x'), ('checkpoint', 3)])
def test_what_is_of_the_wrong_kind_is_told_at_once(name, value):
    with pytest.raises(DecError, match=f'^{name} must be'):
        small(**{name: value}).fit_autoencoder(make_blobs()[0])

def test_the_random_state_of_the_session_is_left_alone():
    x, _ = make_blobs()
    for method in ('DEC', 'VaDE', 'ConvDEC'):
        before = torch.get_rng_state()
        small(method=method).fit(x)
        assert torch.equal(torch.get_rng_state(), before), method

def test_a_loaded_model_is_the_same_job(tmp_path):
    x, _ = make_blobs()
    for args in (dict(method='IDEC', train_rows=50),
                 dict(recipe=replace(narrow, update_interval_text=7), update_interval=None)):
        given = sparse.csr_matrix(x) if 'recipe' in args else x
        dec = small(**args).fit(given)
        dec.set_params(alpha=5.).save(tmp_path/'m.safetensors')                # set, but not fitted
        loaded = DEC.load(tmp_path/'m.safetensors')
        assert ((loaded.predict_proba(x) == dec.predict_proba(x)).all()
                and (clone(loaded).fit(given).labels_ == dec.labels_).all())
    odd = small(recipe=replace(narrow, dims=tuple(np.array([12, 5])))).fit(x)
    odd.save(tmp_path/'m.safetensors')
    assert (DEC.load(tmp_path/'m.safetensors').predict(x) == odd.labels_).all()

def test_no_loss_at_all_is_no_division_by_zero():
    class Sure:
        def predict_proba(self, x): return np.eye(2, dtype=np.float32)[np.arange(len(x)) % 2]
    assert generalizability(Sure(), np.zeros((6, 1)), np.zeros((4, 1))) == (1., 0., 0.)

def test_what_float32_would_forget_is_told():
    x = 1.7e9 + np.random.default_rng(0).random((60, 16))*20
    with pytest.raises(DecError, match='subtract its mean'): small().fit(x)
    small().fit(x - x.mean(0))

def test_what_is_given_goes_before_the_method():
    assert (DEC(method='DCN')._use.train_centroids is False
            and DEC(method='DCN', train_centroids=True)._use.train_centroids is True)
    assert (DEC(method='DCN', callbacks=())._use.callbacks == ()
            and DEC(method='IDEC', keep_decoder=False)._use.keep_decoder is False)

def test_a_stopped_fit_is_no_model(tmp_path): # not even after a good one
    m = small()
    x = make_blobs()[0]
    m.fit(x)
    class Stop(Callback):
        def after_batch(self, trainer):
            if trainer.t == 20: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): m.set_params(callbacks=[Stop()]).fit(x)
    for left in (lambda: m.predict(x), lambda: m.save(tmp_path/'m')):
        with pytest.raises(NotFittedError): left()
    assert not hasattr(m, 'labels_')

def test_threads_do_not_disturb_each_other():
    x = make_blobs()[0]
    fit = lambda s: small(ae_iter=60 + 20*s, random_state=s).fit(x).start_codes_
    alone, before = [fit(s) for s in range(3)], torch.get_float32_matmul_precision()
    state = torch.get_rng_state()
    together = Parallel(n_jobs=3, backend='threading')(delayed(fit)(s) for s in range(3))
    for a, b in zip(alone, together): assert np.array_equal(a, b)
    assert torch.get_float32_matmul_precision() == before
    assert torch.equal(torch.get_rng_state(), state)

def test_a_seed_leaves_other_devices_alone(monkeypatch): # a user's own dropout on a GPU, say
    seen = []
    monkeypatch.setattr(torch.cuda, 'manual_seed_all', seen.append)
    small().fit(make_blobs()[0])
    assert seen == []

@pytest.mark.parametrize('kind', [torch.float64, torch.bfloat16])
def test_defaults_of_the_session_do_not_matter(kind):
    x, before = make_blobs()[0], torch.get_default_dtype()
    want = small(method='VaDE').fit(x).labels_
    torch.set_default_dtype(kind)
    try: assert np.array_equal(small(method='VaDE').fit(x).labels_, want)
    finally: torch.set_default_dtype(before)

@pytest.mark.parametrize('method', ['DEC', 'Aljalbout', 'DCN'])
def test_a_pickle_does_not_hold_the_data(method):
    x = np.tile(make_blobs()[0], (30, 1))
    m = small(method=method).fit(x)
    raw = pickle.dumps(m)
    assert len(raw) < x.nbytes and np.array_equal(pickle.loads(raw).predict(x), m.labels_)

def test_counts_of_a_stream_are_saved(tmp_path): # DCN's centroids move by 1/count
    x, new = make_blobs()[0], make_blobs(seed=1)[0]
    m = small(method='DCN').fit(x)
    m.save(tmp_path/'m')
    again = DEC.load(tmp_path/'m')
    assert np.array_equal(m.partial_fit(new).cluster_centers_,
                          again.partial_fit(new).cluster_centers_)

def test_a_model_of_dcn_without_its_unit_is_refused(tmp_path): # written before there was one
    small(method='DCN').fit(make_blobs()[0]).save(tmp_path/'m')
    with safe_open(tmp_path/'m', 'pt') as f:
        arrays, header = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
    del arrays['head.unit']
    save_file(arrays, tmp_path/'old', header)
    with pytest.raises(DecError, match='head.unit.*another version'): DEC.load(tmp_path/'old')

def test_a_loaded_model_says_what_a_new_fit_lacks(tmp_path):
    x = make_blobs()[0]
    small(loss=lambda b: 0*b.q.sum()).fit(x).save(tmp_path/'m')
    with pytest.raises(DecError, match='fitted with loss of its own.*set_params'):
        DEC.load(tmp_path/'m').fit(x)
    wide = partial(ConvAutoEncoder, image_shape=(2, 8))
    small(network=wide).fit(x).save(tmp_path/'n')
    assert DEC.load(tmp_path/'n').fit(x).autoencoder_.image_shape == (2, 8)

def test_what_makes_no_sense_is_told_at_once():
    with pytest.raises(DecError, match='leave one of them out'):
        small(backprop=False, train_centroids=False).fit(make_blobs()[0])
    for bad in (dict(n_iter=0), dict(batch_size=0), dict(momentum=1.5), dict(lr=-1.),
                dict(epochs=0), dict(dropout=1.), dict(lr_step=-1), dict(lr=np.inf)):
        with pytest.raises(DecError, match=f'{[*bad][0]} must be'): Stage(**dict(n_iter=5) | bad)

@pytest.mark.parametrize('method', ['IDEC', 'VaDE'])
def test_a_method_that_needs_its_decoder_says_so_at_once(method, monkeypatch):
    idle = small(method=method, keep_decoder=False)
    assert idle.set_params(loss=dec_loss, method='IDEC').fit(points).n_iter_ > 0
    monkeypatch.setattr(Trainer, 'step', lambda self: 1/0)
    with pytest.raises(DecError, match=f'{method} looks at rec.* leave keep_decoder out'):
        idle.set_params(loss=None, method=method).fit(points)

def test_points_beyond_float32_get_no_cluster(): # maps write -3.4e38 where they know nothing
    dec, x = small().fit(points), points.copy()
    x[7, 2] = -3.4e38
    for ask in (dec.predict, dec.predict_proba, dec.transform):
        with pytest.raises(DecError, match='no numbers for row 7 of X'): ask(x)

def test_the_search_for_k_holds_no_file_whole(tmp_path, monkeypatch):
    np.save(tmp_path/'x.npy', make_blobs(400)[0])
    monkeypatch.setattr(reading, 'IN_MEMORY', 2**13)
    x = np.load(tmp_path/'x.npy', mmap_mode='r')
    seen = []
    monkeypatch.setattr(how_many, '_row', lambda a, b, halves, k: seen.append(len(halves[0])) or {})
    k_curve(small(), x, ks=(2,))
    assert 10 < seen[0] < 100

def test_what_a_subclass_keeps_is_left():
    class Scaled(DEC):
        def fit(self, X, y=None):
            self.scaler_ = StandardScaler().fit(X)
            return super().fit(self.scaler_.transform(X))
    x = make_blobs()[0]
    assert hasattr(Scaled(3, recipe=narrow, ae_iter=30, max_iter=10).fit(x), 'scaler_')

def test_a_fork_during_a_fit_can_predict():
    x = make_blobs()[0]
    m, read = small().fit(x), []
    class Fork(Callback):
        def after_batch(self, trainer):
            if trainer.t == 10 and not read:
                run = multiprocessing.get_context('fork').Process(target=m.predict, args=(x[:5],))
                start = threading.Thread(target=lambda: (run.start(), run.join(30)))
                start.start(); start.join()
                read.append(run.exitcode); run.kill()
    small(callbacks=[Fork()]).fit(x)
    assert read == [0]

def test_a_model_keeps_in_mind_what_its_file_could_not_hold(tmp_path):
    x = make_blobs()[0]
    small(loss=lambda b: 0*b.q.sum()).fit(x).save(tmp_path/'m')
    DEC.load(tmp_path/'m').save(tmp_path/'again')
    with pytest.raises(DecError, match='fitted with loss of its own'):
        DEC.load(tmp_path/'again').partial_fit(x)

def test_tensors_of_every_kind_are_fitted():
    x = torch.from_numpy(make_blobs()[0])
    want = small().fit(x).labels_
    assert np.array_equal(small().fit(x.clone().requires_grad_()).labels_, want)
    small().fit(x.bfloat16())

def test_an_autoencoder_is_shared_by_those_who_have_the_same_points(tmp_path):
    x, y = make_blobs()
    start = lambda more: shared_start(Dataset('b', x, y, more=more), 'fast', 0, tmp_path, ae_iter=5,
                                      n_init=1)[0].start_codes_
    one, same, other = start(x[:20]), start(x[:20]), start(x[20:])
    assert (one == same).all() and (one != other).any() and len([*tmp_path.glob('*.pt')]) == 2

def test_halves_need_autoencoders_of_their_own():
    x, _ = make_blobs()
    ae = small().fit_autoencoder(x).autoencoder_
    given = small(autoencoder=ae)
    for fit in (partial(k_curve, given), clone(given).set_params(n_clusters='auto').fit):
        with pytest.raises(DecError, match='Leave autoencoder out'): fit(x)

def test_one_callback_or_its_class_will_do():
    class Seen(Callback):
        def __init__(self, dec, x): self.dec, self.n = dec, len(x)
    x, _ = make_blobs()
    for given in (Seen, lambda *args: Seen(*args), lambda *args: [Seen(*args)]):
        dec = small(callbacks=given).fit(x)
        assert [(c.dec is dec, c.n) for c in dec.callbacks_] == [(True, len(x))]

def test_a_yes_is_no_seed():
    with pytest.raises(DecError, match='random_state must be'):
        small(random_state=True).fit(make_blobs()[0])

def test_sizes_of_many_clusters_are_summed_exactly():
    dec = small().fit(make_blobs()[0])
    assert dec.soft_sizes_.dtype == np.float64
    q = dec.predict_proba(make_blobs()[0])
    assert np.abs(q.sum(0, dtype=float) - dec.soft_sizes_).max() < 1e-4

def test_what_is_no_callback_is_told():
    with pytest.raises(DecError, match='must be Callbacks'):
        small(callbacks=lambda dec, x: [object()]).fit(make_blobs()[0])

class StopAt(Callback):
    def __init__(self, t): self.t = t
    def after_batch(self, trainer):
        if trainer.t == self.t: raise KeyboardInterrupt

@pytest.mark.parametrize('method', ['DEC', 'IDEC', 'DCN'])
def test_a_portion_that_goes_wrong_changes_nothing(method, tmp_path):
    x, _ = make_blobs(n=600)
    fitted = small(method=method).fit(x[:300]).partial_fit(x[:300])
    dec, fresh = pickle.loads(pickle.dumps(fitted)), pickle.loads(pickle.dumps(fitted))
    q, centres = dec.predict_proba(x), dec.cluster_centers_
    wild = replace(dec.recipe_.cluster, lr=1e30)
    with pytest.raises(DecError, match='lower the learning rate'):
        dec.set_params(cluster=wild).partial_fit(x)
    dec.set_params(cluster=None)
    assert (dec.predict_proba(x) == q).all()
    dec.callbacks_ = [*dec.callbacks_, StopAt(1)]
    with pytest.raises(KeyboardInterrupt): dec.partial_fit(x)
    assert (dec.predict_proba(x) == q).all() and dec.cluster_centers_ is centres
    dec.callbacks_.pop(-2)                                                       # goes on as if new
    assert (dec.partial_fit(x[300:]).cluster_centers_
            == fresh.partial_fit(x[300:]).cluster_centers_).all()
    with torch.no_grad(): dec.layer_.mu[0, 0] = torch.nan
    with pytest.raises(DecError, match='head.mu of this model holds NaN'): dec.save(tmp_path/'m')
    assert not (tmp_path/'m').exists()

@pytest.mark.parametrize('wrong', [dict(n_clusters=500), dict(device='tpu'), dict(alpha=-1),
                                   dict(random_state='x'), dict(recipe='slow'), dict(checkpoint=3),
                                   dict(autoencoder=AutoEncoder(3, (2,)))],
                         ids=lambda wrong: next(iter(wrong)))
def test_a_fit_that_never_began_leaves_the_model(wrong):
    x, _ = make_blobs()
    dec = small().fit(x)
    q = dec.predict_proba(x)
    with pytest.raises(DecError): clone(dec).set_params(**wrong).fit(x)
    with pytest.raises(DecError): dec.set_params(**wrong).fit(2*x)
    for bad in (np.full_like(x, np.nan), x[:2], 0*x, pd.DataFrame(x).astype(str) + 'a'):
        with pytest.raises(DecError): dec.set_params(**small().get_params()).fit(bad)
    with pytest.raises(DecError): dec.fit(x, more=x[:, 1:])
    assert (dec.predict_proba(x) == q).all() and dec.n_clusters_ == 3

def test_widths_are_an_argument():
    x, _ = make_blobs()
    dec = small(dims=(12, 4)).fit(x)
    want = small(recipe=replace(narrow, dims=(12, 4))).fit(x)
    assert (dec.transform(x) == want.transform(x)).all() and dec.recipe_ == want.recipe_
    assert [l.out_features for l in dec.autoencoder_.encoder[::2]] == [12, 4]
    for bad in ((12, 0), (), 12, 'wide'):
        with pytest.raises(DecError, match='^dims must be widths'):
            small(dims=bad).fit(x)
    with pytest.raises(DecError, match='leave one of them out'):
        small(dims=(12, 5), autoencoder=dec.autoencoder_).fit(x)
    small(dims=[12, 4], autoencoder=dec.autoencoder_).fit(x)
    class Silent(AutoEncoder): # about its widths
        def __init__(self, *args): super().__init__(*args); del self.dims
    small(dims=(12, 4), autoencoder=Silent(16, (12, 4), 'uniform')).fit(x)

def test_codes_of_an_autoencoder_alone():
    x, _ = make_blobs()
    dec = small(precision='float32').fit_autoencoder(x)
    assert np.allclose(dec.transform(x), dec.start_codes_, atol=1e-5)
    with pytest.raises(NotFittedError): dec.predict(x)
    with pytest.raises(NotFittedError): small().transform(x)
    class Breaks(Callback):
        def after_batch(self, trainer): raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError): dec.set_params(callbacks=[Breaks()]).fit(x)
    with pytest.raises(NotFittedError): dec.transform(x)                  # trained half-way
    assert {n for n in vars(dec) if n.endswith('_')} == {'n_features_in_'}

def test_what_counts_as_fitted():
    x, _ = make_blobs()
    check_is_fitted(small().fit(x))
    class Breaks(Callback):
        def after_batch(self, trainer): raise ZeroDivisionError
    broken = small(callbacks=[Breaks()])
    with pytest.raises(ZeroDivisionError): broken.fit(x)
    for dec in (small(), small().fit_autoencoder(x), broken):
        with pytest.raises(NotFittedError): check_is_fitted(dec)
        with pytest.raises(NotFittedError): show_training(dec)

@pytest.mark.parametrize('mood', [torch.no_grad(), torch.inference_mode(),
                                  torch.autocast('cpu', dtype=torch.bfloat16)],
                         ids=lambda m: type(m).__name__)
def test_the_mood_of_a_session_does_not_matter(mood):
    x, _ = make_blobs(n=300)
    plain = small().fit(x[:200])
    with mood:
        dec = small().fit(x[:200])
        assert (dec.cluster_centers_ == plain.cluster_centers_).all()
        assert (dec.predict_proba(x) == plain.predict_proba(x)).all()
        assert (dec.transform(x) == plain.transform(x)).all()
        dec.partial_fit(x[200:])
    assert (dec.cluster_centers_ == plain.partial_fit(x[200:]).cluster_centers_).all()
    assert all(p.grad is None or not p.grad.is_inference() for p in dec.layer_.parameters())

def test_fit_predict_knows_further_points():
    x, _ = make_blobs(n=300)
    want = small().fit(x[:200], more=x[200:]).labels_
    assert (small().fit_predict(x[:200], more=x[200:]) == want).all()

class InPlace(nn.Module): # its first layer writes into what it is given
    def __init__(self, d, *_):
        super().__init__()
        torch.manual_seed(0)
        self.d, self.decoder = d, nn.Linear(4, d)
        self.encoder = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(d, 4))
    def forward(self, x): return self.decoder(self.encoder(x))

def test_points_are_not_written_into():
    x = make_blobs()[0] - np.float32(.5)
    kept = x.copy()
    for scale in ('none', 'paper'):
        dec = small(network=InPlace, recipe=replace(narrow, scale=scale)).fit(x)
        assert (dec.transform(x) == dec.transform(kept)).all() and (x == kept).all()
    rows = Rows(x)
    rows[slice(None)].zero_()
    assert (x == kept).all()

@pytest.mark.parametrize('n, d, few', [(5000, 1024, 2048), (2000, 4096, 1024), (130, 2**20, 64)])
def test_wide_rows_are_looked_at_a_few_at_a_time(n, d, few):
    rows, seen = Rows(sparse.csr_matrix((n, d), dtype=np.float32)), []
    apply_chunked(lambda x: seen.append(len(x)) or x[:, :1], rows)
    assert sum(seen) == n and max(seen) == few == max(map(len, rows.chunks()))

def test_a_loaded_model_says_what_it_lacks_to_be_fitted_again(tmp_path):
    x, _ = make_blobs()
    for name, value in (('autoencoder', AutoEncoder(16, (12, 5), 'uniform')),
                        ('callbacks', [Snapshots()])):
        small(**{name: value}).fit(x).save(tmp_path/'m')
        dec = DEC.load(tmp_path/'m').partial_fit(x)
        with pytest.raises(DecError, match=f'fitted with {name} of its own'): dec.fit(x)
        assert dec.set_params(**{name: value}).fit(x).n_clusters_ == 3

class Brief(DEC):
    def __init__(self, n_clusters=3):
        super().__init__(n_clusters, recipe=narrow, ae_iter=60, max_iter=40, random_state=0)

def test_a_subclass_may_take_fewer_arguments():
    x, y = make_blobs()
    assert len(set(zip(Brief().fit(x).labels_, y))) == 3

@pytest.mark.parametrize('part, says', [
    (dict(loss=lambda b: b.q), 'loss must return one number'),
    (dict(loss=lambda b: 1.), 'loss must return one number'),
    (dict(loss=lambda b: b.q.detach().sum()), 'loss must return one number with a gradient'),
    (dict(loss=lambda b: b.y.mean()), 'keep_decoder=True'),
    (dict(loss=lambda b: b.moved.q.mean()), 'augment='),
    (dict(start=lambda z, k, n_init, seed: z[:k]), 'start must return a dictionary'),
    (dict(start=lambda z, k, *_: dict(mu=z[:k - 1], labels=torch.zeros(len(z)))), 'start, as mu,'),
    (dict(start=lambda z, k, *_: dict(mu=z[:k], labels=torch.zeros(k))), 'start, as labels,'),
    (dict(assign=lambda z, mu, alpha: z.softmax(1)), r'assign .* \(64, 3\), not .* \(64, 8\)'),
    (dict(target=lambda q: q.argmax(1)), r'target .* \(64, 3\), not one of shape \(64,\)'),
    (dict(augment=lambda x: x[:, :3]), r'augment .* \(64, 16\)'),
    (dict(network=lambda d, *_: nn.Linear(d, 2)), 'network must make a module')])
def test_parts_of_ones_own_are_tried_before_the_autoencoder_is_trained(part, says, monkeypatch):
    monkeypatch.setattr(Trainer, 'step', lambda self: 1/0)
    with pytest.raises(DecError, match=says): small(**part).fit(make_blobs()[0])

def test_a_part_may_want_what_only_the_run_has():
    x, _ = make_blobs()
    dec = small()
    late = dec.set_params(loss=lambda b: dec_loss(b) + 0*len(dec.start_codes_)).fit(x)
    assert (late.cluster_centers_ == small().fit(x).cluster_centers_).all()
    for wrong in (None, 7):
        with pytest.raises(DecError, match='or return a Callback'):
            small(callbacks=lambda *_: wrong).fit(x)


def test_a_part_that_fails_is_told_of_before_the_autoencoder():
    x, _ = make_blobs()
    def loss(batch): return unheard_of*dec_loss(batch)
    with (pytest.warns(UserWarning, match='part of your own failed .*NameError.*unheard_of'),
          pytest.raises(NameError)): DEC(3, loss=loss, ae_iter=2, max_iter=2).fit(x)

def test_snapshots_belong_to_one_fit():
    x, _ = make_blobs()
    kept = []
    def watch(dec, x):
        kept.append(Snapshots(lambda: dec.transform(x), (0,)))
        return kept[0]
    dec = DEC(3, ae_iter=5, max_iter=5, n_init=1, random_state=0, callbacks=watch).fit(x)
    n = len(kept[0].kept)
    dec.set_params(callbacks=None)                                      # a local function is no pickle
    pickle.loads(pickle.dumps(dec)).predict(x[:3])
    assert n and len(dec.partial_fit(x[:30]).labels_) == 30 and len(kept[0].kept) == n

def test_greedy_layers_of_a_network_that_has_none():
    class Own(nn.Module):
        def __init__(self, d, dims, init, seed):
            super().__init__()
            self.d, self.dims = d, tuple(dims)
            self.encoder, self.decoder = nn.Linear(d, dims[-1]), nn.Linear(dims[-1], d)
        def forward(self, x): return self.decoder(self.encoder(x))
    x, _ = make_blobs()
    short = dict(ae_iter=3, max_iter=3, n_init=1, random_state=0)
    assert DEC(3, network=Own, recipe='paper', **short).fit(x).labels_.shape == (len(x),)
    class Deeper(Own): # two linear layers there, one back
        def __init__(self, d, dims, init, seed):
            super().__init__(d, dims, init, seed)
            self.encoder = nn.Sequential(nn.Linear(d, 8), nn.Linear(8, dims[-1]))
    with pytest.raises(DecError, match='greedy pretraining needs'):
        DEC(3, network=Deeper, recipe='paper', **short).fit(x)

def test_what_lies_beside_pictures_and_records(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path/'a.png')
    (tmp_path/'._a.png').write_bytes(b'of macOS')
    assert load_pictures(tmp_path)[1] == [tmp_path/'a.png']
    (tmp_path/'r.json').write_text('5')
    with pytest.raises(DecError, match='cannot be read as records'): read_records(tmp_path/'r.json')
