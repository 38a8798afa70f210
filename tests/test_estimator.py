"DEC as users meet it: parameters, refusals, answers, streams, files, scikit-learn's tools"
import copy, gc, pickle, weakref
from dataclasses import replace
from functools import partial
import numpy as np, pandas as pd, pytest, torch, torch.nn as nn
from joblib import Parallel, delayed
from safetensors.torch import save_file
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from conftest import make_blobs
from dec_tutorial import sae
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC
from dec_tutorial.practice.seeing import Snapshots, show_training
from dec_tutorial.methods import METHODS, Method, get_recipe
from dec_tutorial.practice.how_many import k_curve
from dec_tutorial.practice.seeing import Journey
from dec_tutorial.sae import AutoEncoder
from dec_tutorial.soft_assignment import soft_assign
from dec_tutorial.training import Callback, Stage, Trainer
from test_resume import Stop

narrow = replace(get_recipe('fast'), dims=(32, 8))         # so that a fit takes a tenth of a second
points, classes = make_blobs()
frame = pd.DataFrame(points).add_prefix('c')

def small(n_clusters=3, **kw):
    settings = dict(recipe=narrow, ae_iter=60, max_iter=40, update_interval=20, n_init=2,
                    random_state=0)
    return DEC(n_clusters, **(settings | kw))

def own(**parts): return Method('own', **parts)

def reread(dec, folder):
    dec.save(folder/'m')
    return DEC.load(folder/'m')

def same(a, b): return (a.predict_proba(points) == b.predict_proba(points)).all()

@pytest.fixture(scope='module')
def once(): return small().fit(points)

@pytest.fixture
def fitted(once): return copy.deepcopy(once)        # one that a test may change

@pytest.fixture
def no_training(monkeypatch): # whoever trains a batch fails
    def step(self): raise AssertionError('training has begun')
    monkeypatch.setattr(Trainer, 'step', step)

class TestParameters:
    @pytest.mark.parametrize('wrong', [
        dict(n_clusters=0), dict(n_clusters='auto'), dict(n_clusters=500), dict(method='idek'),
        dict(method=['DEC']), dict(recipe='slow'), dict(dims=12), dict(dims=(12, 0)), dict(dims=()),
        dict(ae_iter=0), dict(max_iter=2.5), dict(update_interval=0), dict(tol=2), dict(alpha=-1),
        dict(alpha=np.nan), dict(n_init='auto'), dict(autoencoder=3), dict(callbacks=Snapshots()),
        dict(autoencoder=AutoEncoder(3, (2,))), dict(checkpoint=3), dict(device='tpu'),
        dict(precision='half'), dict(random_state='x')], ids=lambda wrong: str(wrong)[:30])
    def test_a_wrong_one_is_told_and_leaves_the_model(self, fitted, wrong):
        labels, [name] = fitted.labels_, wrong
        with pytest.raises(DecError, match=name.removeprefix('n_')):
            fitted.set_params(**wrong).fit(points)
        assert fitted.labels_ is labels

    def test_one_cluster_is_allowed(self): assert set(small(1).fit(points).labels_) == {0}

    def test_an_infinite_alpha_is_the_gaussian(self):
        dec = small(alpha=np.inf).fit(points)
        q = soft_assign(dec.transform(points), dec.cluster_centers_, np.inf)
        np.testing.assert_allclose(dec.predict_proba(points), q, atol=1e-5)

    def test_widths(self):
        dec = small(dims=[12, 4]).fit(points)
        want = small(recipe=replace(narrow, dims=(12, 4))).fit(points)
        assert (dec.transform(points) == want.transform(points)).all()
        assert dec.recipe_ == want.recipe_
        with pytest.raises(DecError, match='leave one of them out'):
            small(dims=(12, 5), autoencoder=dec.autoencoder_).fit(points)

    @pytest.mark.parametrize('most, n', [(500, 8), (3, 3), (None, 8)])
    def test_max_iter_is_a_limit_and_no_wish(self, most, n):
        brief = replace(narrow, cluster=Stage(1000, epochs=2, lr=.01, batch_size=50))
        assert small(recipe=brief, max_iter=most, tol=0.).fit(points).n_iter_ == n

    @pytest.mark.parametrize('make, wrong', [
        (narrow, dict(dims=(50, 10.))), (narrow, dict(factor='1')), (narrow, dict(finetune=None)),
        (narrow, dict(tol=2)), (Stage(5), dict(batch_size=0)), (Stage(5), dict(lr=-1.)),
        (Stage(5), dict(epochs=0)), (Stage(5), dict(dropout=1.)), (METHODS['DEC'], dict(loss='kl')),
        (METHODS['DEC'], dict(stage='x')), (METHODS['DEC'], dict(train_decoder='no'))],
        ids=lambda v: str(v)[:30])
    def test_recipes_stages_and_methods_are_checked_when_made(self, make, wrong):
        with pytest.raises(DecError, match=f'^{[*wrong][0]} must be'): replace(make, **wrong)

class TestChecks:
    @pytest.mark.parametrize('bad, says', [
        (np.full_like(points, np.nan), 'NaN at row 0'), (points[:2], 'fewer than n_clusters'),
        (0*points, 'every value of X is zero'), (frame.astype(str) + 'a', "column 'c0'"),
        (None, 'cannot be read'), (points[0], 'Expected 2D array'), (points[:0], '0 sample')],
        ids=range(7))
    def test_wrong_points_are_told_and_leave_the_model(self, fitted, bad, says):
        labels = fitted.labels_
        with pytest.raises(DecError, match=says): fitted.fit(bad)
        assert fitted.labels_ is labels

    @pytest.mark.parametrize('ask', ['predict', 'predict_proba', 'transform', 'partial_fit'])
    def test_new_points_must_be_like_the_old(self, fitted, ask):
        ask = getattr(fitted, ask)
        with pytest.raises(DecError, match='15 features, but DEC is expect'): ask(points[:, 1:])
        with pytest.raises(DecError, match='NaN at row 0'): ask(np.full_like(points, np.nan))
        with pytest.raises(DecError, match='X cannot be read'): ask(None)

    @pytest.mark.parametrize('ask', ['predict', 'predict_proba', 'transform'])
    def test_points_beyond_float32_get_no_cluster(self, fitted, ask):
        x = points.copy()
        x[7, 2] = -3.4e38                                 # as maps write where they know nothing
        with pytest.raises(DecError, match='no numbers for row 7 of X'): getattr(fitted, ask)(x)

    @pytest.mark.parametrize('kind', [np.ndarray.tolist, np.float64, pd.DataFrame, torch.from_numpy,
                                      sparse.csr_matrix])
    def test_kinds_of_tables_give_the_same_clusters(self, fitted, kind):
        assert (small().fit(kind(points)).labels_ == fitted.labels_).all()

    @pytest.mark.parametrize('kind', [np.int64, bool, np.uint8, np.float16])
    def test_kinds_of_numbers_are_welcome(self, kind):
        assert small().fit(np.rint(9*points).astype(kind)).labels_.shape == (200,)

    def test_an_autoencoder_of_another_kind(self):
        dec = small(method='VaDE', autoencoder=AutoEncoder(16, (32, 8)))
        with pytest.raises(DecError, match='VaDE learns with a VariationalAuto'): dec.fit(points)

class TestFit:
    def test_it_finds_the_blobs(self, fitted): assert len(set(zip(fitted.labels_, classes))) == 3

    def test_empty_clusters_are_told_of(self):
        x = np.repeat(np.eye(8, dtype=np.float32)[:2], 30, 0)        # two points, thirty times each
        with pytest.warns(UserWarning, match='2 of 4 clusters end without a point'): small(4).fit(x)

    def test_a_stopped_fit_is_no_model(self, fitted):
        with pytest.raises(KeyboardInterrupt): fitted.set_params(callbacks=[Stop(20)]).fit(points)
        with pytest.raises(NotFittedError): fitted.predict(points)
        assert not hasattr(fitted, 'labels_')

    def test_an_autoencoder_alone(self):
        dec = small(precision='float32').fit_autoencoder(points)
        np.testing.assert_allclose(dec.transform(points), dec.start_codes_, atol=1e-5)
        assert not hasattr(dec.fit(points).fit_autoencoder(points), 'labels_')
        with pytest.raises(NotFittedError): dec.predict(points)

    def test_a_given_autoencoder_sees_the_scale_that_it_knows(self, fitted):
        again = small(autoencoder=fitted.autoencoder_)
        assert again.fit(points*3).scale_ == fitted.scale_
        assert again.set_params(recipe=replace(narrow, scale='none')).fit(points).scale_ == 1

    def test_the_model_lets_go_of_the_points(self): # on a GPU nobody asks Python to collect
        alive = []
        class Look(Callback):
            def before_fit(self, trainer): alive.append(weakref.ref(trainer))
        gc.collect(); gc.disable()
        try: small(callbacks=lambda dec, x: Look()).fit(points)
        finally: gc.enable()
        assert alive[0]() is None

    def test_what_a_subclass_keeps_is_left(self):
        class Scaled(DEC):
            def fit(self, X, y=None):
                self.scaler_ = StandardScaler().fit(X)
                return super().fit(self.scaler_.transform(X))
        dec = Scaled(3, recipe=narrow, ae_iter=30, max_iter=10)
        assert hasattr(dec.fit(points), 'scaler_')

class TestPredict:
    def test_old_points(self, fitted): assert (fitted.predict(points) == fitted.labels_).all()

    def test_probabilities(self, fitted):
        q = fitted.predict_proba(points)
        assert q.dtype == fitted.transform(points).dtype == np.float32
        np.testing.assert_allclose(q.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(q.sum(0, dtype=float), fitted.soft_sizes_, atol=1e-4)

    def test_noise_is_off(self):
        dec = small(method=own(network=Noisy)).fit(points)
        assert (dec.predict_proba(points) == dec.predict_proba(points)).all()
        assert all(m.training for m in dec.autoencoder_.modules())                    # as it was

    @pytest.mark.parametrize('ask', [DEC.predict, DEC.predict_proba, DEC.transform, DEC.save])
    def test_nothing_before_a_fit(self, ask):
        with pytest.raises(NotFittedError): ask(small(), points)
        with pytest.raises(NotFittedError): show_training(small())

class Noisy(nn.Module):
    "A network of one's own, with noise and running means"
    def __init__(self, d, dims, *_):
        super().__init__()
        torch.manual_seed(0)
        self.d, self.decoder = d, nn.Linear(8, d)
        self.encoder = nn.Sequential(nn.Dropout(.3), nn.Linear(d, 8), nn.BatchNorm1d(8))
    def forward(self, x): return self.decoder(self.encoder(x))

class TestSklearn:
    # 4 clusters: one of the checks counts the classes it made up
    @parametrize_with_checks([small(4, precision='float32')])
    @pytest.mark.filterwarnings('ignore')
    def test_its_own_checks(self, estimator, check): check(estimator)

    def test_grid_search(self):
        grid = {'dec__n_clusters': [2, 3], 'dec__method': ['DEC', METHODS['IDEC']]}
        search = GridSearchCV(make_pipeline(StandardScaler(), small()), grid, cv=2,
                              scoring='adjusted_rand_score').fit(points, classes)
        assert search.best_params_['dec__n_clusters'] == 3

    def test_frames_in_and_out(self):
        dec = small().set_output(transform='pandas').fit(frame)
        assert list(dec.feature_names_in_) == list(frame.columns)
        assert list(dec.transform(frame).columns) == [f'dec{j}' for j in range(8)]
        with pytest.raises(ValueError, match='feature names should match'):
            dec.predict(frame[frame.columns[::-1]])

class TestSession:
    "What a program has set up neither matters to DEC nor is changed by it"
    @pytest.mark.parametrize('mood', [torch.no_grad, torch.inference_mode,
                                      partial(torch.autocast, 'cpu', dtype=torch.bfloat16)])
    def test_moods_of_autograd(self, fitted, mood):
        with mood(): dec = small().fit(points).partial_fit(points)
        assert same(dec, fitted.partial_fit(points))

    def test_the_default_dtype(self, once, request):
        request.addfinalizer(partial(torch.set_default_dtype, torch.float32))
        torch.set_default_dtype(torch.float64)
        assert same(small().fit(points), once)
        assert torch.get_default_dtype() == torch.float64

    @pytest.mark.parametrize('method', ['VaDE', 'ConvDEC'])
    def test_the_random_state(self, method):
        before = torch.get_rng_state()
        small(method=method).fit(points)
        assert torch.equal(torch.get_rng_state(), before)

    def test_threads(self):
        def fit(seed): return small(ae_iter=60 + 20*seed).fit(points).start_codes_
        alone, before = [fit(s) for s in range(3)], torch.get_rng_state()
        together = Parallel(n_jobs=3, backend='threading')(delayed(fit)(s) for s in range(3))
        assert all(map(np.array_equal, alone, together))
        assert torch.equal(torch.get_rng_state(), before)

class TestSecondAttempts:
    def test_a_rate_too_high_is_halved(self, tmp_path): # also across a kill
        x = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
        wild = replace(narrow, dims=(16, 8, 3), features=1, finetune=Stage(60, lr=6.))
        job = small(recipe=wild, ae_iter=None, checkpoint=tmp_path/'ck')
        with pytest.warns(UserWarning, match='half the rate'): whole = clone(job).fit(x)
        with pytest.warns(UserWarning), pytest.raises(KeyboardInterrupt):
            job.set_params(callbacks=[Stop(1)]).fit(x)
        with pytest.warns(UserWarning, match='half the rate'): job.fit(x)
        assert (job.predict_proba(x) == whole.predict_proba(x)).all()
        assert len(set(whole.labels_)) == 3

    @pytest.mark.slow
    @pytest.mark.parametrize('behind, best', [((.5, .3, .36), 1), ((.3, np.nan, np.inf, .2), 3)])
    def test_the_best_of_four_rates_is_kept(self, monkeypatch, behind, best):
        def error(lr):
            slow = replace(narrow, features=1, finetune=Stage(1000, batch_size=8, lr=lr))
            return small(recipe=slow, ae_iter=None).fit_autoencoder(points).reconstruction_
        monkeypatch.setattr(sae, 'behind_pca', lambda *_: 0.)
        want, left = error(.1*.5**best), iter(behind)
        monkeypatch.setattr(sae, 'behind_pca', lambda *_: next(left))
        with pytest.warns(UserWarning, match='half the rate'): assert error(.1) == want

    def test_one_that_diverges_at_every_rate_is_told_of(self):
        wild = replace(narrow, finetune=Stage(60, lr=1e30))
        with pytest.warns(UserWarning), pytest.raises(DecError, match='Recipe with lower rates'):
            small(recipe=wild).fit(points)

class TestStream:
    def test_the_first_portion_is_a_fit(self, once):
        assert same(small().partial_fit(points), once)

    def test_further_portions_teach(self, fitted):
        before = fitted.cluster_centers_
        kept = before.copy()
        for part in (points[:50], points[50:60], points[60:61]): fitted.partial_fit(part)
        assert fitted.labels_.shape == (1,)
        assert round(fitted.soft_sizes_.sum()) == 261
        assert fitted.n_iter_ == fitted.history_['clusters'][-1][0]
        assert (fitted.cluster_centers_ != before).any()
        assert (before == kept).all()                        # what was handed out does not move

    def test_callbacks_do_not_pile_up(self, fitted):
        once = len(fitted.partial_fit(points).callbacks_)
        assert len(fitted.partial_fit(points).callbacks_) == once

    @pytest.mark.parametrize('method', ['DEC', 'DCN'])
    @pytest.mark.parametrize('wrong', [[Stop(1)], []], ids=['stopped', 'diverged'])
    def test_a_portion_that_goes_wrong_changes_nothing(self, method, wrong):
        dec = small(method=replace(METHODS[method], stage=None)).fit(points)
        q, sizes = dec.predict_proba(points), dec.soft_sizes_
        dec.set_params(recipe=replace(narrow, cluster=Stage(40, lr=1e30))).callbacks_ += wrong
        with pytest.raises((DecError, KeyboardInterrupt)): dec.partial_fit(points)
        assert (dec.predict_proba(points) == q).all()
        assert dec.soft_sizes_ is sizes

    def test_it_goes_by_the_arguments_as_they_are(self, fitted):
        mu = fitted.cluster_centers_
        fitted.set_params(method=replace(METHODS['DEC'], train_centroids=False)).partial_fit(points)
        assert (fitted.cluster_centers_ == mu).all()
        still = replace(narrow, cluster=Stage(40, lr=1e-9))
        fitted.set_params(method='DEC', recipe=still).partial_fit(points)
        np.testing.assert_allclose(fitted.cluster_centers_, mu, atol=1e-6)

    @pytest.mark.parametrize('other', [dict(n_clusters=7), dict(method='VaDE')], ids=str)
    def test_what_it_cannot_change(self, fitted, other):
        mu = fitted.cluster_centers_
        with pytest.raises(DecError, match='partial_fit goes on with'):
            fitted.set_params(**other).partial_fit(points)
        assert fitted.cluster_centers_ is mu

    def test_an_autoencoder_is_not_thrown_away(self):
        dec = small().fit_autoencoder(points)
        with pytest.raises(DecError, match='no clusters yet'): dec.partial_fit(points)

    def test_a_stream_of_one_kind_still_teaches(self, once):
        "By its own sizes its target would be q itself, nearly; by those of the stream it sharpens"
        one = points[classes == 0]
        def rise(keep): # of the confidence, over eight portions
            dec = copy.deepcopy(once)
            before = dec.predict_proba(one).max(1).mean()
            for _ in range(8):
                dec.soft_sizes_ = keep*dec.soft_sizes_
                dec.partial_fit(one)
            return dec.predict_proba(one).max(1).mean() - before
        assert rise(1) > max(.002, 5*abs(rise(0)))

class TestPickle:
    @pytest.mark.parametrize('method', ['DEC', 'Aljalbout', 'DCN'])
    def test_it_is_the_model_without_the_points(self, method):
        x = np.tile(points, (30, 1))
        dec = small(method=method).fit(x)
        raw = pickle.dumps(dec)
        assert len(raw) < x.nbytes
        assert (pickle.loads(raw).predict(x) == dec.labels_).all()

    def test_a_stream_goes_on(self, fitted):
        again = pickle.loads(pickle.dumps(fitted.partial_fit(points))).partial_fit(points)
        assert same(again, fitted.partial_fit(points))

class TestModelFile:
    def test_a_loaded_model_is_fitted_again_in_the_same_way(self, tmp_path):
        recipe = replace(narrow, update_interval_text=7)
        dec = small(recipe=recipe, update_interval=None, max_iter=np.int64(30), tol=np.float32(0))
        again = reread(dec.fit(sparse.csr_matrix(points)), tmp_path)
        assert same(clone(again).fit(sparse.csr_matrix(points)), dec)

    @pytest.mark.parametrize('wish', [dict(method='IDEC'), dict(n_clusters=5), dict(alpha=5.)])
    def test_it_tells_of_the_fit_and_not_of_later_wishes(self, tmp_path, fitted, wish):
        again = reread(fitted.set_params(**wish), tmp_path)
        assert same(again, fitted)
        assert (again.method, again.n_clusters, again.alpha) == ('DEC', 3, 1)

    def test_an_autoencoder_of_ones_own(self, tmp_path): # of other widths, and with tied weights
        ae = AutoEncoder(16, (8, 8, 5), 'uniform')
        ae.decoder[2].weight = ae.encoder[2].weight                               # both 8 × 8
        dec = small(autoencoder=ae).fit(points)
        assert same(reread(dec, tmp_path), dec)

    def test_a_model_without_numbers_is_not_written(self, tmp_path, fitted):
        with torch.no_grad(): fitted.layer_.mu[0, 0] = torch.nan
        with pytest.raises(DecError, match='head.mu .* holds NaN'): reread(fitted, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_foreign_files_are_refused_and_not_executed(self, tmp_path):
        class Bomb:
            def __reduce__(self): return exec, (f'open({str(tmp_path/"gone off")!r}, "w")',)
        (tmp_path/'pickle').write_bytes(pickle.dumps(Bomb()))
        torch.save(Bomb(), tmp_path/'torch')
        save_file(dict(w=torch.ones(2)), tmp_path/'weights')
        (tmp_path/'empty').write_bytes(b'')
        for f in [*tmp_path.iterdir()]:
            with pytest.raises(DecError, match='is not a complete model'): DEC.load(f)
        with pytest.raises(DecError, match='there is no model file'): DEC.load(tmp_path)
        assert not (tmp_path/'gone off').exists()

class TestMethods:
    def test_something_must_be_trained(self):
        rest = partial(own, train_encoder=False)
        with pytest.raises(DecError, match='nothing to train'): rest(train_centroids=False)
        with pytest.raises(DecError, match='leave train_decoder'): rest(train_decoder=True)

    @pytest.mark.parametrize('part, says', [
        (dict(loss=lambda b: b.q), 'loss must return one number'),
        (dict(loss=lambda b: b.q.detach().sum()), 'loss must return one number with a gradient'),
        (dict(loss=lambda b: b.x_hat.mean()), 'train_decoder=True'),
        (dict(loss=lambda b: b.moved.q.mean()), 'augment='),
        (dict(start=lambda z, k, n_init, seed: z[:k]), 'start must return a dictionary'),
        (dict(start=lambda z, k, *_: dict(mu=z[:k], labels=torch.zeros(k))), 'start, as labels,'),
        (dict(assign=lambda z, mu, alpha: z.softmax(1)), r'assign .* \(64, 3\), not \(64, 8\)'),
        (dict(target=lambda q: q.argmax(1)), r'target .* \(64, 3\), not \(64,\)'),
        (dict(augment=lambda x: x[:, :3]), r'augment .* \(64, 16\)'),
        (dict(network=lambda d, *_: nn.Linear(d, 2)), 'network must make a module')], ids=range(10))
    def test_parts_are_tried_before_the_autoencoder_is_trained(self, part, says, no_training):
        with pytest.raises(DecError, match=says): small(method=own(**part)).fit(points)

class TestCallbacks:
    def test_classes_functions_and_callbacks_in_one_list(self):
        class Count(Callback): pass
        dec = small(callbacks=[Journey, Count(), lambda dec, x: [Count()]]).fit(points)
        assert [type(c) for c in dec.callbacks_] == [Journey, Count, Count]

    def test_what_is_none_is_told_at_once(self, no_training):
        with pytest.raises(DecError, match='callbacks must be'): small(callbacks=['x']).fit(points)

    def test_they_get_the_matrix(self): # whatever was given, whatever transform returns
        got = []
        def look(dec, x):
            got.append(x)
            return Journey(dec, x)
        dec = small(callbacks=look).set_output(transform='pandas').fit(frame)
        assert (got[0] == points).all()
        [way] = dec.callbacks_
        assert (way.q[-1].argmax(1).numpy() == dec.labels_[way.rows]).all()

    @pytest.mark.parametrize('method', ['DCN', 'Aljalbout'])
    def test_watching_a_method_does_not_change_it(self, method):
        watched = small(method=method, callbacks=[Snapshots()]).fit(points)
        assert same(watched, small(method=method).fit(points))

    def test_those_of_a_fit_do_not_hear_of_a_stream(self):
        kept = Snapshots()
        dec = small(callbacks=[kept]).fit(points)
        n = len(kept.kept)
        dec.partial_fit(points)
        assert len(kept.kept) == n > 0

class TestNumberOfClusters:
    def test_halves_need_autoencoders_of_their_own(self, fitted):
        with pytest.raises(DecError, match='eave autoencoder out'):
            k_curve(small(autoencoder=fitted.autoencoder_), points)
