"Every member of the family by its name, and the pictures that some of them look at"
import copy, json, re, shlex
from dataclasses import replace
import numpy as np, pandas as pd, pytest, torch
from conftest import make_blobs
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC
from dec_tutorial.family.images import ConvAutoEncoder, for_pictures
from dec_tutorial.family.losses import Jitter
from dec_tutorial.methods import METHODS, get_recipe

points, classes = make_blobs()
frame = pd.DataFrame(points).add_prefix('c')
short = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10)

class TestFromTheShell:
    @pytest.mark.parametrize('method', ['VaDE', 'ConvDEC-DA', 'DEC+communities'])
    def test_a_fit(self, cli, tmp_path, method):
        np.savez(tmp_path/'p.npz', x=points, y=classes, image_shape=(4, 4))
        r = cli('dec_fit', 'p.npz', '--method', method.upper(), *short, '--out', 'o')
        assert r.returncode == 0, r.stderr
        last = json.loads((tmp_path/'o'/'record.json').read_text())[-1]
        assert last['method'] == method
        assert '--method' in shlex.split(last['command'])
        dec = DEC.load(tmp_path/'o'/'model.safetensors')
        assert (dec.predict(points) == dec.labels_).all()

    def test_help_names_all(self, cli):
        said = cli('dec_fit', '--help').stdout
        assert all(method in said for method in METHODS)

    @pytest.mark.parametrize('method, says', [('dec-da', 'looks at pictures'),
                                              ('ConvDEC', 'looks at pictures'),
                                              ('idek', 'known are DEC, IDEC')])
    def test_what_cannot_be(self, cli, blobs, method, says):
        r = cli('dec_fit', blobs, '--method', method, *short)
        assert r.returncode == 1
        assert re.fullmatch(f'dec_fit: .*{says}.*\n', r.stderr)

@pytest.fixture(scope='module', params=METHODS)
def once(request):
    recipe = replace(get_recipe('fast'), dims=(32, 8))
    return DEC(3, method=for_pictures(request.param, (2, 8)), recipe=recipe, ae_iter=60,
               max_iter=30, update_interval=10, n_init=2, random_state=0).fit(frame[:150])

class TestFitted:
    @pytest.fixture
    def dec(self, once): return copy.deepcopy(once)                   # one that a test may change

    def test_in_a_stream_clusters_keep_their_names(self, dec):
        before = dec.predict(frame)
        for part in (frame[150:175], frame[175:]): dec.partial_fit(part)
        assert (dec.predict(frame) == before).mean() > .9
        assert round(dec.soft_sizes_.sum()) == len(frame)

    def test_a_file_goes_on_as_the_model_does(self, dec, tmp_path): # optimisers' states, too
        dec.partial_fit(frame).save(tmp_path/'m')
        again = DEC.load(tmp_path/'m')
        assert (again.predict_proba(frame) == dec.predict_proba(frame)).all()
        assert again.history_ == dec.history_
        assert [*again.feature_names_in_] == [*frame.columns]
        for model in (again, dec): model.partial_fit(frame)
        assert (again.predict_proba(frame) == dec.predict_proba(frame)).all()

class TestPictures:
    def test_a_method_learns_their_shape(self):
        assert for_pictures('DEC-DA', (2, 8)).augment == Jitter(shape=(2, 8))
        network = for_pictures('ConvDEC', (2, 8)).network(16)
        assert isinstance(network, ConvAutoEncoder) and network.image_shape == (2, 8)

    def test_jitter_wants_pictures(self):
        with pytest.raises(DecError, match='not pictures'): Jitter(shape=(3, 3))(torch.rand(6, 4))
        dec = DEC(3, method=for_pictures('DEC-DA', (3, 3)))
        with pytest.raises(DecError, match='not pictures of shape'): dec.fit(points)
