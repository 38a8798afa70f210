"""Every member of the family by name: from the shell, with a model file that predicts the same,
and through a kill"""
import json, re, shlex
from dataclasses import replace
import numpy as np, pytest, torch
from safetensors.numpy import load_file
from conftest import make_blobs
from dec_tutorial.data import Dataset, DecError
from dec_tutorial.inside.loaders import _LOADERS
from dec_tutorial.dec import DEC, METHODS, get_method, get_recipe
from dec_tutorial.family.images import for_pictures    # it registers all of METHODS
from dec_tutorial.family.losses import Jitter
from dec_tutorial.practice.seeing import Journey, moving_map
from dec_tutorial.training import Callback

short = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10)
X, Y = make_blobs()

@pytest.fixture
def pictures(tmp_path):
    np.savez(tmp_path/'p.npz', x=X, y=Y, image_shape=(4, 4))
    return tmp_path/'p.npz'

@pytest.mark.parametrize('method', METHODS)
def test_from_the_shell(cli, tmp_path, pictures, method):
    r = cli('dec_fit', pictures, '--method', method.upper(), *short, '--out', 'o')
    assert r.returncode == 0, r.stderr
    last = json.loads((tmp_path/'o'/'record.json').read_text())[-1]
    assert (last['method'] == method
            and ('--method' in shlex.split(last['command'])) == (method != 'DEC'))
    assert cli('dec_predict', 'o/model.safetensors', pictures, '--out', 'c.csv').returncode == 0
    cluster = np.loadtxt(tmp_path/'c.csv', delimiter=',', skiprows=1)[:, 1]
    assert (cluster == load_file(tmp_path/'o'/'model.safetensors')['labels']).all()
    assert DEC.load(tmp_path/'o'/'model.safetensors').method == method

def test_help_names_all(cli):
    said = ' '.join(cli('dec_fit', '--help').stdout.split())
    assert (all(m in said for m in METHODS)
            and all(re.search(rf'\b{d}[,\s]', said) for d in _LOADERS))

@pytest.mark.parametrize('method', METHODS)
def test_streams(method): # clusters keep their names
    recipe = replace(get_recipe('fast'), dims=(32, 8))
    shape = for_pictures(method, Dataset('p', X, Y, (4, 4)))
    dec = DEC(3, method=method, recipe=recipe, ae_iter=60, max_iter=30, update_interval=10,
              n_init=2, random_state=0, **shape).fit(X[:150])
    before = dec.predict(X)
    for part in (X[150:175], X[175:]): dec.partial_fit(part)
    assert ((dec.predict(X) == before).mean() > .9 and np.isfinite(dec.cluster_centers_).all()
            and round(float(dec.soft_sizes_.sum())) == len(X))

def test_coloured_pictures_on_the_map():
    x = np.random.default_rng(0).random((60, 3*5*4)).astype(np.float32)
    dec = DEC(2, recipe=replace(get_recipe('fast'), dims=(8, 1)), ae_iter=5, max_iter=5, n_init=1,
              random_state=0, callbacks=Journey).fit(x)
    page = moving_map(dec.callbacks_[0], x, (3, 5, 4))    # 5 high, 4 wide; and a code of one number
    told = lambda page: json.loads(page.split('json">')[1].split('</script>')[0])
    assert told(page)['size'] == [4, 5, 25]
    assert told(moving_map(dec.callbacks_[0], frames=1))['t'] == [dec.n_iter_]      # the last moment

def test_what_needs_pictures_says_so(cli, tmp_path, blobs):
    for method in ('dec-da', 'ConvDEC'):
        r = cli('dec_fit', blobs, '--method', method, *short)
        assert (r.returncode == 1 and 'looks at pictures' in r.stderr
                and r.stderr.count('\n') == 1), r.stderr

def test_unknown_method(cli, blobs):
    r = cli('dec_fit', blobs, '--method', 'idek')
    assert r.returncode == 1 and 'known are DEC' in r.stderr and 'IDEC' in r.stderr

# counts, mixtures and random shifts go on where they were
@pytest.mark.parametrize('method', ('DCN', 'Aljalbout', 'VaDE', 'DEC-DA'))
def test_a_killed_run_ends_the_same(tmp_path, method):
    armed = [True]
    class Kill(Callback):
        def after_batch(self, trainer):
            if trainer.t == 17 and armed.pop(): raise KeyboardInterrupt
    callbacks = [Kill()]
    args = dict(n_clusters=3, method=method, ae_iter=40, max_iter=40, update_interval=10, tol=0.,
                random_state=0, device='cpu')
    whole = DEC(**args).fit(X)
    dec = DEC(**args, checkpoint=tmp_path/'ck', callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt): dec.fit(X)
    armed.append(False)
    again = dec.fit(X)
    assert (again.history_['clusters'] == whole.history_['clusters']
            and (again.predict_proba(X) == whole.predict_proba(X)).all())

def test_given_arguments_go_before_the_methods():
    assert (DEC(3, method='IDEC')._use.keep_decoder
            and DEC(3, method='idec', update_interval=7)._use.update_interval == 7)
    assert DEC(3, method='DEC-DA', augment=Jitter(0.))._use.augment == Jitter(0.)
    # clone and grid search see what was given
    assert DEC(3, method='VaDE').get_params()['loss'] == DEC().get_params()['loss']

def test_a_loss_without_its_decoder_says_so():
    with pytest.raises(DecError, match='keep_decoder=True'):
        DEC(3, loss=get_method('IDEC')['loss'], ae_iter=5, max_iter=5).fit(X)

def test_jitter_wants_pictures():
    x = torch.rand(6, 4)
    for shape, words in ((None, 'hardly pictures'), ((3, 3), 'not pictures of shape')):
        with pytest.raises(DecError, match=words): Jitter(shape=shape)(x)
    assert Jitter(shape=(2, 2))(x).shape == x.shape
    with pytest.raises(DecError, match='not pictures of shape'):
        DEC(3, method='DEC-DA', augment=Jitter(shape=(3, 3))).fit(make_blobs()[0])

def test_jitter_of_every_other_column(): # not contiguous
    rows = torch.rand(5, 32)[:, ::2]
    torch.manual_seed(0); apart = Jitter()(rows)
    torch.manual_seed(0); assert torch.equal(apart, Jitter()(rows.contiguous()))
