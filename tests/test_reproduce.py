"`dec_reproduce`: the paper's tables and figures again, from records that add up"
import json, shlex
import numpy as np, pytest
from conftest import files, make_blobs, root
from test_command_line import table_of
from dec_tutorial.data import Dataset, DecError, load_data
from dec_tutorial.inside.machine import precision_used
from dec_tutorial.paper.ablations import ABLATIONS, STARTS, WIDTHS
from dec_tutorial.paper.mistakes import MISTAKES
from dec_tutorial.paper.reproduction import AE_CHANGES, KL_CHANGES, dec_reproduce, reproduce
from dec_tutorial.paper.tables import Cells, Run

table2 = ['k-means', 'LDMGI', 'SEC', 'DEC w/o backprop', 'DEC w/o backprop, not stopped', 'DEC']
# the first column of what is printed, and the methods of the records
shown = dict(table2=(table2, table2), table4=(['k-means', 'AE+k-means', 'DEC'],)*2,
             fig5=(['0', '1'], ['DEC']), fig6=(['5', '10'], ['DEC']),
             graphs=(['SEC, μ = 10⁻⁸', 'SEC, μ = 1', 'LDMGI, λ = 10⁻⁸', 'LDMGI, λ = 1'],
                     ['SEC', 'LDMGI']),
             details=(['', *KL_CHANGES, *AE_CHANGES], ['AE+k-means', 'DEC']),
             precision=(['float32', f"auto ({precision_used('auto')})", 'difference'],
                        ['AE+k-means', 'DEC']))

schema = ('experiment dataset n method acc nmi ari recipe seed iterations stop_reason '
          'reconstruction params seconds device precision command versions date'.split())
quick = ('--data', 'blobs.npz', '--quick', '--out', 'o')

@pytest.fixture
def again(cli, tmp_path, blobs): # again('table2', …): what it prints, and its records
    def call(what, *more, seeds):
        r = cli('dec_reproduce', what, '--seeds', seeds, *quick, *more)
        assert r.returncode == 0, r.stderr
        [path] = (tmp_path/'o').glob('*.json')
        return r.stdout, json.loads(path.read_text())
    return call

@pytest.mark.slow
class TestReproduce:
    @pytest.mark.parametrize('what', shown)
    def test_what_is_shown_and_recorded(self, again, what):
        printed, methods = shown[what]
        seeds = '0,1' if what == 'fig5' else '0'                       # it has a row for each
        more = ['--recipe', 'authors'] if what == 'details' else []
        out, records = again(what, *more, seeds=seeds)
        assert [row[0] for row in table_of(out)[2:]] == printed
        assert {r['method'] for r in records} == set(methods)
        seen = {str(r['seed']) for r in records if r['method'] != 'k-means'}    # it has its own
        assert seen == {*seeds.split(',')}
        assert {tuple(k for k in r if k != 'measured') for r in records} == {tuple(schema)}

    def test_only_some_cells(self, again, cli):
        for only, new in (('random centroids,seed 1', 1), ('seed 1, DEC', 2)):
            _, records = again('ablations', '--only', only, seeds='0,1')
            assert len(records) == new and records[-1]['command'].endswith(f" --only '{only}'")
        r = cli('dec_reproduce', 'ablations', *quick, '--only', 'random centroid')
        assert r.stderr.startswith("dec_reproduce: ablations has no cell with 'random")

    @pytest.mark.parametrize('what,variants', [('ablations', ABLATIONS), ('widths', WIDTHS),
                                               ('starts', STARTS), ('mistakes', MISTAKES)])
    def test_variants(self, again, what, variants):
        out, records = again(what, seeds='0')
        assert [r['method'] for r in records] == [v.name for v in variants]
        named = {name for row in table_of(out) for name in row[:2]}
        assert {'none: DEC' if v.name == 'DEC' else v.name for v in variants} <= named

    def test_records_can_be_made_again(self, cli, tmp_path):
        "One of the records that ship with the package, by the command that stands in it"
        shipped = root/'dec_tutorial'/'results'/'fig2_digits.json'
        kept = json.loads(shipped.read_text(encoding='utf-8'))
        gone = next(r for r in kept if (r['method'], r['seed'], r['params']) == ('k-means', 3, {}))
        (tmp_path/'o').mkdir()
        path = tmp_path/'o'/'fig2_digits.json'
        path.write_text(json.dumps([r for r in kept if r is not gone]))
        r = cli(*shlex.split(gone['command']), '--out', 'o')
        assert r.returncode == 0, r.stderr
        new = json.loads(path.read_text())[-1]
        assert all(abs(new[s] - gone[s]) < .01 for s in ('acc', 'nmi', 'ari'))

    @pytest.mark.parametrize('what, options, says', [
        ('table9', {}, 'known are table2, table3, table4, fig2'),
        ('table2', dict(seeds='a,b'), 'whole numbers'), ('fig3', {}, 'needs pictures'),
        ('fig2', dict(recipe='slow'), 'known are paper'), ('jitter', {}, 'looks at pictures'),
        ('fig2', dict(data='minst'), "did you mean 'mnist'"), ('details', {}, '--recipe authors')])
    def test_complaints(self, tmp_path, monkeypatch, blobs, what, options, says):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DecError, match=says):
            dec_reproduce(what, **(dict(data='blobs.npz', quick=True, out='o') | options))
        assert files(tmp_path) == ['blobs.npz']

    def test_other_data_of_the_same_name(self, tmp_path): # their records are not taken for these
        x, y = make_blobs(60)
        def acc(y):
            return reproduce('fig4', Dataset('data', x, y), (0,), folder=tmp_path/'o',
                             work=tmp_path/'w', quick=True)[0]['acc']
        assert acc(y) == 1 > acc(np.sort(y))
        assert len([*(tmp_path/'o').glob('*.json')]) == 2

def add_every_other(first):
    ds = load_data('blobs.npz')
    for s in range(first, 60, 2): Cells('toy', ds, 'o').add(Run('oracle', lambda: ds.y, seed=s))

def test_records_of_several_processes_add_up(tmp_path, blobs, start):
    both = [start(add_every_other, i) for i in (0, 1)]
    assert [child.finish().returncode for child in both] == [0, 0]
    records = json.loads((tmp_path/'o'/'toy_blobs.json').read_text())
    assert sorted(r['seed'] for r in records) == [*range(60)]

def test_what_ships_is_a_beginning(tmp_path, blobs):
    ds, shipped, mine = load_data(blobs), tmp_path/'shipped', tmp_path/'mine'
    def cell(seed, **to): Cells('toy', ds, **to).add(Run('oracle', lambda: ds.y, seed=seed))
    cell(0, folder=shipped)
    before = (shipped/'toy_blobs.json').read_bytes()
    cell(0, folder=mine, begin=shipped)
    assert not mine.exists()                                          # nothing was missing
    for s in (1, 0, 2): cell(s, folder=mine, begin=shipped)
    assert [r['seed'] for r in json.loads((mine/'toy_blobs.json').read_text())] == [0, 1, 2]
    assert (shipped/'toy_blobs.json').read_bytes() == before
