"What `dec_fit` and `dec_predict` leave, print, and say when something is wrong"
import base64, io, json, re, shlex, shutil, warnings
from contextlib import redirect_stdout
from html.parser import HTMLParser
from types import SimpleNamespace
import matplotlib.pyplot as plt, numpy as np, pandas as pd, pytest, torch
from scipy import sparse
from conftest import Child, files, make_blobs, run_script
from dec_tutorial import fitting
from dec_tutorial.command_line import dec_fit, dec_predict
from dec_tutorial.fitting import run_fit
from dec_tutorial.data import Dataset, DecError, load_data
from dec_tutorial.dec import DEC
from dec_tutorial.practice.seeing import flat

brief = dict(ae_iter=30, max_iter=30, update_interval=10, dims=(32, 8))
words = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10, '--dims', '32,8')
x, y = make_blobs()
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
def one_sentence(r): # of a command that ended with an error that can be mended
    assert r.returncode == 1 and r.stderr.startswith(f'{r.args[0]}: '), r.stderr
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
    np.savez(at/'blobs.npz', x=x, y=y, image_shape=(4, 4))
    command = ['dec_fit', 'blobs.npz', *words, '--seed', '3', '--out', 'here']
    r = Child(at, at, run_script, command).finish()
    assert r.returncode == 0 and not r.stderr, r.stderr
    return at/'here', r.stdout

@pytest.fixture
def older(here, run): # that run's folder, as `o`
    return shutil.copytree(run[0], here/'o')

@pytest.fixture(scope='module')
def auto(tmp_path_factory): # one that finds the number of clusters: as `run`
    at = tmp_path_factory.mktemp('auto')
    np.savez(at/'blobs.npz', x=x, y=y)
    with redirect_stdout(io.StringIO()) as printed:
        dec_fit(str(at/'blobs.npz'), n_clusters='auto', out=at/'o', **brief)
    return at/'o', printed.getvalue()

class TestFit:
    pictures = [f'{p}.png' for p in ('confidence', 'contingency', 'embedding', 'reconstructions',
                                     'samples', 'top', 'training')]

    def test_files(self, run):
        others = ['assignments.csv', 'model.safetensors', 'record.json', 'report.html']
        assert files(run[0]) == sorted([*self.pictures, *others])
        assert len({(run[0]/name).stat().st_mode for name in others}) == 1     # all may be read

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
        np.savez(f'{name}.npz', x=x, y=np.array(['cat', '<b>dog', '$ewe$'])[y])
        with warnings.catch_warnings():
            warnings.filterwarnings('error', '.*could not be drawn')
            dec_fit(f'{name}.npz', out='o', **brief)
        page = Page((here/'o'/'report.html').read_text())
        assert f'DEC on {name}' in page.text and 'b' not in page.tags

    def test_the_recorded_command_repeats_the_run(self, here, older, run, shell):
        shutil.copy(run[0].parent/'blobs.npz', here)
        r = shell(*shlex.split(records_of(older)[-1]['command']), '--out', 'again')
        assert r.returncode == 0, r.stderr
        assert (here/'again'/'assignments.csv').read_bytes() == (
            older/'assignments.csv').read_bytes()

    def test_without_labels(self, here, older, capsys): # an older run gives way
        assert (older/'contingency.png').exists()
        np.save('u.npy', x)
        dec_fit('u.npy', n_clusters=3, out='o', **brief)
        head, _, *body = table_of(capsys.readouterr().out)
        assert head == ['cluster', 'points', 'confidence']
        assert sum(int(r[1]) for r in body) == 200
        assert records_of(older)[-1]['acc'] is None
        assert not (older/'contingency.png').exists()

    def test_auto(self, auto):
        k = len(set(clusters_of(auto[0]/'assignments.csv')))
        assert f'{k} clusters were chosen' in auto[1]
        assert (auto[0]/'how_many.png').exists()
        assert 'the largest number that' in (auto[0]/'report.html').read_text(encoding='utf-8')

    @pytest.mark.slow
    @pytest.mark.parametrize('kind', ['one feature', 'as many points as clusters', 'colour',
                                      'sparse pictures', 'more clusters than colours'])
    def test_odd_but_right(self, here, kind):
        s = sparse.csr_matrix(x*(x > .5))
        s = dict(data=s.data, indices=s.indices, indptr=s.indptr, shape=s.shape, y=y)
        odd = {'one feature': dict(x=y[:, None].astype(np.float32), y=y),
               'as many points as clusters': dict(x=x[:3], y=y[:3]),
               'sparse pictures': s | dict(image_shape=(4, 4)),
               'colour': dict(x=np.repeat(x.reshape(-1, 1, 4, 4), 3, axis=1), y=y),
               'more clusters than colours': dict(x=x, y=np.arange(200) % 25)}
        np.savez('odd.npz', **odd[kind])
        with warnings.catch_warnings():
            warnings.filterwarnings('error', '.*could not be drawn')
            dec_fit('odd.npz', out='o', **brief)
        assert {'record.json', 'report.html', 'embedding.png'} <= set(files(here/'o'))

    def test_units(self, here): # squares of such numbers are none in float32
        ds = Dataset('u', x*np.float32(1e-25), y)
        assert run_fit(ds, here/'o', **brief)[1][0]['acc'] == 1
        assert flat(ds.x).astype(float).std(0).min() > 1e-27

    @pytest.mark.parametrize('ds, seen', [(Dataset('p', x, y, n_train=120), x[:120]),
                                          (Dataset('p', x[:150], y[:150], more=x[150:]), x)])
    def test_autoencoder_on_the_training_part_and_on_further_points(self, here, ds, seen):
        how = dict(brief, recipe='authors')
        ae = DEC(3, random_state=0, **how).fit_autoencoder(seen)
        fitted, *_ = run_fit(ds, here/'o', **how)
        assert fitted.history_['autoencoder'] == ae.history_['autoencoder']
        assert len(fitted.labels_) == ds.n

@pytest.fixture(scope='module')
def table(tmp_path_factory): # the folder of a run on a table whose columns have names
    at = tmp_path_factory.mktemp('table')
    dec_fit(write_table(at/'t.csv', np.c_[x, y], [*columns, 'class']), out=at, **brief)
    return at

class TestPredict:
    def test_agrees_with_fit(self, here, shell, run):
        r = shell('dec_predict', run[0]/'model.safetensors', 'blobs.npz', '--out', 'new/c.csv')
        assert r.returncode == 0 and not r.stderr
        again = pd.read_csv('new/c.csv')
        assert again.pop('unseen').mean() < .05
        assert again.equals(pd.read_csv(run[0]/'assignments.csv'))

    def test_rows(self, run):
        table = pd.read_csv(run[0]/'assignments.csv')
        assert [*table] == ['row', 'cluster', 'confidence']
        assert table.row.tolist() == [*range(200)]
        assert table.confidence.between(1/3, 1).all()

    frame = pd.DataFrame(x, columns=columns)

    @pytest.mark.parametrize('new', [frame[columns[::-1]], frame.assign(**{'class': None}),
                                     frame.assign(note='a column that the model does not know')])
    def test_columns_are_found_by_name(self, here, table, new):
        new.to_csv('new.csv', index=False)
        dec_predict(table/'model.safetensors', 'new.csv')
        assert clusters_of('assignments-new.csv') == clusters_of(table/'assignments.csv')

    def test_without_names_columns_are_in_order(self, here, table):
        np.save('new.npy', x)
        dec_predict(table, 'new.npy', out='c.csv')                  # the folder will do, too
        assert clusters_of('c.csv') == clusters_of(table/'assignments.csv')

    def test_a_missing_column(self, here, table):
        data = write_table('w.csv', np.ones((9, 16)), [*columns[:-1], 'C15'])
        assert "has no column 'c15'" in complaint(dec_predict, table/'model.safetensors', data)
        assert not (here/'assignments-w.csv').exists()

    def test_other_files_are_left_alone(self, here, run):
        said = complaint(dec_predict, run[0]/'model.safetensors', 'blobs.npz', out='blobs.npz')
        assert 'something else than assignments' in said and len(load_data('blobs.npz').x) == 200

class TestTable:
    def test_half_labelled_rows_are_clustered_and_the_labelled_ones_scored(self, here, capsys):
        kinds = np.where(np.arange(200) % 4, np.array(list('abc'))[y], '')
        data = write_table('t.csv', np.c_[x, kinds], [*columns, 'kind'])
        with pytest.warns(UserWarning, match="'kind' names no class at row 0 .50 of 200 rows"):
            dec_fit(data, classes='kind', out='o', **brief)
        assert '3 classes (known for 150 points)' in capsys.readouterr().out
        assert records_of(here/'o')[-1]['acc'] == 1 and (here/'o'/'contingency.png').exists()

    def test_names_with_blanks(self, here):
        data = write_table('t.csv', x, [' c0', *columns[1:]])
        dec_fit(data, n_clusters=3, alpha=.5, out='o', **brief)
        with pytest.raises(DecError, match="has no column 'c0'"):
            dec_predict('o/model.safetensors', write_table('u.csv', np.ones((9, 15)), columns[1:]))
        dec_predict('o/model.safetensors', data, out='c.csv')
        assert clusters_of('c.csv') == clusters_of('o/assignments.csv')
        assert DEC.load('o/model.safetensors').alpha == .5

    def test_a_last_phase_below_its_start_is_told(self, here, monkeypatch):
        start, end = dict(method='AE+k-means', acc=.77), dict(method='DEC', acc=.65)
        dec = SimpleNamespace(stop_reason_='tol', n_iter_=9)
        told = [fitting._closing(dec, pair, 'table', here, chosen=False, about=[])
                for pair in ([start, end], [end, end])]
        assert ['AE+k-means, where the last phase began' in t for t in told] == [True, False]

class TestFolder:
    @pytest.mark.parametrize('name', ['record.json', 'top.png'])
    def test_files_of_others_are_left_alone(self, here, name):
        (here/name).write_text('mine')
        said = complaint(dec_fit, 'blobs.npz', out='.', **brief)
        assert f'{name} was not written by dec_fit' in said
        assert files(here) == sorted(['blobs.npz', name]) and (here/name).read_text() == 'mine'

    def test_data_is_not_overwritten(self, older):
        data = write_table('o/assignments.csv', x, columns)
        assert 'would be overwritten' in complaint(dec_fit, data, n_clusters=3, out='o', **brief)

    def test_two_files_of_one_name(self, here, run): # and one file twice
        shutil.copytree(run[0], here/'dec_runs'/'blobs-quick-3')
        for data in ('blobs.npz', here/'blobs.npz'): dec_fit(str(data), seed=3, **brief)
        assert sorted(f.name for f in (here/'dec_runs').iterdir()) == ['blobs-quick-3',
                                                                       'blobs-quick-3-2']

    def test_home(self, here, monkeypatch):
        monkeypatch.setenv('HOME', str(here))
        dec_fit('~/blobs.npz', out='~/o', **brief)
        dec_predict('~/o/model.safetensors', '~/blobs.npz', out='~/c.csv')
        assert (here/'c.csv').exists() and not (here/'~').exists()

    def test_the_report_says_when_no_number_came_again(self, here, monkeypatch):
        monkeypatch.setattr(fitting, 'k_curve', lambda *_, **__: [dict(k=2, strength=.7, G=1.)])
        dec_fit('blobs.npz', n_clusters='auto', out='o', **brief)
        assert 'though no number came again' in (here/'o'/'report.html').read_text(encoding='utf-8')
        record = json.loads((here/'o'/'record.json').read_text())[-1]
        assert record['measured']['verdict']['strength'] == .7

    @pytest.fixture
    def kill(self, here, monkeypatch): # a run that ends before its last phase
        cluster = DEC._cluster
        def die(dec, *how):
            if dec.checkpoint: raise SystemExit('killed')               # and no run of the search
            return cluster(dec, *how)
        def kill(**options):
            with monkeypatch.context() as patched, pytest.raises(SystemExit):
                patched.setattr(DEC, '_cluster', die)
                dec_fit('blobs.npz', **brief, **options)
        return kill

    def test_a_killed_run_goes_on(self, here, auto, kill):
        kill(n_clusters='auto')
        dec_fit('blobs.npz', n_clusters=3, seed=1, **brief)                        # another job
        dec_fit('blobs.npz', n_clusters='auto', **brief)
        assert (clusters_of('dec_runs/blobs-quick-0/assignments.csv')
                == clusters_of(auto[0]/'assignments.csv'))
        assert not [f for f in files(here) if '/.' in f]

    def test_another_version_begins_anew(self, here, kill, monkeypatch):
        for version in ('1', '2', '2'):
            monkeypatch.setattr(fitting, '__version__', version)
            kill()
        assert len([*here.rglob('.checkpoint-*.pt')]) == 2

    @pytest.fixture
    def svg(self): # another backend than the tests'
        plt.switch_backend('svg')
        yield
        plt.switch_backend('agg')

    def test_a_picture_that_fails_costs_nothing_else(self, here, svg, monkeypatch):
        monkeypatch.setattr(fitting, 'show_confidence', lambda q: 1/0)
        before = dict(plt.rcParams), plt.get_fignums()
        with pytest.warns(UserWarning, match='confidence.png could not be drawn .ZeroDivision'):
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
        ('blobs.npz', dict(n_clusters=1), 'n_clusters is 1'),
        ('blobs.npz', dict(recipe='slow'), "'slow'.*paper"),
        ('blobs.npz', dict(out='blobs.npz'), 'cannot write .*--out'),
        pytest.param('blobs.npz', dict(device='cuda'), 'no GPU', marks=no_gpu),
        ('blobs.npz', dict(device='banana'), 'not supported'),
        ('blobs.npz', dict(precision='fp8'), 'precision'),
        ('blobs.npz', dict(seed=-1), 'random_state'),
        ('blobs.npz', dict(dims=(8, 0)), 'dims must be widths'),
        *(('blobs.npz', {name: 0}, name) for name in ('ae_iter', 'max_iter', 'update_interval'))])
    def test_fit(self, here, data, options, says):
        np.save('u.npy', x)
        np.savez('zero.npz', x=0*x, y=y)
        np.savez('minus.npz', x=-x, y=y)
        before = files(here)
        assert re.search(says, complaint(dec_fit, data, **dict(brief, out='o') | options))
        assert files(here) == before

    @pytest.mark.parametrize('data,options,says', [
        ('wide.npy', {}, '32 features, but DEC is expecting 16'),
        ('blobs.npz', dict(out='blobs.npz/c.csv'), 'cannot write'),
        ('blobs.npz', dict(device='banana'), 'not supported')])
    def test_predict(self, here, run, data, options, says):
        np.save('wide.npy', np.ones((9, 32)))
        assert says in complaint(dec_predict, run[0]/'model.safetensors', data, **options)

    def test_a_shell_hears_one_sentence(self, shell):
        assert "did you mean 'mnist'" in one_sentence(shell('dec_fit', 'minst'))

    def test_usage(self, shell):
        r = shell('dec_fit', '--dims', 'wide')
        assert r.returncode == 2 and "'wide' is no list of widths" in r.stderr

    def test_options_may_be_written_with_dashes(self, shell, blobs):
        assert 'n_clusters is 1' in one_sentence(shell('dec_fit', blobs, '--n-clusters=1'))

    def test_remarks_on_columns_are_sentences(self, here, shell):
        write_table('t.csv', (x + 1e3)*np.where(np.arange(16) == 3, 1000, 1), columns)
        r = shell('dec_fit', 't.csv', '--n_clusters', 3, *words, '--out', 'o')
        assert r.returncode == 0 and r.stderr.startswith('dec_fit: over 99 %')
        assert "column 'c3' has numbers so much larger" in r.stdout

    def test_memory(self, shell, blobs, monkeypatch):
        def run_fit(*_, **__): raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        monkeypatch.setattr(fitting, 'run_fit', run_fit)
        assert 'memory' in one_sentence(shell('dec_fit', blobs))

    def test_no_network(self, shell, tmp_path, monkeypatch):
        for v in ('http_proxy', 'https_proxy', 'HTTPS_PROXY'):
            monkeypatch.setenv(v, 'http://127.0.0.1:9')
        monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
        (tmp_path/'empty').mkdir()
        r = shell('dec_fit', 'usps', '--root', 'empty')
        assert 'downloading it failed' in one_sentence(r) and not files(tmp_path)
