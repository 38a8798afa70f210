"Folders of pictures, texts and mixed tables: from the shell and from Python"
import io, json
from contextlib import redirect_stdout
from functools import cache, partial
import numpy as np, pandas as pd, pytest, torch
from PIL import Image
from sklearn.datasets import load_digits
from torchvision.models._api import Weights, WeightsEnum, register_model
from torchvision.transforms._presets import ImageClassification
from conftest import files
from dec_tutorial.command_line import dec_fit, dec_predict
from dec_tutorial.data import DecError
from dec_tutorial.practice.inputs import prepare_table, read_points

brief = dict(dims=(8, 4), ae_iter=20, max_iter=20, update_interval=10)
flags = '--n-clusters 2 --dims 8,4 --ae_iter 20 --max_iter 20 --update_interval 10 --out o'.split()

def make_pictures(folder, n=40): # of two digits, in sub-folders, of several sizes
    x, y = load_digits(n_class=2, return_X_y=True)
    for i in range(n):
        there = folder/f'digit {y[i]}'
        there.mkdir(parents=True, exist_ok=True)
        img = Image.fromarray((16*x[i].reshape(8, 8)).clip(0, 255).astype(np.uint8))
        img.resize((8 + i % 3, 9)).save(there/f'{i:02}.png')
    return folder

def make_texts(folder, n=40): # of two subjects
    rng = np.random.default_rng(0)
    for i in range(n):
        words = ('rain wind cloud storm sun', 'bread butter cheese honey jam')[i % 2].split()
        (folder/f'{i % 2}').mkdir(parents=True, exist_ok=True)
        (folder/f'{i % 2}'/f'{i:02}.txt').write_text(' '.join(rng.choice(words, 8)))
    return folder

def make_lines(path, n=40):
    texts = make_texts(path.parent/'for lines', n)
    path.write_text('\n\n'.join(f.read_text() for f in sorted(texts.rglob('*.txt'))))
    return path

def mixed(n=60): # two kinds of customers
    rng, kind = np.random.default_rng(0), np.arange(n) % 2
    return pd.DataFrame(dict(
        customer_id=rng.permutation(n) + 1000, age=rng.normal(30 + 30*kind, 3).round(1),
        spent=np.exp(rng.normal(3, 2, n)), visits=rng.integers(1, 4, n),
        channel=np.where(kind, 'shop', 'app'), member=kind == 1,
        since=np.where(kind, '2024-01-31', '2026-11-01'), country='PT'))

def make_table(path):
    frame = mixed()
    if path.suffix == '.parquet': frame.to_parquet(path, index=False)
    elif path.suffix == '.xlsx': frame.to_excel(path, index=False)
    else: frame.to_csv(path, index=False)
    return path

kinds = dict(pictures=(make_pictures, 'photos', '--size 8 --folder-classes --copy-into s'),
             texts=(make_texts, 'texts', '--folder-classes'), lines=(make_lines, 'notes.txt', ''),
             csv=(make_table, 't.csv', '--table'))

@pytest.fixture(scope='module')
def fits(tmp_path_factory):
    "fits(kind): a folder with such points, in its folder o what dec_fit left; and what it printed"
    @cache
    def fit(kind):
        at, (make, name, words) = tmp_path_factory.mktemp(kind), kinds[kind]
        make(at/name)
        with pytest.MonkeyPatch.context() as m, redirect_stdout(io.StringIO()) as printed:
            m.chdir(at)
            m.setattr('sys.argv', ['dec_fit', name, *flags, *words.split()])
            dec_fit()
        return at, printed.getvalue()
    return fit

@pytest.fixture
def fitted(fits, monkeypatch): # the same, and there we are
    def there(kind):
        monkeypatch.chdir(fits(kind)[0])
        return fits(kind)
    return there

class TestKinds:
    @pytest.mark.parametrize('kind', kinds)
    def test_fit_and_predict(self, fitted, tmp_path, kind):
        at, _ = fitted(kind)
        was, page = pd.read_csv('o/assignments.csv'), (at/'o'/'report.html').read_text()
        assert 'What the clusters are' in page
        assert ('set apart by' in page) == (kind != 'pictures')
        dec_predict('o/model.safetensors', kinds[kind][1], out=tmp_path/'new.csv')
        again = pd.read_csv(tmp_path/'new.csv')
        assert again.cluster.tolist() == was.cluster.tolist() and not again.unseen[2:].all()

    @pytest.mark.parametrize('kind, package', [('parquet', 'pyarrow'), ('xlsx', 'openpyxl')])
    def test_tables_of_other_kinds(self, tmp_path, kind, package):
        pytest.importorskip(package)
        csv, other = (read_points(make_table(tmp_path/f't.{k}'), table=True) for k in ('csv', kind))
        assert other.names == csv.names
        np.testing.assert_allclose(other.x, csv.x, rtol=1e-5)

class TestPictures:
    def test_folders_are_classes_if_asked(self, tmp_path):
        make_pictures(tmp_path/'p')
        assert read_points(tmp_path/'p').y is None
        assert read_points(tmp_path/'p', folder_classes=True).classes == ['digit 0', 'digit 1']
        assert read_points(tmp_path/'p', colour=True, size=(6, 5)).image_shape == (3, 6, 5)

    def test_copies_move_and_overwrite_nothing(self, fitted, tmp_path):
        at, printed = fitted('pictures')
        assert 's has the files, sorted by cluster' in printed
        assert files(at/'photos') == files(make_pictures(tmp_path/'photos'))
        assert sorted(f.split('/', 1)[1] for f in files(at/'s')) == files(at/'photos')
        with pytest.raises(DecError, match='not an empty folder'):
            dec_predict('o/model.safetensors', 'photos', copy_into='s')

    def test_other_pictures_are_unseen(self, fitted, tmp_path, capsys):
        noise = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
        (tmp_path/'new').mkdir()
        for name, img in dict(noise=noise, white=0*noise + 255).items():
            Image.fromarray(img).save(tmp_path/'new'/f'{name}.png')
        fitted('pictures')
        dec_predict('o/model.safetensors', tmp_path/'new', out=tmp_path/'new.csv')
        said = capsys.readouterr().out
        assert "don't trust their clusters (2): noise.png, white.png" in said

class Tiny_Weights(WeightsEnum):
    DEFAULT = Weights('https://nowhere.invalid/tiny-0.pth',
                      partial(ImageClassification, crop_size=8, resize_size=8), {})

@register_model()
def tiny(*, weights: Tiny_Weights | None = None):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.AdaptiveAvgPool2d(1),
                               torch.nn.Flatten(), torch.nn.Linear(6, 2))

class TestFeatures:
    @pytest.fixture
    def photos(self, tmp_path, monkeypatch):
        monkeypatch.setenv('TORCH_HOME', str(tmp_path/'home'))
        monkeypatch.chdir(make_pictures(tmp_path/'p').parent)
        return tmp_path

    def test_network(self, photos, capsys):
        with pytest.raises(DecError, match=r'put https://nowhere.* at .*/checkpoints/tiny-0.pth'):
            read_points('p', features='tiny')
        (photos/'home'/'hub'/'checkpoints').mkdir(parents=True, exist_ok=True)
        torch.save(tiny().state_dict(), photos/'home'/'hub'/'checkpoints'/'tiny-0.pth')
        assert read_points('p', features='tiny').x.shape == (40, 6)
        dec_fit('p', n_clusters=2, out='o', features='tiny', **brief)
        dec_predict('o/model.safetensors', 'p')
        assert (photos/'o'/'top.png').exists()
        assert (pd.read_csv('assignments-p.csv').cluster
                == pd.read_csv('o/assignments.csv').cluster).all()

    def test_file(self, photos):
        np.save('v.npy', np.random.default_rng(0).random((40, 5), np.float32))
        dec_fit('p', n_clusters=2, out='o', features='v.npy', **brief)
        with pytest.raises(DecError, match='--features'): dec_predict('o/model.safetensors', 'p')
        dec_predict('o/model.safetensors', 'p', features='v.npy')
        np.save('v.npy', np.ones((3, 5), np.float32))
        with pytest.raises(DecError, match='3 rows'): read_points('p', features='v.npy')
        with pytest.raises(DecError, match='resnet18'): read_points('p', features='resnot')

class TestTable:
    def test_types(self):
        how = prepare_table(mixed())[1]
        assert {c['column']: c['type'] for c in how} == dict(
            customer_id='identifier', age='numbers', spent='numbers', visits='numbers', channel='words',
             member='truth values', since='dates', country='words')
        done = {c['column']: c['done'] for c in how}
        assert done['country'] == 'left out: the same in every row' and 'tail' in done['spent']

    def test_numbers_are_on_one_scale_and_words_are_zeros_and_ones(self):
        x = prepare_table(mixed())[0]
        v = x[['age', 'spent', 'since']].to_numpy(float)
        assert np.allclose([v.mean(0), v.std(0)], [[0]*3, [1]*3], atol=1e-5)
        assert {*x['channel = app']} == {*x['member']} == {0, 1}

    def test_missing_cells(self):
        frame = mixed()
        frame.loc[:4, ['age', 'channel', 'since']] = None
        with pytest.raises(DecError, match="'age' has 5 cells without a value.*--fill"):
            prepare_table(frame)
        x, how = prepare_table(frame, fill=True)
        assert x.notna().all().all() and x['channel = missing'].sum() == 5
        assert prepare_table(frame[:1], how)[0].notna().all().all()

    def test_new_words_are_no_error(self):
        how = prepare_table(mixed())[1]
        new = prepare_table(mixed().assign(channel='phone'), how)[0]
        assert not new[['channel = app', 'channel = shop']].any(axis=None)

    def test_dropped_columns_and_a_feature_called_target(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        mixed().rename(columns={'age': 'target'}).to_csv('t.csv', index=False)
        dec_fit('t.csv', table=True, drop='channel,since', classes='none', n_clusters=2, out='o',
                **brief)
        printed = capsys.readouterr().out
        assert 'left out: hardly a value repeats' in printed and 'channel' not in printed
        [*_, record] = json.loads((tmp_path/'o'/'record.json').read_text())
        assert ' --drop channel,since' in record['command']
        dec_predict('o/model.safetensors', 't.csv', out='new.csv')
        assert (pd.read_csv('new.csv').cluster == pd.read_csv('o/assignments.csv').cluster).all()

    @pytest.mark.parametrize('change, says', [(dict(age=None), "'age' has 60 cells"),
                                              (dict(since=3), 'where dates were fitted')])
    def test_new_rows(self, change, says):
        how = prepare_table(mixed())[1]
        with pytest.raises(DecError, match=says): prepare_table(mixed().assign(**change), how)

    def test_no_folder_to_sort_is_said_at_once(self, tmp_path):
        with pytest.raises(DecError, match='no folder of files'):
            dec_fit(make_table(tmp_path/'t.csv'), copy_into='s')

class TestTexts:
    def test_words_tell_the_clusters(self, fitted, tmp_path, capsys):
        assert 'cluster 0: ' in fitted('lines')[1]
        (tmp_path/'new.txt').write_text('rain wind sun\nxylophone kazoo')
        dec_predict('o/model.safetensors', tmp_path/'new.txt', out=tmp_path/'new.csv')
        assert 'line 2: xylophone kazoo' in capsys.readouterr().out

    @pytest.mark.parametrize('text, says', [(b'a\nb\n', 'hardly a word'),
                                            (b'caf\xe9', 'not UTF-8')])
    def test_useless(self, tmp_path, text, says):
        (tmp_path/'n.txt').write_bytes(text)
        with pytest.raises(DecError, match=says): read_points(tmp_path/'n.txt')
