"What `dec_fit` and `dec_predict` leave, print, and say when something is wrong"
import base64, csv, json, re, shlex, subprocess, warnings
from html.parser import HTMLParser
from types import SimpleNamespace
import matplotlib.pyplot as plt, numpy as np, pandas as pd, pytest, torch
from scipy import sparse
from conftest import files, make_blobs, script
from dec_tutorial import fitting
from dec_tutorial.command_line import dec_fit, dec_predict
from dec_tutorial.fitting import run_fit
from dec_tutorial.data import Dataset, DecError, load_data
from dec_tutorial.dec import DEC
from dec_tutorial.practice.seeing import flat

brief = dict(ae_iter=30, max_iter=30, update_interval=10, dims=(32, 8))
words = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10, '--dims', '32,8')
schema = ('experiment dataset n method acc nmi ari recipe seed iterations stop_reason '
          'reconstruction params seconds device precision command versions date'.split())
columns = [f'c{j}' for j in range(16)]
rows = ['k-means', 'spectral', 'AE+k-means', 'DEC']

def records_of(folder): return json.loads((folder/'record.json').read_text())
def clusters_of(path): return pd.read_csv(path)['cluster'].tolist()
def table_of(text): return [[c.strip() for c in line.strip('|').split('|')]
                            for line in text.splitlines() if line.startswith('|')]
def write_table(path, x, names):
    pd.DataFrame(x, columns=names).to_csv(path, index=False)
    return str(path)
def complaint(func, *args, **kw):
    with pytest.raises(DecError) as e: func(*args, **kw)
    return str(e.value)
def one_sentence(r, prog): # of a process that ended with an error that can be mended
    assert r.returncode == 1 and r.stderr.startswith(f'{prog}: '), r.stderr
    assert len(r.stderr.strip().splitlines()) == 1, r.stderr
    return r.stderr

class Page(HTMLParser):
    "Of a report: addresses that it refers to, its text, its tags and the words for its pictures"
    def __init__(self, text):
        super().__init__()
        self.refs, self.text, self.tags, self.alts = [], '', [], []
        self.feed(text)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.refs += [v for k, v in attrs if k in ('src', 'href', 'srcset', 'data', 'action')]
        self.alts += [v for k, v in attrs if k == 'alt']
    def handle_data(self, data): self.text += data

@pytest.fixture
def here(tmp_path, monkeypatch, blobs): # an empty folder to work in, but for blobs.npz
    monkeypatch.chdir(tmp_path)
    return tmp_path

@pytest.fixture(scope='module')
def run(tmp_path_factory): # one run from the shell: its folder, and what it printed
    at = tmp_path_factory.mktemp('run')
    x, y = make_blobs()
    np.savez(at/'blobs.npz', x=x, y=y, image_shape=(4, 4))
    command = [script('dec_fit'), 'blobs.npz', *map(str, words), '--seed', '3', '--out', 'here']
    r = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=600)
    assert r.returncode == 0 and not r.stderr, r.stderr
    return at/'here', r.stdout

class TestFit:
    pictures = [f'{p}.png' for p in ('confidence', 'contingency', 'embedding', 'reconstructions',
                                     'samples', 'top', 'training')]

    def test_files(self, run):
        others = ['assignments.csv', 'model.safetensors', 'record.json', 'report.html']
        assert files(run[0]) == sorted([*self.pictures, *others])

    def test_printed_table(self, run):
        head, _, *body = table_of(run[1])
        assert head == ['method', 'ACC', 'NMI', 'ARI', 'seconds']
        assert [r[0] for r in body] == rows
        for record, row in zip(records_of(run[0]), body):
            assert [float(v) for v in row[1:4]] == [round(100*record[s], 1)
                                                    for s in ('acc', 'nmi', 'ari')]

    def test_records(self, run):
        records = records_of(run[0])
        assert [r['method'] for r in records] == rows
        for r in records:
            assert set(r) - {'measured'} == set(schema)
            assert r['params'] == dict(ae_iter=30, max_iter=30, update_interval=10, dims=[32, 8])
            assert (r['experiment'], r['dataset'], r['n'], r['seed']) == ('fit', 'blobs', 200, 3)
            assert r['command'].startswith('dec_fit blobs.npz --recipe quick --seed 3')
        assert records[-1]['acc'] == 1
        assert records[-1]['measured']['verdict']['verdict'] in ('believe', 'k-means is enough')

    def test_report_holds_its_pictures(self, run):
        page = Page((run[0]/'report.html').read_text())
        assert all(r.startswith('data:image/png;base64,') for r in page.refs)
        assert ({base64.b64decode(r.split(',')[1]) for r in page.refs}
                == {(run[0]/p).read_bytes() for p in self.pictures})
        assert all(len(a) > 20 for a in page.alts)
        assert 'https' not in page.text and 'dec-map' in (run[0]/'report.html').read_text()

    def test_report_has_table_and_command(self, run):
        page = Page((run[0]/'report.html').read_text())
        for cell in (*rows, records_of(run[0])[-1]['command']): assert cell in page.text

    def test_names_are_escaped(self, here):
        name = '<img src=x onerror=alert(1)> & <b>"'
        (here/'blobs.npz').rename(here/f'{name}.npz')
        dec_fit(f'{name}.npz', out='o', **brief)
        page = Page((here/'o'/'report.html').read_text())
        assert f'DEC on {name}' in page.text and 'b' not in page.tags

    @pytest.mark.slow
    def test_the_recorded_command_repeats_the_run(self, cli, run):
        (first, _), last = run, 'again'
        command = shlex.split(records_of(first)[-1]['command'])
        command[1] = str(first.parent/'blobs.npz')
        r = cli(*command, '--out', first.parent/last)
        assert r.returncode == 0, r.stderr
        assert (first.parent/last/'assignments.csv').read_bytes() == (
            first/'assignments.csv').read_bytes()

    def test_without_labels(self, here, capsys):
        np.save('u.npy', make_blobs()[0])
        dec_fit('u.npy', n_clusters=3, out='o', **brief)
        head, _, *body = table_of(capsys.readouterr().out)
        assert head == ['cluster', 'points', 'confidence']
        assert sum(int(r[1]) for r in body) == 200
        assert records_of(here/'o')[-1]['acc'] is None
        assert not (here/'o'/'contingency.png').exists()

    def test_auto(self, here, capsys):
        dec_fit('blobs.npz', n_clusters='auto', out='o', **brief)
        k = len(set(clusters_of(here/'o'/'assignments.csv')))
        assert f'{k} clusters were chosen' in capsys.readouterr().out
        assert (here/'o'/'how_many.png').exists()

    @pytest.mark.slow
    @pytest.mark.parametrize('kind', ['one feature', 'as many points as clusters', 'sparse', 'words',
                                      'sparse pictures', 'colour', 'more clusters than colours'])
    def test_odd_but_right(self, here, kind):
        x, y = make_blobs()
        s = sparse.csr_matrix(x*(x > .5))
        s = dict(data=s.data, indices=s.indices, indptr=s.indptr, shape=s.shape, y=y)
        odd = {'one feature': dict(x=y[:, None].astype(np.float32), y=y), 'sparse': s,
               'as many points as clusters': dict(x=x[:3], y=y[:3]),
               'sparse pictures': s | dict(image_shape=(4, 4)),
               'colour': dict(x=np.repeat(x.reshape(-1, 1, 4, 4), 3, axis=1), y=y),
               'more clusters than colours': dict(x=x, y=np.arange(200) % 25),
               'words': dict(x=x, y=np.array(['cat', 'dog', '$ewe$'])[y])}
        np.savez('odd.npz', **odd[kind])
        with warnings.catch_warnings():
            warnings.filterwarnings('error', '.*could not be drawn')
            dec_fit('odd.npz', out='o', **brief)
        assert {'record.json', 'report.html', 'embedding.png'} <= set(files(here/'o'))

    @pytest.mark.parametrize('unit', [1e-25, 1e18])
    def test_units(self, here, unit): # squares of such numbers are none in float32
        ds = Dataset('u', make_blobs(90)[0]*np.float32(unit), make_blobs(90)[1])
        assert run_fit(ds, here/'o', **brief)[1][0]['acc'] == 1
        assert flat(ds.x).astype(float).std(0).min() > unit/100

    def test_autoencoder_on_the_training_part(self, here):
        x, y = make_blobs()
        part = DEC(3, recipe='authors', random_state=0, **brief).fit_autoencoder(x[:120]/x.max())
        fitted, *_ = run_fit(Dataset('p', x/x.max(), y, n_train=120), here/'o', recipe='authors',
                             **brief)
        assert fitted.history_['autoencoder'] == part.history_['autoencoder']

    def test_further_points_train_the_autoencoder(self, here):
        x, y = make_blobs()
        ds = Dataset('p', x[:100], y[:100], more=x[100:])
        fits = [run_fit(d, here/name, **brief)[0] for name, d in
                (('more', ds), ('alone', Dataset('p', x[:100], y[:100])))]
        assert len(fits[0].labels_) == 100
        assert fits[0].history_['autoencoder'] != fits[1].history_['autoencoder']

class TestPredict:
    def test_agrees_with_fit(self, cli, run):
        r = cli('dec_predict', run[0]/'model.safetensors', run[0].parent/'blobs.npz', '--out',
                run[0].parent/'new'/'c.csv')
        assert r.returncode == 0 and not r.stderr
        again = pd.read_csv(run[0].parent/'new'/'c.csv')
        assert again.pop('unseen').mean() < .05
        assert again.equals(pd.read_csv(run[0]/'assignments.csv'))

    def test_rows(self, run):
        with open(run[0]/'assignments.csv', newline='') as f: head, *body = csv.reader(f)
        assert head == ['row', 'cluster', 'confidence']
        assert [int(r[0]) for r in body] == [*range(200)]
        assert all(1/3 <= float(r[2]) <= 1 for r in body)

    @pytest.fixture
    def model(self, here): # of a table whose columns have names
        data = write_table('t.csv', np.c_[make_blobs()[0], make_blobs()[1]], [*columns, 'class'])
        dec_fit(data, out='o', **brief)
        return here/'o'/'model.safetensors'

    def test_columns_are_found_by_name(self, here, model):
        dec_predict(model, write_table('r.csv', make_blobs()[0][:, ::-1], columns[::-1]), out='c.csv')
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')

    def test_without_names_columns_are_in_order(self, here, model):
        np.save('t.npy', make_blobs()[0])
        dec_predict(model, 't.npy')
        assert clusters_of('assignments-t.csv') == clusters_of('o/assignments.csv')

    def test_new_points_need_no_class(self, here, model):
        new = pd.DataFrame(make_blobs()[0], columns=columns).assign(**{'class': None})
        new.to_csv('new.csv', index=False)
        dec_predict(model, 'new.csv', out='c.csv')
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')

    @pytest.mark.parametrize('names', [columns[:-1], [*columns[:-1], 'C15']])
    def test_a_missing_column(self, here, model, names):
        data = write_table('w.csv', np.ones((9, len(names))), names)
        assert "has no column 'c15'" in complaint(dec_predict, model, data)
        assert not (here/'assignments-w.csv').exists()

    def test_columns_that_the_model_does_not_know_are_left_out(self, here, model):
        pd.DataFrame(make_blobs()[0], columns=columns).assign(note='new').to_csv('new.csv', index=False)
        dec_predict(model, 'new.csv', out='c.csv')
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')

    def test_other_files_are_left_alone(self, here, run):
        said = complaint(dec_predict, run[0]/'model.safetensors', 'blobs.npz', out='blobs.npz')
        assert 'something else than assignments' in said and len(load_data('blobs.npz').x) == 200

class TestTable:
    def test_half_labelled_rows_are_clustered_and_the_labelled_ones_scored(self, here, capsys):
        x, y = make_blobs()
        kinds = np.where(np.arange(200) % 4, np.array(list('abc'))[y], '')
        data = write_table('t.csv', np.c_[x, kinds], [*columns, 'kind'])
        with pytest.warns(UserWarning, match="column 'kind' names no class at row 0 .50 of 200 rows"):
            dec_fit(data, classes='kind', out='o', **brief)
        assert '3 classes (known for 150 points)' in capsys.readouterr().out
        assert records_of(here/'o')[-1]['acc'] == 1 and (here/'o'/'contingency.png').exists()
        dec_predict('o/model.safetensors', data, out='c.csv')     # the model knows its columns
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')

    def test_names_of_numbers_and_names_with_blanks(self, here):
        years = [' 2001', *map(str, range(2002, 2016)), '2016']
        data = write_table('t.csv', make_blobs()[0], years)
        dec_fit(data, header=True, n_clusters=3, alpha=.5, out='o', **brief)
        assert ' --header ' in records_of(here/'o')[-1]['command']
        with pytest.raises(DecError, match="has no column '2001'"):
            dec_predict('o/model.safetensors', write_table('u.csv', np.ones((9, 16)), columns))
        dec_predict('o/model.safetensors', data, header=True, out='c.csv')
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')
        assert DEC.load('o/model.safetensors').alpha == .5

    def test_a_last_phase_below_its_start_is_told(self, here, monkeypatch):
        start, end = dict(method='AE+k-means', acc=.77), dict(method='DEC', acc=.65)
        dec = SimpleNamespace(stop_reason_='tol', n_iter_=9)
        told = [fitting._closing(dec, pair, 'table', here, chosen=False, about=[])
                for pair in ([start, end], [end, end])]
        assert ['AE+k-means, where the last phase began, is ahead' in t for t in told] == [True, False]

class TestFolder:
    @pytest.mark.parametrize('name', ['record.json', 'top.png', 'model.safetensors'])
    def test_files_of_others_are_left_alone(self, here, name):
        (here/name).write_text('mine')
        assert f'{name} was not written by dec_fit' in complaint(dec_fit, 'blobs.npz', out='.', **brief)
        assert files(here) == sorted(['blobs.npz', name]) and (here/name).read_text() == 'mine'

    def test_data_is_not_overwritten(self, here):
        dec_fit('blobs.npz', out='o', **brief)
        data = write_table('o/assignments.csv', make_blobs()[0], columns)
        assert 'would be overwritten' in complaint(dec_fit, data, n_clusters=3, out='o', **brief)

    def test_an_older_run_gives_way(self, here):
        dec_fit('blobs.npz', out='o', **brief)
        np.save('u.npy', make_blobs()[0])
        dec_fit('u.npy', n_clusters=3, out='o', **brief)
        assert not (here/'o'/'contingency.png').exists()

    def test_two_files_of_one_name(self, here):
        for folder in 'aba':
            (here/folder).mkdir(exist_ok=True)
            np.savez(here/folder/'data.npz', **dict(zip('xy', make_blobs(seed=ord(folder)))))
            dec_fit(f'{folder}/data.npz', **brief)
        assert sorted(f.name for f in (here/'dec_runs').iterdir()) == ['data-quick-0',
                                                                       'data-quick-0-2']

    def test_home(self, here, monkeypatch):
        monkeypatch.setenv('HOME', str(here))
        dec_fit('~/blobs.npz', out='~/o', **brief)
        dec_predict('~/o/model.safetensors', '~/blobs.npz', out='~/c.csv')
        assert (here/'c.csv').exists() and not (here/'~').exists()

    @pytest.mark.parametrize('strength, says', [(.8, 'the largest number that'),
                                                (.7, 'though no number came again')])
    def test_the_report_says_whether_the_number_came_again(self, here, monkeypatch, strength, says):
        monkeypatch.setattr(fitting, 'k_curve', lambda *_, **__: [dict(k=2, strength=strength, G=1.)])
        dec_fit('blobs.npz', n_clusters='auto', out='o', **brief)
        assert says in (here/'o'/'report.html').read_text(encoding='utf-8')

    @pytest.mark.parametrize('n_clusters', [3, pytest.param('auto', marks=pytest.mark.slow)])
    def test_a_killed_run_goes_on(self, here, monkeypatch, n_clusters):
        dec_fit('blobs.npz', n_clusters=n_clusters, out='whole', **brief)
        def die(*_): raise SystemExit('killed')
        with monkeypatch.context() as m:
            m.setattr(DEC, '_cluster', die)
            with pytest.raises(SystemExit): dec_fit('blobs.npz', n_clusters=n_clusters, **brief)
        dec_fit('blobs.npz', n_clusters=3, seed=1, **brief)                        # another job
        dec_fit('blobs.npz', n_clusters=n_clusters, **brief)
        assert (clusters_of('dec_runs/blobs-quick-0/assignments.csv')
                == clusters_of('whole/assignments.csv'))
        assert not [f for f in files(here) if '/.' in f]

    def test_another_version_begins_anew(self, here, monkeypatch):
        ds = Dataset('p', *make_blobs(60))
        monkeypatch.setattr(fitting.Checkpoint, 'clear', lambda ck: None)   # as if killed
        for version in ('1', '2', '2'):
            monkeypatch.setattr(fitting, '__version__', version)
            run_fit(ds, here/'o', **brief)
        assert len([*(here/'o').glob('.checkpoint-*.pt')]) == 2

    def test_a_picture_that_fails_costs_nothing_else(self, here, monkeypatch):
        monkeypatch.setattr(fitting, 'show_confidence', lambda q: 1/0)
        before = dict(plt.rcParams), plt.get_fignums()
        with pytest.warns(UserWarning, match='confidence.png could not be drawn .ZeroDivisionError'):
            dec_fit('blobs.npz', out='o', **brief)
        assert {'training.png', 'report.html', 'record.json'} <= set(files(here/'o'))
        assert (dict(plt.rcParams), plt.get_fignums()) == before

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')

class TestErrors:
    @pytest.mark.parametrize('data,options,says', [
        ('minst', {}, "did you mean 'mnist'"), ('nowhere.npz', {}, 'no file nowhere.npz'),
        ('u.npy', {}, '--n_clusters'), ('zero.npz', {}, 'every value of X is zero'),
        ('minus.npz', dict(recipe='authors'), r'pixels in \[0, 1\]'),
        ('blobs.npz', dict(n_clusters=300), 'fewer than n_clusters=300'),
        *(('blobs.npz', dict(n_clusters=k), f'n_clusters is {k}') for k in (1, 0, -2)),
        ('blobs.npz', dict(recipe='slow'), "'slow'.*paper"),
        ('blobs.npz', dict(method='idek'), "no method is called 'idek'"),
        ('blobs.npz', dict(method='ConvDEC'), 'looks at pictures'),
        ('blobs.npz', dict(out='blobs.npz/below'), 'cannot write .*--out'),
        ('blobs.npz', dict(out='blobs.npz'), 'cannot write .*--out'),
        pytest.param('blobs.npz', dict(device='cuda'), 'no GPU', marks=no_gpu),
        ('blobs.npz', dict(device='banana'), 'not supported'),
        ('blobs.npz', dict(precision='fp8'), 'precision'), ('blobs.npz', dict(seed=-1), 'random_state'),
        ('blobs.npz', dict(dims=(8, 0)), 'dims must be widths'),
        *(('blobs.npz', {name: 0}, name) for name in ('ae_iter', 'max_iter', 'update_interval'))])
    def test_fit(self, here, data, options, says):
        x, y = make_blobs()
        np.save('u.npy', x)
        np.savez('zero.npz', x=0*x, y=y)
        np.savez('minus.npz', x=-x, y=y)
        before = files(here)
        assert re.search(says, complaint(dec_fit, data, **dict(brief, out='o') | options))
        assert files(here) == before

    @pytest.mark.parametrize('model,data,options,says', [
        ('m', 'wide.npy', {}, '32 features, but DEC is expecting 16'), ('m', 'minst', {}, "'mnist'"),
        ('half', 'blobs.npz', {}, 'not a complete model'), ('no', 'blobs.npz', {}, 'no model file'),
        ('m', 'blobs.npz', dict(out='blobs.npz/c.csv'), 'cannot write'),
        ('m', 'blobs.npz', dict(device='banana'), 'not supported')])
    def test_predict(self, here, run, model, data, options, says):
        whole = (run[0]/'model.safetensors').read_bytes()
        (here/'m').write_bytes(whole)
        (here/'half').write_bytes(whole[:len(whole)//2])
        np.save('wide.npy', np.ones((9, 32)))
        assert re.search(says, complaint(dec_predict, model, data, **options))

    def test_a_shell_hears_one_sentence(self, cli):
        assert "did you mean 'mnist'" in one_sentence(cli('dec_fit', 'minst'), 'dec_fit')

    @pytest.mark.parametrize('argv', [('--seed', 'three'), ('--color', 'red'), ('--dims', 'wide')])
    def test_usage(self, cli, argv):
        r = cli('dec_fit', *argv)
        assert r.returncode == 2 and 'usage:' in r.stderr and 'Traceback' not in r.stderr

    def test_options_may_be_written_with_dashes(self, cli, blobs):
        assert 'n_clusters is 1' in one_sentence(cli('dec_fit', blobs, '--n-clusters=1'), 'dec_fit')

    def test_a_warning_is_a_sentence(self, cli, tmp_path):
        data = write_table(tmp_path/'t.csv', make_blobs()[0] + 1e3, columns)
        r = cli('dec_fit', data, '--n_clusters', 3, *words, '--out', 'o')
        assert r.returncode == 0 and r.stderr.startswith('dec_fit: over 99 %')

    def test_memory(self, cli, blobs):
        assert 'memory' in one_sentence(cli('dec_fit', blobs, before=(no_memory,)), 'dec_fit')

    def test_no_network(self, cli, tmp_path):
        dead = {v: 'http://127.0.0.1:9' for v in ('http_proxy', 'https_proxy', 'HTTPS_PROXY')}
        (tmp_path/'empty').mkdir()
        r = cli('dec_fit', 'usps', '--root', 'empty', env=dict(dead, XDG_CACHE_HOME=str(tmp_path)))
        assert 'downloading it failed' in one_sentence(r, 'dec_fit') and not files(tmp_path)

    def test_large_column(self, here, capsys):
        x = make_blobs()[0]*np.where(np.arange(16) == 3, 1000, 1)
        dec_fit(write_table('t.csv', x, columns), n_clusters=3, out='o', **brief)
        assert "column 'c3' has numbers so much larger" in capsys.readouterr().out

    def test_from_python_it_leaves_matplotlib_alone(self, here):
        plt.switch_backend('svg')
        try:
            dec_fit('blobs.npz', out='o', **brief)
            assert plt.get_backend() == 'svg'
        finally: plt.switch_backend('agg')

    @pytest.mark.slow
    def test_fuzzed_files(self, here): # a result or a sentence, never anything else
        r, raw, ends = np.random.default_rng(11), (here/'blobs.npz').read_bytes(), []
        for i in range(30):
            spoilt = bytearray(raw)
            for j in r.integers(0, len(raw), 3): spoilt[j] ^= 1 << r.integers(8)
            (here/'blobs.npz').write_bytes(spoilt)
            try: dec_fit('blobs.npz', n_clusters=2, out='o', **brief)
            except DecError as e: ends.append(e)
        assert ends

def no_memory():
    def run_fit(*_, **__): raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    fitting.run_fit = run_fit
