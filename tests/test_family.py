"Every member of the family by its name, and the pictures that some of them look at"
import json, re, shlex
from dataclasses import replace
import numpy as np, pytest, torch
from conftest import make_blobs
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC
from dec_tutorial.family.images import ConvAutoEncoder, for_pictures, needs_pictures
from dec_tutorial.family.losses import Jitter
from dec_tutorial.methods import METHODS, get_recipe

points, classes = make_blobs()
short = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10)

class TestFromTheShell:
    @pytest.mark.parametrize('method', METHODS)
    def test_a_fit(self, cli, tmp_path, method):
        np.savez(tmp_path/'p.npz', x=points, y=classes, image_shape=(4, 4))
        r = cli('dec_fit', 'p.npz', '--method', method.upper(), *short, '--out', 'o')
        assert r.returncode == 0, r.stderr
        last = json.loads((tmp_path/'o'/'record.json').read_text())[-1]
        assert last['method'] == method
        assert ('--method' in shlex.split(last['command'])) == (method != 'DEC')
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

class TestStreams:
    @pytest.mark.parametrize('method', METHODS)
    def test_clusters_keep_their_names(self, method):
        recipe = replace(get_recipe('fast'), dims=(32, 8))
        dec = DEC(3, method=for_pictures(method, (4, 4)), recipe=recipe, ae_iter=60, max_iter=30,
                  update_interval=10, n_init=2, random_state=0).fit(points[:150])
        before = dec.predict(points)
        for part in (points[150:175], points[175:]): dec.partial_fit(part)
        assert (dec.predict(points) == before).mean() > .9
        assert round(dec.soft_sizes_.sum()) == len(points)

class TestPictures:
    def test_a_method_learns_their_shape(self):
        assert for_pictures('DEC-DA', (2, 8)).augment == Jitter(shape=(2, 8))
        network = for_pictures('ConvDEC', (2, 8)).network(16)
        assert isinstance(network, ConvAutoEncoder) and network.image_shape == (2, 8)

    def test_where_it_does_not_matter_the_method_stays(self):
        assert for_pictures('idec', None) is METHODS['IDEC']
        assert for_pictures(METHODS['VaDE'], (4, 4)) is METHODS['VaDE']

    @pytest.mark.parametrize('method', [m for m in METHODS if needs_pictures(m)])
    def test_points_that_are_none(self, method):
        with pytest.raises(DecError, match='looks at pictures'): for_pictures(method, None)

    def test_jitter_wants_pictures(self):
        with pytest.raises(DecError, match='not pictures'): Jitter(shape=(3, 3))(torch.rand(6, 4))
        dec = DEC(3, method=for_pictures('DEC-DA', (3, 3)))
        with pytest.raises(DecError, match='not pictures of shape'): dec.fit(points)

    def test_jitter_of_every_other_column(self): # not contiguous
        rows = torch.rand(5, 32)[:, ::2]
        torch.manual_seed(0)
        apart = Jitter()(rows)
        torch.manual_seed(0)
        assert torch.equal(apart, Jitter()(rows.contiguous()))
