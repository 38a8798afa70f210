"""`dec_fit` and `dec_predict` as a shell sees them: what they leave, what they print, and what
they say when something is wrong"""
import base64, csv, json, re, shlex, subprocess, sys, warnings
from html.parser import HTMLParser
import matplotlib.pyplot as plt, numpy as np, pytest, torch
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn import config_context
from conftest import files, make_blobs, root, script, small
from dec_tutorial.paper.ablations import ABLATIONS, STARTS, WIDTHS
from dec_tutorial import command_line
from dec_tutorial.command_line import dec_fit, dec_predict, run_fit
from dec_tutorial.dec import DEC, get_recipe
from dec_tutorial.data import Dataset, DecError, load_data
from dec_tutorial.evaluation import flat
from dec_tutorial.inside.machine import precision_used
from dec_tutorial.paper.mistakes import MISTAKES
from dec_tutorial.paper.reproduction import AE_CHANGES, KL_CHANGES, reproduce
from dec_tutorial.paper.tables import Cells, Run

short = ('--ae_iter', 30, '--max_iter', 30, '--update_interval', 10)
schema = ('experiment dataset n method acc nmi ari recipe seed iterations stop_reason '
          'reconstruction params seconds device precision command versions date'.split())

def shell(*argv, cwd): # no fork, no narrow layers: a process as users start it
    return subprocess.run([script(argv[0]), *map(str, argv[1:])], cwd=cwd, capture_output=True,
                          text=True, timeout=600)

class Page(HTMLParser): # of a report: addresses it refers to, its text, its tags
    def __init__(self, text):
        super().__init__()
        self.refs, self.text, self.tags, self.alts = [], '', [], []
        self.feed(text)
    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.refs += [v for k, v in attrs if k in ('src', 'href', 'srcset', 'data', 'action')]
        self.alts += [v for k, v in attrs if k == 'alt']
    def handle_data(self, data): self.text += data

def test_help(tmp_path):
    r = shell('dec_fit', '--help', cwd=tmp_path)
    assert r.returncode == 0 and not r.stderr
    for word in ('mnist', '.csv', '--recipe', '--n_clusters', '--seed', '--out', '--max_iter',
                 '--device'):
        assert word in r.stdout

def test_what_a_run_leaves(tmp_path):
    x, y = make_blobs()
    np.savez(tmp_path/'blobs.npz', x=x, y=y, image_shape=(4, 4))
    r = shell('dec_fit', 'blobs.npz', *short, '--seed', 3, '--out', 'here', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert not r.stderr
    pictures = [f'{p}.png' for p in ('confidence', 'contingency', 'embedding', 'reconstructions',
                                     'samples', 'top', 'training')]
    # nothing hidden either
    assert files(tmp_path/'here') == sorted([*pictures, 'assignments.csv', 'model.safetensors',
                                             'record.json', 'report.html'])

    table = [[c.strip() for c in l.strip('|').split('|')] for l in r.stdout.splitlines()
             if l.startswith('|')]
    assert (table[0] == ['method', 'ACC', 'NMI', 'ARI', 'seconds']
            and [row[0] for row in table[2:]] == ['k-means', 'AE+k-means', 'DEC'])
    records = json.loads((tmp_path/'here'/'record.json').read_text())
    assert [r['method'] for r in records] == ['k-means', 'AE+k-means', 'DEC']
    for rec, row in zip(records, table[2:]):
        assert set(rec) == set(schema)
        assert (rec['experiment'], rec['dataset'], rec['n'], rec['seed'],
                rec['device']) == ('fit', 'blobs', 200, 3, 'cpu')
        for score, cell in zip(('acc', 'nmi', 'ari'), row[1:]):
            assert rec[score] <= 1 and float(cell) == round(100*rec[score], 1)
        assert (set(rec['versions']) >= {'python', 'torch', 'sklearn', 'numpy'}
                and re.fullmatch(r'\d{4}-\d\d-\d\d', rec['date']))
        assert (rec['command'].startswith('dec_fit ')
                and rec['params'] == dict(ae_iter=30, max_iter=30, update_interval=10))
    dec = records[-1]
    assert (dec['acc'] == 1 and dec['recipe'] == 'fast' and dec['stop_reason'] in ('tol', 'n_iter')
            and 10 <= dec['iterations'] <= 30)

    page = Page((tmp_path/'here'/'report.html').read_text())
    assert (len(page.refs) == len(pictures)
            and all(r.startswith('data:image/png;base64,') for r in page.refs))
    assert {base64.b64decode(r.split(',')[1])
            for r in page.refs} == {(tmp_path/'here'/p).read_bytes() for p in pictures}
    assert all(len(a) > 20 for a in page.alts)
    # nothing is fetched
    assert (re.findall(r'url\([^)]*\)|https?:', page.text) == ["url(' + d.sheet + ')"]
            and 'dec-map' in (tmp_path/'here'/'report.html').read_text())
    for cell in ('AE+k-means', table[-1][1], dec['command'], 'blobs'): assert cell in page.text

def test_without_labels(cli, tmp_path):
    x, y = make_blobs()
    np.savez(tmp_path/'u.npz', x=x)
    r = cli('dec_fit', 'u.npz', '--n_clusters', 3, '--ae_iter', 30, '--max_iter', 150, '--out', 'o',
            '--dims', '16,4')
    assert r.returncode == 0, r.stderr
    assert DEC.load(tmp_path/'o'/'model.safetensors').recipe_.dims == (16, 4)
    table = [[c.strip() for c in l.strip('|').split('|')] for l in r.stdout.splitlines()
             if l.startswith('|')]
    assert (table[0] == ['cluster', 'points', 'confidence']
            and sum(int(row[1]) for row in table[2:]) == 200)
    assert all(0 < float(row[2]) <= 100 for row in table[2:]) and len(table) == 5
    for r in json.loads((tmp_path/'o'/'record.json').read_text()):
        assert r['acc'] is r['nmi'] is r['ari'] is None and r['params']['dims'] == [16, 4]
        assert '--dims 16,4' in r['command']
    assert files(tmp_path/'o') == ['assignments.csv', 'confidence.png', 'embedding.png',
                                   'model.safetensors', 'record.json', 'report.html',
                                   'training.png']

def test_widths_are_numbers(cli, blobs):
    for bad in (64, '64,64,5'):
        with pytest.raises(DecError, match='^dims must be widths'):
            dec_fit(str(blobs), out=str(blobs.parent/'o'), dims=bad)
    r = cli('dec_fit', '--dims', 'wide')
    assert r.returncode == 2 and "'wide' is no list of widths like 64,64,5" in r.stderr

def test_names_are_escaped(cli, tmp_path, blobs):
    name = '<img src=x onerror=alert(1)> & <b>"'
    blobs.rename(tmp_path/f'{name}.npz')
    assert cli('dec_fit', f'{name}.npz', *short, '--out', 'o').returncode == 0
    text = (tmp_path/'o'/'report.html').read_text()
    page = Page(text)
    assert (f'DEC on {name}' in page.text and 'b' not in page.tags
            and all(r.startswith('data:') for r in page.refs))

def test_the_recorded_command_repeats_the_run(cli, tmp_path, blobs):
    blobs.rename(tmp_path/'my blobs.npz')
    assert cli('dec_fit', 'my blobs.npz', *short, '--seed', 5, '--n_clusters', 4, '--out',
               'o').returncode == 0
    first = json.loads((tmp_path/'o'/'record.json').read_text())
    r = cli(*shlex.split(first[-1]['command']))
    assert r.returncode == 0, r.stderr
    again = json.loads((tmp_path/'dec_runs'/'my blobs-fast-5'/'record.json').read_text())
    same = lambda records: [{k: v for k, v in r.items() if k not in ('seconds', 'date')}
                            for r in records]
    assert same(first) == same(again)

def test_other_peoples_files_are_left_alone(cli, tmp_path, blobs):
    mine = [tmp_path/n for n in ('notes.png', '.movie.mkv.part', '.writable')]
    for f in mine: f.write_text('mine')
    for name in ('record.json', 'top.png', 'model.safetensors'):
        (tmp_path/name).write_text('mine')
        before = files(tmp_path)
        check_complaint(cli('dec_fit', blobs, *short, '--out', tmp_path), 'dec_fit',
                        f'{name} was not written by dec_fit')
        assert files(tmp_path) == before and (tmp_path/name).read_text() == 'mine'
        (tmp_path/name).unlink()
    r = cli('dec_fit', blobs, *short, '--out', tmp_path)
    assert r.returncode == 0, r.stderr
    assert all(f.read_text() == 'mine' for f in mine)
    r = cli('dec_predict', tmp_path/'model.safetensors', blobs, '--out', blobs)
    assert r.returncode == 1 and 'name another file' in r.stderr
    assert np.load(blobs)['x'].shape == (200, 16)
    for rows, code in (('row,cluster,confidence\r\n0,1,0.5\r\n', 0), ('name,age\n', 1)):
        (tmp_path/'c.csv').write_text(rows, newline='')
        r = cli('dec_predict', tmp_path/'model.safetensors', blobs, '--out', 'c.csv')
        assert r.returncode == code
    assert 'something else than assignments' in r.stderr and (tmp_path/'c.csv').read_text() == rows

def test_its_own_input_is_not_overwritten(cli, tmp_path, blobs):
    assert cli('dec_fit', blobs, *short, '--out', 'o').returncode == 0     # so the folder is ours
    data = table(tmp_path/'o'/'assignments.csv', make_blobs()[0], [f'c{j}' for j in range(16)])
    before = data.read_bytes()
    for place in (tmp_path/'o', tmp_path/'o'/'..'/'o'):
        check_complaint(cli('dec_fit', data, '--n_clusters', 3, *short, '--out', place), 'dec_fit',
                        'assignments.csv would be overwritten')
    assert data.read_bytes() == before

def test_the_home_folder_may_be_written_short(cli, tmp_path, blobs):
    home = dict(HOME=str(tmp_path))
    assert cli('dec_fit', '~/blobs.npz', *short, '--out', '~/o', env=home).returncode == 0
    assert cli('dec_predict', '~/o/model.safetensors', '~/blobs.npz', '--out', '~/c.csv',
               env=home).returncode == 0
    check_complaint(cli('dec_predict', '~/o/model.safetensors', blobs, '--out', '~/blobs.npz',
                        env=home), 'dec_predict', 'name another file')
    assert (tmp_path/'o'/'report.html').exists() and (tmp_path/'c.csv').exists()
    assert not (tmp_path/'~').exists()

def test_two_files_of_one_name_get_two_folders(cli, tmp_path):
    for folder in 'ab':
        (tmp_path/folder).mkdir()
        np.savez(tmp_path/folder/'data.npz', **dict(zip('xy', make_blobs(seed=ord(folder)))))
        for _ in range(2):                                    # the second time it is the same job
            r = cli('dec_fit', f'{folder}/data.npz', *short)
            assert r.returncode == 0, r.stderr
    assert sorted(f.name for f in (tmp_path/'dec_runs').iterdir()) == ['data-fast-0',
                                                                       'data-fast-0-2']

def test_a_killed_job_keeps_its_folder(cli, tmp_path, blobs):
    long = ('dec_fit', blobs, '--ae_iter', 30, '--max_iter', 30, '--seed', 1)
    assert cli(*long, before=(small, killed_in_the_kl_phase)).returncode
    [ck] = (tmp_path/'dec_runs').glob('*/.checkpoint-*.pt')
    assert cli(*long[:-2], '--seed', 1, '--update_interval', 5).returncode == 0
    assert cli(*long).returncode == 0 and not ck.exists()                # it went on, and cleaned up
    assert len(list((tmp_path/'dec_runs').iterdir())) == 2

def killed_in_the_kl_phase():
    from dec_tutorial import dec
    def die(*_): raise SystemExit(1)
    dec.DEC._cluster = die

def test_predict_agrees_with_fit(cli, tmp_path, blobs):
    assert cli('dec_fit', blobs, *short, '--out', 'o').returncode == 0
    r = cli('dec_predict', 'o/model.safetensors', blobs, '--out', 'new/c.csv')
    assert r.returncode == 0 and not r.stderr, r.stderr
    with open(tmp_path/'new'/'c.csv', newline='') as f: head, *rows = csv.reader(f)
    assert head == ['row', 'cluster', 'confidence'] and files(tmp_path/'new') == ['c.csv']
    row, cluster, confidence = (np.array(c) for c in zip(*rows))
    assert (row.astype(int) == np.arange(200)).all() and (
        cluster.astype(int) == load_file(tmp_path/'o'/'model.safetensors')['labels']).all()
    assert (confidence.astype(float) >= 1/3).all() and (confidence.astype(float) <= 1).all()
    assert (tmp_path/'o'/'assignments.csv').read_text() == (tmp_path/'new'/'c.csv').read_text()

def table(path, x, names):
    np.savetxt(path, x, delimiter=',', header=','.join(names), comments='')
    return path

def test_columns_are_found_by_name(cli, tmp_path):
    x, names = make_blobs()[0], [f'c{j}' for j in range(16)]
    assert cli('dec_fit', table(tmp_path/'t.csv', x, names), '--n_clusters', 3, *short, '--out',
               'o').returncode == 0
    r = cli('dec_predict', 'o/model.safetensors', table(tmp_path/'r.csv', x[:, ::-1], names[::-1]),
            '--out', 'r-c.csv')
    assert (r.returncode == 0 and not r.stderr
            and (tmp_path/'r-c.csv').read_text() == (tmp_path/'o'/'assignments.csv').read_text())
    np.save(tmp_path/'t.npy', x)                                             # no names: by position
    r = cli('dec_predict', 'o/model.safetensors', 't.npy', '--out', 'n-c.csv')
    assert (r.returncode == 0 and not r.stderr
            and (tmp_path/'n-c.csv').read_text() == (tmp_path/'o'/'assignments.csv').read_text())
    for columns, words in (
        (names[:-1], "lacks 'c15'"), ([*names, 'id'], "beyond the columns of the model, 'id'"),
        ([*names[:-1], 'C15'], "lacks 'c15' and has, beyond the columns of the model, 'C15'")):
        r = cli('dec_predict', 'o/model.safetensors',
                table(tmp_path/'w.csv', x[:, [0]*len(columns)], columns), '--out', 'w-c.csv')
        assert (r.returncode == 1 and words in r.stderr and len(r.stderr.splitlines()) == 1
                and not (tmp_path/'w-c.csv').exists())

def test_new_points_need_no_class(cli, tmp_path):
    x, y = make_blobs()
    names = [f'c{j}' for j in range(16)]
    assert cli('dec_fit', table(tmp_path/'t.csv', np.c_[x, y], [*names, 'class']), *short, '--out',
               'o').returncode == 0
    rows = [','.join([*names, 'class']), *(','.join([*map(str, v), '']) for v in x.tolist())]
    (tmp_path/'new.csv').write_text('\n'.join(rows))
    r = cli('dec_predict', 'o/model.safetensors', 'new.csv', '--out', 'c.csv')
    assert (r.returncode == 0 and not r.stderr
            and (tmp_path/'c.csv').read_text() == (tmp_path/'o'/'assignments.csv').read_text()), r.stderr

def test_a_warning_is_a_sentence_in_the_shell(cli, tmp_path):
    x = make_blobs()[0] + 1e3
    r = cli('dec_fit', table(tmp_path/'t.csv', x, [f'c{j}' for j in range(16)]), '--n_clusters', 3,
            *short, '--out', 'o')
    assert r.returncode == 0 and 'UserWarning' not in r.stderr and 'warnings.warn' not in r.stderr
    assert any(l.startswith('dec_fit: over 99 %') for l in r.stderr.splitlines()), r.stderr

def test_another_version_begins_anew(tmp_path, monkeypatch):
    ds = Dataset('blobs', make_blobs()[0])
    file = lambda: command_line._checkpoint(tmp_path, ds, DEC(3), get_recipe('fast'), 0, 'float32').path
    before = file()
    assert before == file()
    monkeypatch.setattr(command_line, '__version__', '99')
    assert before != file()

def test_a_table_of_mixed_units_and_a_folder_used_before(cli, tmp_path, blobs):
    assert (cli('dec_fit', blobs, *short, '--out', 'o').returncode == 0
            and (tmp_path/'o'/'contingency.png').exists())
    x, names = make_blobs()[0], [f'c{j}' for j in range(16)]
    x[:, 3] *= 1000
    r = cli('dec_fit', table(tmp_path/'t.csv', x, names), '--n_clusters', 3, *short, '--out', 'o')
    assert (r.returncode == 0 and "column 'c3' has numbers so much larger" in r.stdout
            and 'assignments.csv has the cluster of every row' in r.stdout)
    assert not (tmp_path/'o'/'contingency.png').exists()              # it belonged to the other job
    assert 'larger' not in cli('dec_fit', table(tmp_path/'t.csv', make_blobs()[0], names),
                               '--n_clusters', 3, *short, '--out', 'o').stdout

def odd_data(kind):
    x, y = make_blobs()
    if kind == 'one feature': return dict(x=y[:, None].astype(np.float32), y=y)
    if kind == 'as many points as clusters': return dict(x=x[:3], y=y[:3])
    if kind == 'sparse':
        s = sparse.csr_matrix(x*(x > .5))
        return dict(data=s.data, indices=s.indices, indptr=s.indptr, shape=s.shape, y=y)
    if kind == 'sparse pictures': return odd_data('sparse') | dict(image_shape=(4, 4))
    if kind == 'colour': return dict(x=np.repeat(x.reshape(-1, 1, 4, 4), 3, axis=1), y=y)
    if kind == 'more clusters than colours': return dict(x=x, y=np.arange(200) % 25)
    return dict(x=x, y=np.array(['cat', 'dog', 'ewe'])[y])

@pytest.mark.parametrize('kind',
                         ['one feature', 'as many points as clusters', 'sparse', 'sparse pictures',
                          'colour', 'more clusters than colours', 'classes in words'])
def test_odd_but_right(cli, tmp_path, kind):
    np.savez(tmp_path/'odd.npz', **odd_data(kind))
    r = cli('dec_fit', 'odd.npz', *short, '--out', 'o')
    assert r.returncode == 0, r.stderr[-400:]
    assert {'record.json', 'report.html', 'embedding.png',
            'model.safetensors'} <= set(files(tmp_path/'o'))

# the recipe refreshes every 140 batches
def test_a_run_that_ends_before_its_first_refresh(cli, tmp_path, blobs):
    r = cli('dec_fit', blobs, '--ae_iter', 5, '--max_iter', 5, '--out', 'o')
    assert r.returncode == 0, r.stderr[-400:]
    assert json.loads((tmp_path/'o'/'record.json').read_text())[-1]['iterations'] == 5

# ---- One sentence, and nothing left behind
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')

def spoil(tmp_path):
    "Files that are wrong in one way each"
    x, y = make_blobs()
    (tmp_path/'cut.npz').write_bytes((tmp_path/'blobs.npz').read_bytes()[:3000])
    (tmp_path/'text.npz').write_text('no archive')
    bad = x.copy(); bad[7, 3] = np.nan
    np.savez(tmp_path/'nan.npz', x=bad, y=y)
    (tmp_path/'nan.csv').write_text('class,a,b\n' + '\n'.join(f'{c},{a},{b}'
                                                              for c, (a, b) in zip(y, bad[:, 2:4])))
    (tmp_path/'words.csv').write_text('a,b\n1,2\n3,red\n')
    np.savez(tmp_path/'zero.npz', x=0*x, y=y)
    np.savez(tmp_path/'minus.npz', x=-x, y=y)
    np.savez(tmp_path/'unlabelled.npz', x=x)
    np.savez(tmp_path/'names.npz', points=x)
    np.savez(tmp_path/'pickled.npz', x=np.array([{}], dtype=object))
    np.savez(tmp_path/'wide.npz', x=np.hstack([x, x]))
    save_file(dict(mu=x), tmp_path/'foreign.safetensors')
    (tmp_path/'text.safetensors').write_text('no model')

def check_complaint(r, prog, words):
    lines = r.stderr.strip().splitlines()
    assert (r.returncode == 1 and len(lines) == 1
            and lines[0].startswith(f'{prog}: ')), r.stderr[-600:]
    assert re.search(words, lines[0]), lines[0]

@pytest.mark.parametrize('argv,words', [
    ('minst', "did you mean 'mnist'"), ('nowhere.npz', 'no file nowhere.npz'),
    ('cut.npz', 'cut.npz.* damaged'), ('text.npz', 'text.npz.* damaged'),
    ('nan.npz', 'NaN at row 7, column 3'), ('nan.csv', 'NaN at row 7, column 2'),
    ('words.csv', "'red' at data row 1, column 1"), ('names.npz', 'points'),
    ('pickled.npz', 'pickled.npz'),
    ('zero.npz', 'zero'), ('minus.npz --recipe authors', r'pixels in \[0, 1\]'),
    ('unlabelled.npz', '--n_clusters'), (f'{"x"*300}', 'no data set|no file'),
    ('blobs.npz --n_clusters 300', 'fewer than n_clusters=300'),
    *((f'blobs.npz --n_clusters {k}', f'n_clusters is {k}') for k in (1, 0, -2)),
    ('blobs.npz --recipe quick', "'quick'.*paper"),
    ('blobs.npz --out blobs.npz/below', 'cannot write .*--out'),
    ('blobs.npz --out blobs.npz', 'cannot write .*--out'),
    pytest.param('blobs.npz --device cuda', 'no GPU', marks=no_gpu),
    ('blobs.npz --device banana', 'no device'), ('blobs.npz --precision fp8', 'precision'),
    ('blobs.npz --seed -1', 'seed|random_state'), ('blobs.npz --max_iter 0', 'max_iter'),
    ('blobs.npz --dims 8,0', 'dims .* widths'),
    ('blobs.npz --ae_iter 0', 'ae_iter'), ('blobs.npz --update_interval 0', 'update_interval')],
                         ids=lambda v: v[:40])
def test_fit_complains(cli, tmp_path, blobs, argv, words):
    spoil(tmp_path)
    before = files(tmp_path)
    argv = argv.split()
    r = cli('dec_fit', *argv, *(() if '--out' in argv else ('--out', 'o')),
            *(() if '0' in argv else short))
    check_complaint(r, 'dec_fit', words)
    assert files(tmp_path) == before

@pytest.mark.parametrize('name', ['mnist', 'usps', 'coil20'])
def test_no_network_and_no_data(cli, tmp_path, name):
    dead = 'http://127.0.0.1:9'
    env = ({v: dead for v in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY')}
           | dict(XDG_CACHE_HOME=str(tmp_path/'cache'), no_proxy='', NO_PROXY=''))
    (tmp_path/'empty').mkdir()
    r = cli('dec_fit', name, '--root', tmp_path/'empty', '--out', 'o', *short, env=env)
    check_complaint(r, 'dec_fit',
                    f'^dec_fit: {name} is not in .*empty.* downloading it failed.* put ')
    assert files(tmp_path) == []
    check_complaint(cli('dec_fit', name, '--root', tmp_path/'empty', '--no_download', env=env),
                    'dec_fit', 'download is off')

@pytest.fixture(scope='module')
def model(tmp_path_factory):
    from dec_tutorial.dec import DEC, Recipe
    from dec_tutorial.training import Stage
    path = tmp_path_factory.mktemp('model')/'m.safetensors'
    DEC(3, recipe=Recipe('tiny', Stage(20, lr=.1), Stage(20, lr=.01), dims=(8, 2)),
        random_state=0).fit(make_blobs()[0]).save(path)
    return path

@pytest.mark.parametrize('argv,words', [
    ('MODEL wide.npz', '32 features, but DEC is expecting 16'),
    ('foreign.safetensors blobs.npz', 'not a complete model'),
    ('text.safetensors blobs.npz', 'not a complete model'),
    ('half.safetensors blobs.npz', 'not a complete model'),
    ('lost.safetensors blobs.npz', 'no model file'), ('blobs.npz blobs.npz', 'not a complete model'),
    ('MODEL nan.npz', 'row 7, column 3'),
    ('MODEL nowhere.npz', 'no file'), ('MODEL minst', "'mnist'"),
    ('MODEL blobs.npz --out blobs.npz/c.csv', 'cannot write'),
    ('MODEL blobs.npz --out .', 'cannot write'),
    pytest.param('MODEL blobs.npz --device cuda', '^dec_predict: device .*no GPU', marks=no_gpu),
    ('MODEL blobs.npz --device banana', '^dec_predict: .banana. names no device')],
                         ids=lambda v: v[:40])
def test_predict_complains(cli, tmp_path, blobs, model, argv, words):
    spoil(tmp_path)
    (tmp_path/'half.safetensors').write_bytes(model.read_bytes()[:len(model.read_bytes())//2])
    before = files(tmp_path)
    check_complaint(cli('dec_predict', *argv.replace('MODEL', str(model)).split()), 'dec_predict',
                    words)
    assert files(tmp_path) == before

def test_usage_errors_are_argparse_s(cli):
    for argv in (('dec_fit', '--seed', 'three'), ('dec_fit', '--color', 'red'), ('dec_predict',)):
        r = cli(*argv)
        assert r.returncode == 2 and 'usage:' in r.stderr and 'Traceback' not in r.stderr

def test_a_folder_that_another_command_took_meanwhile(tmp_path):
    before = command_line._command_of(tmp_path)
    for _ in range(2): command_line._claim(tmp_path, 'dec_fit b/data.csv', before)
    with pytest.raises(DecError, match='dec_fit b/data.csv has begun to write'):
        command_line._claim(tmp_path, 'dec_fit a/data.csv', before)

def no_memory(): run_out(MemoryError())
def no_memory_for_a_tensor(): run_out(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
def run_out(error):
    from dec_tutorial import command_line
    def run_fit(*args): raise error
    command_line.run_fit = run_fit

@pytest.mark.parametrize('how', [no_memory, no_memory_for_a_tensor])
def test_not_enough_memory_is_said(cli, tmp_path, blobs, how):
    check_complaint(cli('dec_fit', blobs, *short, '--out', 'o', before=(how,)), 'dec_fit', 'memory')

@pytest.mark.parametrize('what,rows', [('table2', ['k-means', 'LDMGI', 'SEC', 'DEC w/o backprop',
                                                   'DEC w/o backprop, not stopped', 'DEC']),
                                       ('fig2', ['k-means', 'LDMGI', 'SEC', 'DEC w/o backprop',
                                                 'DEC w/o backprop, not stopped', 'DEC']),
                                       ('table3', ['AE+k-means', 'AE+LDMGI', 'AE+SEC']),
                                       ('table4', ['k-means', 'AE+k-means', 'DEC']),
                                       ('fewer', ['k-means', 'AE+k-means', 'DEC']),
    ('fig4', ['equation 4', "the authors' plot"]), ('fig5', ['0', '1']), ('fig6', ['5', '10']),
    ('overfit', ['5', '10']),
    ('graphs', ['SEC, μ = 10⁻⁸', 'SEC, μ = 1', 'LDMGI, λ = 10⁻⁸', 'LDMGI, λ = 1']),
    ('details', ['none', *KL_CHANGES, *AE_CHANGES]),
    ('precision', ['float32', f"auto ({precision_used('auto')})", 'difference'])])
def test_reproduce(cli, tmp_path, blobs, what, rows):
    run = lambda: cli('dec_reproduce', what, '--data', 'blobs.npz', '--seeds', '0,1', '--quick',
                      '--out', 'o', *(['--recipe', 'authors'] if what == 'details' else []))
    r = run()
    assert r.returncode == 0 and 'blobs.npz: ' in r.stderr and 'seed 1' in r.stderr, r.stderr
    assert '--quick trains for 200 batches' in r.stdout
    assert [l.split('|')[1].strip() for l in r.stdout.splitlines() if l.startswith('|')][2:] == rows
    path = next((tmp_path/'o').glob('*.json'))
    mark = path.stem.split('blobs')[1]           # figures of other points or short runs are others
    drawn = ([] if what in ('table2', 'table3', 'details', 'precision')
             else [f'{what}-blobs-fast{mark}.png'])
    assert (files(tmp_path/'o') == drawn + [path.name]
            and path.match(f'{"fig2" if what == "table2" else what}_blobs-????????-quick.json'))
    records = json.loads(path.read_text())
    methods = (dict(table2=rows, fig2=rows, table3=rows, table4=rows, fewer=rows,
                    fig4=['AE+k-means'], graphs=['SEC', 'LDMGI'], details=['AE+k-means', 'DEC'],
                    precision=['AE+k-means', 'DEC']).get(what, ['DEC']))
    assert {r['method'] for r in records} == set(methods)
    assert ({r['seed'] for r in records} == {0, 1}
            and {tuple(k for k in r if k != 'measured') for r in records} == {tuple(schema)})

    path.write_text(json.dumps(lost := records[::2]))                   # half of the cells got lost
    r = run()
    again = json.loads(path.read_text())
    assert r.returncode == 0 and again[:len(lost)] == lost and len(again) == len(records)
    key = lambda r: json.dumps([r['method'], r['seed'], r['params']])
    assert {key(r): r['acc'] for r in again} == {key(r): r['acc'] for r in records}

def test_only_some_cells_of_a_table(cli, tmp_path, blobs):
    run = lambda only: cli('dec_reproduce', 'ablations', '--data', 'blobs.npz', '--seeds', '0,1',
                           '--quick', '--out', 'o', '--only', only)
    for only, new in (('random centroids,seed 1', 1), ('Random centroids', 2), ('seed 1, DEC', 3)):
        r = run(only)
        [path] = (tmp_path/'o').glob('*')                                                # no figure
        records = json.loads(path.read_text())
        assert r.returncode == 0 and len(records) == new, r.stderr
        assert records[-1]['command'].endswith(f" --only '{only}'")
    assert [(r['method'], r['seed']) for r in records] == [('random centroids', 1),
                                                           ('random centroids', 0), ('DEC', 1)]
    check_complaint(run('random centroid'), 'dec_reproduce', "ablations has no cell with 'random "
                    "centroid' among the seeds 0, 1; the nearest is 'random centroids, fast, seed")
    check_complaint(run(' '), 'dec_reproduce', 'only is empty')
    assert json.loads(path.read_text()) == records

@pytest.mark.parametrize('what,variants', [('ablations', ABLATIONS), ('widths', WIDTHS),
                                           ('starts', STARTS),
                                           ('mistakes', MISTAKES)])
def test_variants(cli, tmp_path, blobs, what, variants):
    r = cli('dec_reproduce', what, '--data', 'blobs.npz', '--seeds', '0', '--quick', '--out', 'o')
    assert r.returncode == 0, r.stderr
    [path] = (tmp_path/'o').glob('*.json')
    mark = path.stem.split('blobs')[1]
    assert (files(tmp_path/'o') == [f'{what}-blobs-fast{mark}.png', path.name]
            and path.match(f'{what}_blobs-????????-quick.json'))
    records = json.loads(path.read_text())
    assert ([r['method'] for r in records] == [v.name for v in variants]
            and len({v.name for v in variants}) == len(variants))
    assert all(0 <= r['measured']['start_acc'] <= 1 for r in records)
    plain = 'k-means' if what == 'starts' else 'none: DEC'
    for v in variants: assert (plain if v.name == 'DEC' else v.name) + ' |' in r.stdout
    assert list((tmp_path/'dec_runs'/'shared').glob('*.pt'))                  # for the next command

def test_records_of_several_processes_add_up(tmp_path, blobs):
    code = '''if True:
        import sys, numpy as np
        from dec_tutorial.data import load_data
        from dec_tutorial.paper.tables import Cells, Run
        ds = load_data('blobs.npz')
        for s in range(int(sys.argv[1]), 60, 2):
            Cells('toy', ds, 'o').add(Run('oracle', lambda: ds.y, seed=s))'''
    both = [subprocess.Popen([sys.executable, '-c', code, str(i)], cwd=tmp_path) for i in (0, 1)]
    assert [p.wait(120) for p in both] == [0, 0]
    records = json.loads((tmp_path/'o'/'toy_blobs.json').read_text())
    assert sorted(r['seed'] for r in records) == list(range(60))
    assert files(tmp_path/'o') == ['toy_blobs.json']

def test_what_ships_is_a_beginning(tmp_path, blobs):
    ds = load_data(blobs)
    def cell(seed, **to): Cells('toy', ds, **to).add(Run('oracle', lambda: ds.y, seed=seed))
    seeds = lambda folder: [r['seed'] for r in json.loads((folder/'toy_blobs.json').read_text())]
    shipped, mine = tmp_path/'shipped', tmp_path/'mine'
    cell(0, folder=shipped)
    before = (shipped/'toy_blobs.json').read_bytes()
    cell(0, folder=mine, begin=shipped)
    assert not mine.exists()                                          # nothing was missing
    for s in (1, 0, 2): cell(s, folder=mine, begin=shipped)
    assert seeds(mine) == [0, 1, 2] and (shipped/'toy_blobs.json').read_bytes() == before

def read_only():
    from dec_tutorial.paper import tables
    def refuse(folder): raise PermissionError(folder)
    tables._out_folder = refuse

def test_shipped_records_are_read_where_nothing_can_be_written(cli, tmp_path):
    r = cli('dec_reproduce', 'table2', '--data', 'digits', before=(read_only,))
    assert r.returncode == 0 and 'LDMGI' in r.stdout and 'seed' not in r.stderr, r.stderr

def test_records_can_be_made_again(cli, tmp_path):
    "Two of the records that ship with the package, by the command that stands in them"
    kept = (
        json.loads((root/'dec_tutorial'/'results'/'fig2_digits.json').read_text(encoding='utf-8')))
    gone = [r for r in kept if (r['method'], r['seed'],
                                r['params']) in (('k-means', 3, {}), ('LDMGI', 1, dict(lam=1.)))]
    (tmp_path/'o').mkdir()
    (path := tmp_path/'o'/'fig2_digits.json').write_text(
        json.dumps([r for r in kept if r not in gone]))
    r = cli(*shlex.split(gone[0]['command']), '--out', 'o')
    assert r.returncode == 0, r.stderr
    again = json.loads(path.read_text())[-2:]
    assert ([(r['method'], r['seed'], r['params'], r['command']) for r in again]
            == [(r['method'], r['seed'], r['params'], r['command']) for r in gone]
            and len(gone) == 2)
    for a, b in zip(again, gone): assert all(abs(a[s] - b[s]) < .01 for s in ('acc', 'nmi', 'ari'))

@pytest.mark.parametrize('argv,words', [('table9', 'known are table2, table3, table4, fig2'),
                                        ('table2 --seeds a,b', 'whole numbers'),
                                        ('fig2 --recipe slow', 'known are paper'),
                                        ('table3 --data unlabelled.npz', 'no classes'),
    ('fig3 --data blobs.npz', 'needs pictures'), ('jitter --data blobs.npz', 'looks at pictures'),
    ('details --data blobs.npz', '--recipe authors'),
    ('fig2 --data blobs.npz --seeds 4294967296', 'seeds must be whole numbers below'),
    ('fig2 --data minst', "did you mean 'mnist'")])
def test_reproduce_complains(cli, tmp_path, blobs, argv, words):
    spoil(tmp_path)
    before = files(tmp_path)
    check_complaint(cli('dec_reproduce', *argv.split(), '--quick', '--out', 'o'), 'dec_reproduce',
                    words)
    assert files(tmp_path) == before

def test_other_data_of_the_same_name(tmp_path): # their records must not be taken for these
    x, y = make_blobs(60)
    a, b = Dataset('data', x, y), Dataset('data', x, np.sort(y))
    run = lambda ds: reproduce('fig4', ds, (0,), folder=tmp_path/'o', work=tmp_path/'w', quick=True)
    assert (run(a)[0]['acc'] == 1 > run(b)[0]['acc']
            and len(list((tmp_path/'o').glob('*.json'))) == 2)
    np.savez(tmp_path/'mnist.npz', x=x, y=y)
    assert load_data(tmp_path/'mnist.npz').name == 'mnist-file'

def test_called_from_python_it_leaves_matplotlib_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend('svg')
    before = dict(plt.rcParams)
    np.save('p.npy', make_blobs(60)[0])
    try:
        dec_fit('p.npy', n_clusters=3, out='o', ae_iter=5, max_iter=5)
        assert plt.get_backend() == 'svg' and dict(plt.rcParams) == before
    finally: plt.switch_backend('agg')

def test_pictures_that_fail_cost_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, 'show_confidence', lambda q: 1/0)
    ds, out = Dataset('p', make_blobs(60)[0]), tmp_path/'o'
    before, open_ = dict(plt.rcParams), plt.get_fignums()
    with pytest.warns(UserWarning, match='confidence.png could not be drawn .ZeroDivisionError'):
        run_fit(ds, out, 3, ae_iter=5, max_iter=5)
    assert files(out) == ['assignments.csv', 'embedding.png', 'model.safetensors', 'record.json',
                          'report.html', 'training.png']
    assert dict(plt.rcParams) == before and plt.get_fignums() == open_

def test_large_and_tiny_units(tmp_path): # squares of such numbers are none in float32
    x, y = make_blobs(90)
    for unit in (1e-25, 1e18):
        ds = Dataset('u', x*np.float32(unit), y, classes=['$0_$5', '$5_$9', '$9_$'])
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            _, records, _ = run_fit(ds, tmp_path/str(unit), ae_iter=30, max_iter=10)
        assert records[0]['acc'] == 1 and (tmp_path/str(unit)/'contingency.png').exists()
        z = flat(ds.x).astype(float)
        assert np.isfinite(z).all() and z.std(0).min() > unit/100
    with config_context(transform_output='pandas'):
        assert isinstance(flat(x), np.ndarray) and not flat(x[:1]).any()
        run_fit(ds, tmp_path/'frames', ae_iter=5, max_iter=5)

def test_pictures_of_another_shape_are_another_job(tmp_path, monkeypatch):
    x = make_blobs(60)[0]
    run = lambda shape: run_fit(Dataset('p', x, image_shape=shape), tmp_path/'o', 3, 'ConvDEC',
                                ae_iter=5, max_iter=5)
    monkeypatch.setattr(command_line.Checkpoint, 'clear', lambda ck: None)      # as if it was killed
    for shape in ((2, 8), (8, 2)): run(shape)
    assert len([*(tmp_path/'o').glob('.checkpoint-*.pt')]) == 2

def test_predict_names_its_file_by_the_data(cli, tmp_path, blobs, model):
    (tmp_path/'assignments.csv').write_text('mine')
    r = cli('dec_predict', model, 'blobs.npz')
    assert r.returncode == 0 and 'written to assignments-blobs.csv' in r.stdout, r.stderr
    assert (tmp_path/'assignments.csv').read_text() == 'mine'
    assert (tmp_path/'assignments-blobs.csv').read_text().startswith('row,cluster,confidence')

def test_race_complains(cli, tmp_path):
    check_complaint(cli('dec_bench', '--race', 'minst'), 'dec_bench', "did you mean 'mnist'")
    np.save(tmp_path/'t.npy', np.eye(9))
    check_complaint(cli('dec_bench', '--race', 't.npy'), 'dec_bench', 'has no classes')

# through the whole command: a sentence or a result, never a traceback
def test_fuzzed_files(cli, tmp_path):
    r, ends = np.random.default_rng(11), []
    from test_data import make_all, mutate
    for f in make_all(tmp_path):
        raw = f.read_bytes()
        for i in range(4):
            f.write_bytes(mutate(raw, r))
            got = cli('dec_fit', f.name, '--n_clusters', 2, '--ae_iter', 5, '--max_iter', 5,
                      '--out', f'out-{f.name}-{i}')
            assert 'Traceback' not in got.stderr and (got.returncode == 0 or got.stderr.strip(
                ).splitlines()[-1].startswith('dec_fit: ')), got.stderr[-2000:]
            ends.append(got.returncode)
    assert len(ends) == 28 and 0 < sum(map(bool, ends))


def test_from_python_commands_are_functions(monkeypatch):
    "They raise errors, and do not read what belongs to the program that calls them"
    monkeypatch.setattr(sys, 'argv', ['ipykernel_launcher.py', '-f', 'kernel.json'])
    with pytest.raises(DecError, match="did you mean 'mnist'"): dec_fit('minst')
    with pytest.raises(TypeError, match='missing 2 required'): dec_predict()
