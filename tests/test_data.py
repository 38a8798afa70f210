"""What comes from outside: the benchmarks' original files, tables of one's own, and everything
that can be wrong with them, with arguments and with model files"""
import bz2, dataclasses, errno, hashlib, io, json, math, os, pickle, re, shutil, struct, subprocess, sys, urllib.error, urllib.request, warnings, zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np, pandas as pd, pytest, torch, torchvision
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import sparse
from sklearn.exceptions import NotFittedError
from conftest import make_blobs
from dec_tutorial.inside import reading
from dec_tutorial.data import (Dataset, DecError, as_image, load_data, scale_factor,
                               show_samples)
from dec_tutorial.inside.reading import atomic_path, check_offset, check_x, check_y, hog_colour
from dec_tutorial.dec import DEC, RECIPES, Recipe
from dec_tutorial.model_file import _seal
from dec_tutorial.sae import AutoEncoder
from dec_tutorial.checkpoint import Checkpoint
from dec_tutorial.training import Rows, Stage

rng = np.random.default_rng(0)
brief = lambda v: re.sub(r'\s+', ' ', str(v))[:50]

@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    "No network, and no folder but the test's own"
    def refuse(*_, **__): raise urllib.error.URLError('blocked')
    monkeypatch.setattr(urllib.request, 'urlopen', refuse)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    monkeypatch.delenv('DEC_TUTORIAL_DATA', raising=False)

def refused(f, *words):
    "`f()` raises DecError and nothing else; the message is one line that holds all `words`"
    with pytest.raises(DecError) as e: f()
    message = str(e.value)
    assert '\n' not in message and len(message) < 800, message
    for w in words: assert str(w) in message, message
    return True

# --- the benchmarks, from their original files ---

def pixels(*shape): return rng.integers(0, 256, shape, dtype=np.uint8)

def idx(path, a): # big-endian: two zero bytes, type, dimensions; the sizes; the bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f'>HBB{a.ndim}I', 0, 8, a.ndim, *a.shape) + a.tobytes())

def make_mnist(root, folder='MNIST'):
    x, y = pixels(7, 28, 28), np.array([5, 0, 4, 1, 9, 2, 3], np.uint8)
    for part, s in (('train', slice(0, 4)), ('t10k', slice(4, 7))):
        idx(root/folder/'raw'/f'{part}-images-idx3-ubyte', x[s])
        idx(root/folder/'raw'/f'{part}-labels-idx1-ubyte', y[s])
    return x, y

@pytest.mark.parametrize('name, folder', [('mnist', 'MNIST'), ('fashion', 'FashionMNIST')])
def test_mnist(tmp_path, name, folder):
    x, y = make_mnist(tmp_path, folder)
    ds = load_data(name, root=tmp_path, download=False)
    assert (ds.name == name and ds.image_shape == (28, 28) and ds.n_train == 60_000
            and ds.x.dtype == np.float32)
    # training part first
    np.testing.assert_array_equal(ds.x, x.reshape(7, 784).astype(np.float32)/255)
    np.testing.assert_array_equal(ds.y, [5, 0, 4, 1, 6, 2, 3])         # 9, the largest of the seven

def test_usps(tmp_path):
    # libsvm's own: pixels in [-1, 1], classes from 1
    x, y = rng.uniform(-1, 1, (6, 256)).round(3), [7, 1, 10, 2, 1, 3]
    lines = [f'{c} ' + ' '.join(f'{j+1}:{v}' for j, v in enumerate(r)) + '\n' for r, c in zip(x, y)]
    for name, part in (('usps.bz2', lines[:4]), ('usps.t.bz2', lines[4:])):
        (tmp_path/name).write_bytes(bz2.compress(''.join(part).encode()))
    ds = load_data('usps', root=tmp_path, download=False)
    assert ds.image_shape == (16, 16) and ds.n_train == 7_291
    np.testing.assert_allclose(ds.x, (x + 1)/2, atol=1/255)      # torchvision keeps 256 grey levels
    np.testing.assert_array_equal(ds.y, np.unique(y, return_inverse=True)[1])

def make_npz(path, n=6, **more): # a table of pictures, as usps.npz and coil20.npz
    x, y = rng.random((n, 4)).astype(np.float32), np.arange(n) % 3
    np.savez(path, **dict(dict(x=x, y=y, image_shape=(2, 2)), **more))
    return x, y

@pytest.mark.parametrize('name', ['usps', 'coil20'])
def test_shared_npz(tmp_path, monkeypatch, name):
    x, y = make_npz(tmp_path/f'{name}.npz')
    monkeypatch.setenv('DEC_TUTORIAL_DATA', str(tmp_path))
    ds = load_data(name)
    assert ds.image_shape == (2, 2) and (ds.x == x).all() and (ds.y == y).all()

def test_folders_in_turn(tmp_path): # the folder given, then the cache
    (tmp_path/'cache'/'dec_tutorial').mkdir(parents=True); (tmp_path/'mine').mkdir()
    cached, _ = make_npz(tmp_path/'cache'/'dec_tutorial'/'usps.npz')
    assert (load_data('usps', root=tmp_path/'mine', download=False).x == cached).all()
    mine, _ = make_npz(tmp_path/'mine'/'usps.npz')
    assert (load_data('usps', root=tmp_path/'mine', download=False).x == mine).all()

def test_stl10(tmp_path, monkeypatch):
    x, y = pixels(5, 3, 96, 96), np.array([1, 10, 2, 3, 1], np.uint8)               # classes from 1
    files = dict(train_X=x[:3], train_y=y[:3], test_X=x[3:], test_y=y[3:], unlabeled_X=x[:1])
    (tmp_path/'stl10_binary').mkdir()
    # pictures lie column by column
    raw = {f'{k}.bin': (v.transpose(0, 1, 3, 2) if v.ndim == 4 else v).tobytes()
           for k, v in files.items()}
    for k, v in raw.items(): (tmp_path/'stl10_binary'/k).write_bytes(v)
    # the checksums of our files instead of the published ones
    for part in ('train_list', 'test_list'):
        monkeypatch.setattr(torchvision.datasets.STL10, part,
                            [[f, hashlib.md5(raw[f]).hexdigest()]
                             for f, _ in getattr(torchvision.datasets.STL10, part)])
    ds = load_data('stl10', root=tmp_path, download=False)
    assert ds.image_shape == (3, 96, 96) and ds.n_train == 5_000
    np.testing.assert_array_equal(ds.x, x.reshape(5, -1).astype(np.float32)/255)
    np.testing.assert_array_equal(ds.y, [0, 3, 1, 2, 0])
    (tmp_path/'stl10_binary'/'train_X.bin').write_bytes(raw['train_X.bin'][:-1])
    assert refused(lambda: load_data('stl10', root=tmp_path, download=False), 'stl10', tmp_path)

def test_stl10_features(tmp_path, monkeypatch):
    x, y = pixels(6, 3, 96, 96), np.array([2, 1, 10], np.uint8)
    files = dict(train_X=x[:2], train_y=y[:2], test_X=x[2:3], test_y=y[2:], unlabeled_X=x[3:])
    (tmp_path/'stl10_binary').mkdir()
    raw = {f'{k}.bin': (v.transpose(0, 1, 3, 2) if v.ndim == 4 else v).tobytes()
           for k, v in files.items()}
    for k, v in raw.items(): (tmp_path/'stl10_binary'/k).write_bytes(v)
    for part in ('train_list', 'test_list'):
        monkeypatch.setattr(torchvision.datasets.STL10, part,
                            [[f, hashlib.md5(raw[f]).hexdigest()]
                             for f, _ in getattr(torchvision.datasets.STL10, part)])
    ds = load_data('stl10_hog', root=tmp_path, download=False)
    assert (ds.x.shape, ds.more.shape, ds.n_train, ds.image_shape) == ((3, 1428), (3, 1428), None,
                                                                       None)
    np.testing.assert_array_equal(ds.y, [1, 0, 2])
    # Cr, as ITU-R BT.601 has it
    both = np.vstack([ds.x, ds.more])
    grey = (x.transpose(0, 2, 3, 1)/255.)@[112., -93.786, -18.214]/10
    np.testing.assert_allclose(both[:, 1300::2],
                               grey.reshape(6, 8, 12, 8, 12).mean((2, 4)).reshape(6, 64), atol=2e-3)
    assert .1 < both[:, :1300].mean()/10 + .2 < .4
    shutil.rmtree(tmp_path/'stl10_binary')                               # what was computed is kept
    again = load_data('stl10_hog', root=tmp_path, download=False)
    for a, b in ((ds.x, again.x), (ds.y, again.y), (ds.more, again.more)):
        np.testing.assert_array_equal(a, b)
    monkeypatch.setitem(sys.modules, 'skimage', None)
    assert refused(lambda: hog_colour(x[0].transpose(1, 2, 0)), 'dec-tutorial[stl10]')

def test_more_points_for_the_autoencoder():
    x, more = rng.random((60, 5), dtype=np.float32), rng.random((40, 5), dtype=np.float32)
    dec = lambda: DEC(2, recipe=dataclasses.replace(RECIPES['fast'], scale='none'), ae_iter=20,
                      max_iter=5, random_state=0)
    weights = lambda d: d.autoencoder_.encoder[0].weight.detach().numpy()
    both = dec().fit(x, more=more)
    assert both.labels_.shape == (60,) and both.start_codes_.shape[0] == 60 # they are not clustered
    assert (weights(both) != weights(dec().fit(x))).any()
    assert (weights(dec().fit_autoencoder(x, more=more))
            == weights(dec().fit_autoencoder(np.vstack([x, more])))).all()
    assert refused(lambda: dec().fit(x, more=more[:, :4]), 'more has 4 features', '5')
    assert refused(lambda: dec().fit(x, more=more*np.nan), 'more contains NaN')

def coil_zip(path, names):
    with zipfile.ZipFile(path, 'w') as z:
        for name, v in names:
            png = io.BytesIO(); Image.fromarray(v).save(png, 'png')
            z.writestr(f'coil-20-proc/{name}', png.getvalue())

def test_coil20(tmp_path):
    big = pixels(3, 128, 128)
    coil_zip(tmp_path/'coil-20-proc.zip', [('obj10__0.png', big[2]), ('obj2__10.png', big[1]),
                                           ('obj2__9.png', big[0]), ('readme.png', big[0])])
    # objects, then poses, by number: 9 before 10
    ds = load_data('coil20', root=tmp_path, download=False)
    assert ds.image_shape == (32, 32) and list(ds.y) == [0, 0, 1]
    # each 4 × 4 block averaged
    np.testing.assert_allclose(ds.x, big.reshape(3, 32, 4, 32, 4).mean((2, 4)).reshape(3, -1)/255,
                               atol=1e-6)

def test_rcv1(tmp_path): # as scikit-learn keeps it: four pickled files in the folder RCV1
    import joblib
    from sklearn.datasets._base import _pkl_filepath
    names = np.array(['C11', 'CCAT', 'ECAT', 'GCAT', 'MCAT'], object)
    topics = [[1], [0, 1], [2], [3], [4, 0], [1, 2], [0], [], [3]]  # 5: two root topics; 6, 7: none
    y = sparse.csr_matrix([[int(j in t) for j in range(5)] for t in topics], dtype=np.uint8)
    x = np.zeros((9, 2004), np.float32)
    # 2001 terms are in eight documents,
    for i in range(9): x[i, :2001] = np.roll(np.arange(1, 2002), i)/7*(i != 8)
    # one in two of which one counts, one alone in a document; one nowhere
    x[[0, 5], 2001], x[8, 2002] = 1, 1
    x[0, 3] = 0                                                # so term 3 is the rarest of the 2001
    (tmp_path/'RCV1').mkdir()
    for name, v in dict(samples=sparse.csr_matrix(x), sample_id=np.arange(9), sample_topics=y,
                        topics_names=names).items():
        joblib.dump(v, _pkl_filepath(str(tmp_path/'RCV1'), f'{name}.pkl'))
    ds = load_data('rcv1', root=tmp_path, download=False)
    keep, terms = [0, 1, 2, 3, 4], np.r_[0:3, 4:2001]            # document 8 holds none of the 2000
    assert sparse.issparse(ds.x) and list(ds.y) == [0, 0, 1, 2, 3] and ds.image_shape is None
    want = x[keep][:, terms]
    np.testing.assert_allclose(ds.x.toarray(), want/np.linalg.norm(want, axis=1, keepdims=True),
                               rtol=1e-5)
    few = load_data('rcv1_10k', root=tmp_path, download=False)         # fewer than 10 000 here: all
    assert few.n == 5
    np.savez(tmp_path/'rcv1_10k.npz',
             **{k: getattr(few.x[:3], k) for k in ('data', 'indices', 'indptr', 'shape')},
             y=[2, 0, 1])
    # a file of ours comes first
    assert list(load_data('rcv1_10k', root=tmp_path, download=False).y) == [2, 0, 1]

def test_digits():
    ds = load_data()
    assert ((ds.name, ds.n, ds.d, ds.n_classes, ds.image_shape) == ('digits', 1797, 64, 10, (8, 8))
            and ds.x.min() == 0 and ds.x.max() == 1)

PLACES = dict(mnist='MNIST/raw', fashion='FashionMNIST/raw', usps='usps.npz', stl10='stl10_binary',
              stl10_hog='stl10_binary', coil20='coil20.npz', rcv1='rcv1.npz',
              rcv1_10k='rcv1_10k.npz')

@pytest.mark.parametrize('download', [False, True])
@pytest.mark.parametrize('name', PLACES)
def test_missing_benchmark_says_what_to_put_where(tmp_path, name, download):
    assert refused(lambda: load_data(name, root=tmp_path, download=download), name, 'is not in',
                   tmp_path, PLACES[name], 'DEC_TUTORIAL_DATA', 'download')
    assert not [f for f in tmp_path.rglob('*') if f.is_file()]        # and leaves no half of a file

@pytest.mark.parametrize('download', [False, True])
@pytest.mark.parametrize('size', [2, 9, -1]) # in its magic number, in its sizes, in its last byte
@pytest.mark.parametrize('part', ['train-images-idx3-ubyte', 't10k-labels-idx1-ubyte'])
def test_truncated_mnist(tmp_path, part, size, download):
    make_mnist(tmp_path)
    file = tmp_path/'MNIST'/'raw'/part
    file.write_bytes(file.read_bytes()[:size])
    assert refused(lambda: load_data('mnist', root=tmp_path, download=download), 'mnist', tmp_path,
                   'damaged')

def test_what_is_not_installed_is_no_damage(tmp_path, monkeypatch):
    make_mnist(tmp_path)
    monkeypatch.setitem(sys.modules, 'torchvision', None)
    assert refused(lambda: load_data('mnist', root=tmp_path, download=False), 'torchvision',
                   'cannot be imported')
    monkeypatch.setitem(sys.modules, 'skimage', None)          # told before 2.6 GB are downloaded
    for download in (False, True):
        assert refused(lambda: load_data('stl10_hog', root=tmp_path, download=download),
                       'dec-tutorial[stl10]')

def test_a_folder_that_may_not_be_read_is_passed_over(tmp_path):
    def get(root, download):
        if root == tmp_path/'a': raise PermissionError(13, 'Permission denied')
        return root
    assert reading._fetch('rcv1', get, [tmp_path/'a', tmp_path/'b'], False) == tmp_path/'b'

def test_other_damaged_benchmarks(tmp_path):
    load = lambda name: load_data(name, root=tmp_path, download=False)
    for name, data in (('usps.bz2', bz2.compress(b'1 1:0.5\n'*2000)[:-9]),
                       ('usps.npz', b'PK\x03\x04'), ('coil-20-proc.zip', b'PK\x03\x04'),
                       ('coil20.npz', b'')):
        (tmp_path/name).write_bytes(data)
        assert refused(lambda: load('usps' if 'usps' in name else 'coil20'), tmp_path, 'damaged')
        (tmp_path/name).unlink()
    make_npz(tmp_path/'usps.npz', y=np.arange(5))
    assert refused(lambda: load('usps'), 'y has shape (5,)', '6 points')
    coil_zip(tmp_path/'coil-20-proc.zip', [('readme.png', pixels(32, 32))])
    assert refused(lambda: load('coil20'), 'damaged', 'no pictures')
    make_mnist(tmp_path)
    idx(tmp_path/'MNIST'/'raw'/'t10k-labels-idx1-ubyte', np.zeros(9, np.uint8))
    assert refused(lambda: load('mnist'), 'y has shape (13,)', '7 points')

# --- tables of one's own ---

def test_npz(tmp_path):
    f = tmp_path/'t.npz'
    x, y = make_npz(f)
    ds = load_data(f)
    assert (isinstance(ds, Dataset) and (ds.name, ds.image_shape, ds.n_train) == ('t', (2, 2), None)
            and (ds.x == x).all() and (ds.y == y).all())
    # any numbers, any names
    np.savez(f, x=(9*x).astype(np.int64), y=np.array(['b', 'a', 'b', 'c', 'a', 'b']))
    ds = load_data(str(f))
    assert ds.x.dtype == np.float32 and list(ds.y) == [1, 0, 1, 2, 0, 1] and ds.image_shape is None
    np.savez_compressed(f, x=x)
    assert load_data(f).y is None and load_data(f).n_classes is None

def make_csr(path, **change):
    rng = np.random.default_rng(1)
    m = sparse.csr_array(rng.random((6, 5))*(rng.random((6, 5)) < .5))
    np.savez(path, **dict(dict(data=m.data, indices=m.indices, indptr=m.indptr, shape=m.shape,
                               y=np.arange(6) % 2), **change))
    return m

@pytest.mark.parametrize('kind', ['csc', 'bsr'])
def test_an_index_beyond_the_shape_is_no_crash(tmp_path, kind):
    m = sparse.csr_matrix(np.eye(6, dtype=np.float32)).asformat(kind)
    m.indices[0] = 50_000_000
    sparse.save_npz(tmp_path/'x.npz', m)
    assert refused(lambda: load_data(tmp_path/'x.npz'), 'damaged')

def test_csr_stays_sparse(tmp_path):
    m = make_csr(tmp_path/'t.npz')
    ds = load_data(tmp_path/'t.npz')
    assert (sparse.issparse(ds.x) and ds.x.format == 'csr' and ds.x.dtype == np.float32
            and list(ds.y) == [0, 1]*3)
    np.testing.assert_allclose(ds.x.toarray(), m.toarray(), rtol=1e-6)
    rows = Rows(ds.x, 2.)
    assert sparse.issparse(rows.x)
    torch.testing.assert_close(rows[torch.tensor([3, 1])],
                               torch.from_numpy(2*ds.x.toarray()[[3, 1]]))

@pytest.mark.parametrize('kind', ['csr', 'csc', 'coo', 'bsr', 'dia'])
def test_every_format_of_save_npz(tmp_path, kind):
    x = sparse.random(6, 6, .4, format='csr', random_state=0, dtype=np.float32)
    sparse.save_npz(tmp_path/'x.npz', x.asformat(kind))
    got = load_data(tmp_path/'x.npz').x
    assert got.format == 'csr' and (got != x).nnz == 0

def test_colours_in_bytes_are_shown():
    bytes = np.arange(27)*9
    assert np.allclose(as_image(bytes, (3, 3, 3)), as_image(bytes/255, (3, 3, 3)))

def test_a_table_has_no_pictures_to_show():
    table = Dataset('t', np.zeros((3, 8), np.float32))
    assert refused(lambda: show_samples(table), 't: ', 'image_shape')
    assert len(show_samples(dataclasses.replace(table, image_shape=(2, 4)), 1, 1).axes) == 1

def test_npy(tmp_path):
    x = pixels(5, 4, 6)
    np.save(tmp_path/'stack.npy', x)                                           # a stack of pictures
    ds = load_data(tmp_path/'stack.npy')
    assert ds.image_shape == (4, 6) and (ds.x == x.reshape(5, 24)).all() and ds.y is None
    # other byte and memory orders
    np.save(tmp_path/'table.npy', np.asfortranarray(x[0].astype('>f8')))
    ds = load_data(tmp_path/'table.npy')
    assert ds.image_shape is None and (ds.x == x[0]).all() and ds.x.flags.c_contiguous

@pytest.mark.parametrize('colours', [1, 3, 4])
def test_colours_may_come_last(tmp_path, colours):
    x = pixels(5, 6, 7, colours)
    np.save(tmp_path/'stack.npy', x)
    ds = load_data(tmp_path/'stack.npy')
    shown = as_image(ds.x[2], ds.image_shape)*255                                # as matplotlib wants it
    assert ds.image_shape == (colours, 6, 7) and (shown.round() == x[2]).all()
    np.save(tmp_path/'stack.npy', np.moveaxis(x, -1, 1))
    assert (load_data(tmp_path/'stack.npy').x == ds.x).all()

def test_what_has_no_colours_is_no_picture(tmp_path):
    np.save(tmp_path/'stack.npy', pixels(5, 6, 7, 2))
    assert load_data(tmp_path/'stack.npy').image_shape is None

@pytest.mark.parametrize('text, y', [
    ('1,2,3\n4,5,6\n', None),
    ('a,b,c\n1,2,3\n4,5,6\n', None),
    ('a,b,c,class\n1,2,3, x\n4,5,6,x \n', [0, 0]),                    # blanks are no part of a name
    ('a,Label,b,c\n1,x,2,3\n4,w,5,6\n', [1, 0]),                  # the label column stands anywhere
    # quotes, CRLF, an empty line, no newline at the end
    ('"a","b, too","c"\r\n"1","2","3"\r\n\r\n4,5,6', None),
    ('\ufeffclass,a,b,c\n7,1,2,3\n7,4,5,6\n', [0, 0]),                     # what spreadsheets write
    ('labels,a,b,c\n1,1,2,3\n0,4,5,6\n', [1, 0]), ('a,b,c,Classes\n1,2,3,x\n4,5,6,w\n', [1, 0]),
    ('\ufeff1,2,3\n4e0,+5, 6\n', None)])
def test_csv(tmp_path, text, y):
    (tmp_path/'t.csv').write_bytes(text.encode('utf-8'))
    ds = load_data(tmp_path/'t.csv')
    np.testing.assert_array_equal(ds.x, [[1, 2, 3], [4, 5, 6]])
    assert (ds.y is None) if y is None else list(ds.y) == y

def test_a_line_that_may_number_the_columns(tmp_path):
    for first, words in (('1,2,3', '1 to 3'), ('2019,2020,2021', '2019 to 2021')):
        (tmp_path/'t.csv').write_text(f'{first}\n4,5,6\n')
        with pytest.warns(UserWarning, match=f'the first line, {words}, is read as a point'):
            ds = load_data(tmp_path/'t.csv')
        assert ds.n == 2 and ','.join(f'{v:g}' for v in ds.x[0]) == first
    rows = '\n0.4,5,6\n0.5,4,7\n0.6,4,5\n0.4,3,6\n'
    for first in ('1990,2000,2010', '2021,2020,2018', '400.1,400.2,400.5'):   # far from all others
        (tmp_path/'t.csv').write_text(first + rows)
        with pytest.warns(UserWarning, match='is read as a point; if it names'):
            assert load_data(tmp_path/'t.csv').n == 5
    for text in ('1,3,5\n4,5,6\n', f'0.5,2000,2010{rows}', '9\n' + '1\n2\n'*4, '1,3\n'*9):
        (tmp_path/'t.csv').write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            load_data(tmp_path/'t.csv')

def test_an_underscore_makes_no_number(tmp_path): # Python reads 2020_01 as 202001
    (tmp_path/'t.csv').write_text('1_1,1_5\n1,2\n3,4\n')
    ds = load_data(tmp_path/'t.csv')
    assert ds.n == 2 and list(ds.names) == ['1_1', '1_5']
    (tmp_path/'t.csv').write_text('month,sum\n2020_01,2\n2020_02,4\n')
    with pytest.raises(DecError, match=r"'2020_01' at data row 0, column 0 \(month\) is not a num"):
        load_data(tmp_path/'t.csv')

def test_classes_keep_their_names(tmp_path):
    def classes(cells):
        (tmp_path/'t.csv').write_text('a,label\n'
                                      + ''.join(f'{i},{c}\n' for i, c in enumerate(cells)))
        ds = load_data(tmp_path/'t.csv')
        return ds.y.tolist(), ds.classes
    # not in the order of the alphabet
    assert classes([10, 2, 9, 10]) == ([2, 0, 1, 2], ['2', '9', '10'])
    assert classes(['wolf', ' cat', 'wolf', 'cat']) == ([1, 0, 1, 0], ['cat', 'wolf'])

# --- scales ---

@pytest.mark.parametrize('size', [1e-30, 1e-9, 1., 1e9, 1e30])
def test_paper_scale(size): # mean ‖x‖²/d = 1 of what training really sees, dense or sparse
    x = (rng.standard_normal((40, 7))*(rng.random((40, 7)) < .4)*size).astype(np.float32)
    for data in (x, sparse.csr_matrix(x)):
        rows = Rows(check_x(data), scale_factor(check_x(data), 'paper'))
        seen = torch.cat(list(rows.chunks(16)))
        assert seen.dtype == torch.float32 and rows.held != sparse.issparse(data)
        assert seen.double().square().sum(1).mean().item()/7 == pytest.approx(1, rel=1e-5)

def test_other_scales():
    x = rng.random((9, 4)).astype(np.float32)
    text = sparse.csr_matrix(np.float32([[.6, 0, .8], [0, 1, 0]]))
    assert (scale_factor(x, 'authors') == 5.1 and scale_factor(text, 'authors')
            == pytest.approx(math.sqrt(3)) and scale_factor(x, 'none') == 1)
    for bad, what in ((9*x, '[0, 1]'), (-x, '[0, 1]'), (text*2, 'unit length')):
        assert refused(lambda: scale_factor(bad, 'authors'), what)
    assert refused(lambda: scale_factor(0*x), 'zero')
    assert refused(lambda: scale_factor(sparse.csr_matrix((4, 3), dtype=np.float32)), 'zero')
    assert refused(lambda: scale_factor(x, 'big'), "'big'", "'paper'")

# SciPy allows them; the scale must be that of the same matrix written out
def test_repeated_cells_of_a_sparse_matrix_are_summed():
    m = sparse.csr_matrix((np.float32([1, 1, 1]), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    # the matrix given stays as it is
    assert (scale_factor(check_x(m)) == pytest.approx(scale_factor(check_x(m.toarray())))
            and m.nnz == 3)
    assert refused(lambda: check_x(sparse.csr_matrix((np.float32([3e38, 3e38]), [0, 0], [0, 2]),
                                                     shape=(1, 2))), 'row 0, column 0')

# --- bad points, bad classes ---

def put(value, dtype=np.float64): x = np.ones((4, 3), dtype); x[2, 1] = value; return x

@pytest.mark.parametrize('value, word', [(np.nan, 'NaN'), (np.inf, 'infinity'),
                                         (-np.inf, 'infinity'), (1e39, 'too large for float32')])
def test_bad_cells_are_named(value, word):
    assert refused(lambda: check_x(put(value)), word, 'row 2, column 1', '1 such cell')
    assert refused(lambda: check_x(put(value).tolist()), word, 'row 2, column 1')
    assert (
        refused(lambda: check_x(sparse.csr_matrix(put(value) - sparse.csr_matrix(np.ones((4, 3))))),
                word, 'row 2, column 1'))
    assert refused(lambda: DEC(2).fit(put(value)), word, 'row 2, column 1')

@pytest.mark.parametrize('x, word', [
    ([['a', 'b']], 'not real numbers'), (np.array([[{}, 1]], object), 'not real numbers'),
    (put(None, object), 'row 2, column 1'),
    ([[1, 2], [3]], 'rows of different lengths'), ([['inhomogeneous', '1']], 'not real numbers'),
    (np.ones((2, 2), complex), 'complex'),
    (sparse.csr_matrix(np.ones((2, 2), complex)), 'complex'),
    (np.zeros((2, 2), [('a', 'f4'), ('b', 'f4')]), 'not real numbers'),
    (np.array([['2020-01-01', 'NaT']], 'M8[D]'), 'not real numbers'),
    (put(10**400, object), 'not real numbers'),
    (np.ones(5), '(5,)'), (np.ones((2, 2, 2)), '(2, 2, 2)'), (3., 'shape'), (None, 'shape'),
    ([], 'shape'), (np.ones((0, 3)), '0 sample(s)'), (np.ones((3, 0)), '0 feature(s)'),
    (sparse.csr_matrix((0, 3)), '0 sample(s)'), (sparse.coo_array(np.ones(3)), 'shape')],
    ids=brief)
def test_bad_points(x, word): assert refused(lambda: check_x(x, 'the table'), 'the table', word)

def test_a_sparse_cube():
    try: cube = sparse.coo_array(np.ones((2, 2, 2)))
    except ValueError: pytest.skip('SciPy has none before 1.15')
    assert refused(lambda: check_x(cube, 'the table'), 'the table', 'shape')

def test_frames():
    frame = lambda **columns: pd.DataFrame(columns)
    whole = frame(a=pd.array([1, 2, 3], dtype='Int64'), b=pd.array([.5, 1, 2], dtype='Float32'))
    assert check_x(whole).tolist() == [[1, .5], [2, 1], [3, 2]]
    assert check_x(frame(a=['1', '2'], b=[1, 2]).astype(dict(a='category'))).tolist() == [[1, 1],
                                                                                          [2, 2]]
    for column in (pd.array([1, None, 3], dtype='Int64'), pd.array([1., None, 3], dtype='Float64'),
                   pd.array([True, None, True], dtype='boolean'), [1, None, 3]):
        assert refused(lambda: check_x(frame(b=[1, 2, 3], a=column)), 'NaN at row 1, column 1')
    thin = check_x(pd.DataFrame.sparse.from_spmatrix(sparse.eye(3)))
    assert sparse.issparse(thin) and thin.dtype == np.float32
    assert (thin.toarray() == np.eye(3)).all()
    for column in (['red', 'x', 'y'], pd.to_datetime(['2020-01-01']*3), [1j, 2, 3]):
        assert refused(lambda: check_x(frame(a=column, b=[1, 2, 3])), 'not real numbers')
        assert refused(lambda: check_x(frame(b=[1, 2, 3], a=column)), "in column 'a'")
    assert refused(lambda: check_x(frame(b=[1, 2, 3], a=[1, 2, None])), "column 1, 'a'")
    assert refused(lambda: check_x(frame(a=[], b=[])), '0 sample(s)')
    assert refused(lambda: check_x(pd.DataFrame(index=range(3))), '0 feature(s)')

far = 1_700_000_000 + 60*np.arange(40)%600
@pytest.mark.parametrize('x', [
    np.c_[far, np.arange(40)], np.c_[far, np.arange(40)].astype(np.int32),
    np.c_[far, np.arange(40)].astype(object), sparse.csr_matrix(np.c_[far, np.arange(40.)]),
    pd.DataFrame(dict(t=far, b=np.arange(40) > 20)), pd.DataFrame(dict(t=far, v=1.)).convert_dtypes()
    ], ids=['int64', 'int32', 'object', 'CSR', 'with bool', 'nullable'])
def test_columns_that_float32_would_forget(x):
    assert refused(lambda: check_offset(x), 'column 0', 'float32')
    assert refused(lambda: DEC(2, ae_iter=1, max_iter=1).fit(np.ones((40, 2)), more=x), 'more')

@pytest.mark.parametrize('x', [np.arange(12).reshape(4, 3), np.ones((4, 3), np.float32),
                               np.array([[1, 'a']], object), sparse.eye_array(5, format='coo')])
def test_columns_that_float32_keeps(x): check_offset(x)

@pytest.mark.parametrize('y, word', [
    (np.arange(3), '4 points'), (np.ones((4, 2)), '4 points'), (['x', 'y', ' ', 'x'], 'row 2'),
    (['x', 'y', 'x', 'NaN'], 'row 3'), (5, '4 points'), ([0, 1, np.nan, 1], 'row 2'),
    ([0, 1, 2, np.inf], 'row 3'),
    (np.ones(4, complex), 'complex'), (np.array([{}]*4), 'object'),
    (np.array(['x', None, 'y', 'x'], object), 'row 1'), (np.array([1, 'x', 2, 3], object), 'object'),
    (np.array(['2020-01-01']*4, 'M8[D]'), 'datetime')], ids=brief)
def test_bad_classes(y, word): assert refused(lambda: check_y(y, 4), 'y ', word)

def test_what_pandas_calls_missing_names_no_class():
    for y in (pd.array(['a', pd.NA], dtype='string'), pd.to_datetime(['2020-01-01', None]).astype(object)):
        assert refused(lambda: check_y(y, 2), 'y names no class at row 1')

def test_classes_in_a_column_of_objects(): # as a mixed data frame gives them
    assert check_y(np.array([2, 1, 2.], object), 3).tolist() == [1, 0, 1]
    assert check_y(np.array([['b'], ['a ']], object), 2).tolist() == [1, 0]

@pytest.mark.filterwarnings('error')
def test_infinities_of_both_signs():
    assert refused(lambda: check_x([[np.inf, 1], [-np.inf, 1]]), 'infinity at row 0')

# --- bad files ---

def save(path, **arrays): np.savez(path, **arrays); return path

@pytest.mark.parametrize('arrays, word', [
    (dict(a=np.ones(3)), 'it needs x'), (dict(data=np.ones(3), indices=[0]), 'it needs x'),
    ({}, 'it needs x'),
    (dict(x=np.array([[{}]], object)), 'damaged, incomplete or of another kind'),
    (dict(x=np.ones(3)), '2D'), (dict(x=np.ones((0, 8, 8))), 'shape=(0,'),
    (dict(x=np.float32(3)), '2D'),
    (dict(x=np.ones((2, 2))*1j), 'complex'), (dict(x=put(np.nan)), 'row 2, column 1'),
    (dict(x=np.array([['a', 'b']])), 'not real numbers'),
    (dict(x=put(np.nan).reshape(2, 2, 3)), 'row 1, column 1'),
    (dict(x=np.ones((4, 3)), y=np.ones(3)), '4 points'),
    (dict(x=np.ones((4, 3)), y=put(np.nan)[:, 1]), 'row 2'),
    *((dict(x=np.ones((2, 4)), image_shape=s), 'image_shape')
      for s in ([3, 3], [-2, -2], [4], [2, 2, 1, 1], [2**62 + 1, 4], [0], [2.5, 2], ['a'],
                [np.nan, 2], []))], ids=brief)
def test_bad_npz(tmp_path, arrays, word):
    assert refused(lambda: load_data(save(tmp_path/'t.npz', **arrays)),
                   tmp_path/'t.npz' if 'y' not in arrays else 'y ', word)

m = make_csr(io.BytesIO())
@pytest.mark.parametrize('change', [
    dict(indices=m.indices + 1), dict(indices=m.indices - 1), dict(indices=m.indices[:-1]),
    dict(shape=[-6, 5]), dict(shape=[6]), dict(shape=[6, 5, 1]), dict(shape=[7, 5]),
    dict(shape='a'),
    dict(indptr=m.indptr[::-1]), dict(indptr=m.indptr[:-1]), dict(indptr=m.indptr + 1),
    dict(indptr=m.indptr*0), dict(indptr=np.r_[0, m.nnz, m.indptr[2:]]), dict(indptr=m.indptr - .5),
    dict(data=m.data[None]), dict(data=m.data[1:]), dict(data=m.data.astype(str)),
    dict(data=m.data*1j), dict(data=np.full(m.nnz, np.nan)), dict(data=np.array([{}]*m.nnz))],
                         ids=brief)
def test_bad_csr(tmp_path, change):
    make_csr(tmp_path/'t.npz', **change)
    assert refused(lambda: load_data(tmp_path/'t.npz'), tmp_path/'t.npz')

@pytest.mark.parametrize('text, word', [
    ('', 'empty'), ('\n\n', 'empty'), ('a,b\n', '0 sample(s)'), ('y\n1\n2\n', "no column but 'y'"),
    ('1,2\n3\n', 'data row 1 has 1 cells'), ('a,b\n1,2\n3,4,5\n', 'data row 1 has 3 cells'),
    ('a,b\n1,2\n3,x\n', "'x' at data row 1, column 1 (b)"),
    ('a,b\n1,\n', 'data row 0, column 1 (b) is empty'), ('1;2\n3;4\n', "';' between"),
    ('a\tb\n1\t2\n', "'\\t' between"),
    ('a,y\n1,.5\n2,1\n', "column 'y' would be taken for classes"),
    ('x,target\n' + ''.join(f'{i},{i}\n' for i in range(30)), "column 'target' would be"),
    ('x,label\n' + ''.join(f'{i},img_{i}.png\n' for i in range(30)), "column 'label' would be"),
    ('a,b\n1,2\n3,nan\n', 'row 1, column 1'), ('1e999,2\n', 'row 0, column 0'),
    ('"1,2\n3,4\n', '0 sample(s)'), ('1,2\n\0,3\n', 'data row 1'),
    ('caf\u00e9,b\n1,2\n'.encode('latin-1'), 'save it as UTF-8'),
    ('1,2\n'.encode('utf-16'), 'save it as UTF-8'),
    ('-0,82;6,7\n1,5;2,25\n', "';' between"), (bytes(range(256)), 'damaged'),
    ('0,1,2\n4,5,6\n', 'counts from 0 to 2'),
    (',a,b\n7,1,2\n9,4,5\n', 'the first column has no name'),
    ('Unnamed: 0,a\n0,1\n1,4\n', 'the first column has no name'),
    ('t,a\n1700000000,1\n1700000020,4\n', 'column 0 of'),
    ('a,class,target\n1,0,0\n2,1,1\n', "columns 'class' and 'target'"),
    ('Labels,a,y\n1,0,0\n2,1,1\n', "columns 'Labels' and 'y'"),
    # the first line is a point with a bad cell, not a header to be thrown away
    ('1,,3\n4,5,6\n7,8,9\n', 'column 1'), ('5.1,3.5,oops\n4.9,3.0,0\n', 'column 2')])
def test_bad_csv(tmp_path, text, word):
    (tmp_path/'t.csv').write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refused(lambda: load_data(tmp_path/'t.csv'), tmp_path/'t.csv', word)

def test_coordinates_are_no_classes(tmp_path):
    (tmp_path/'map.csv').write_text('X,y\n1,4\n2,4\n1,5\n')
    (tmp_path/'named.csv').write_text('x,y,class\n1,4,0\n2,4,1\n1,5,1\n')
    grid, named = (load_data(tmp_path/f) for f in ('map.csv', 'named.csv'))
    assert grid.y is None and grid.d == named.d == 2 and named.y.tolist() == [0, 1, 1]

def test_writers_leave_each_other_alone(tmp_path):
    "What a living process writes is no remainder of a killed one"
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    dead = reading._part_name(tmp_path/'model', gone.pid)
    (tmp_path/dead).touch()
    with reading.atomic_path(tmp_path/'model') as tmp:
        tmp.write_text('whole')
        assert [f.name for f in reading.part_files(tmp_path/'model')] == [dead]

def test_what_is_the_same_for_all_points_is_told_of():
    x = np.c_[make_blobs()[0], np.full(len(make_blobs()[0]), 1e4)]
    def told(x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            DEC(3, ae_iter=1, max_iter=1, n_init=1, random_state=0).fit(x)
        return [str(w.message) for w in said if 'the same for all points' in str(w.message)]
    [plain], [named] = told(x), told(pd.DataFrame(x, columns=[*map(str, range(16)), 'year']))
    assert 'column 16;' in plain and "column 16 ('year');" in named
    assert told(x - x.mean(0)) == told(x[:, :16]) == []

def make_all(folder): # a good file of every kind
    make_npz(folder/'dense.npz')
    m = make_csr(folder/'csr.npz')
    for kind in ('csc', 'bsr'):
        sparse.save_npz(folder/f'{kind}.npz', m.asformat(kind), compressed=False)
    np.save(folder/'table.npy', rng.random((6, 4)))
    np.save(folder/'stack.npy', pixels(4, 3, 2))
    (folder/'table.csv').write_text('a,b,label\n'
                                    + ''.join(f'{a:.3f},{b:.3f},{c}\n'
                                              for a, b, c in zip(*rng.random((2, 9)), 'xyz'*3)))
    return sorted(folder.iterdir())

def test_truncated_foreign_and_missing_files(tmp_path):
    for f in make_all(tmp_path):
        raw = f.read_bytes()
        load_data(f)                                                             # whole, it is good
        for size in (0, 1, 7, len(raw)//3, len(raw)//2, len(raw) - 9):
            if f.suffix == '.csv' and size > 20: continue # a table cut between two lines is a table
            f.write_bytes(raw[:size]); assert refused(lambda: load_data(f), f)
        foreign = [b'%PDF-1.4 not what the name says\n', b'\x89PNG\r\n\x1a\n' + bytes(50),
                   pickle.dumps(Bomb(tmp_path.parent/'trace'))]
        for data in [*foreign,
                     *(g.read_bytes() for g in tmp_path.iterdir() if g.suffix != f.suffix)]:
            f.write_bytes(data); assert refused(lambda: load_data(f), f)
        f.unlink(); assert refused(lambda: load_data(f), 'there is no file', f)
        f.mkdir(); assert refused(lambda: load_data(f), f); f.rmdir(); f.write_bytes(raw)
    assert not (tmp_path.parent/'trace').exists()

class Bomb: # a pickle that leaves a folder behind where it is loaded
    def __init__(self, trace): self.trace = str(trace)
    def __reduce__(self): return os.mkdir, (self.trace,)

def test_the_bomb_works(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path/'trace')))
    assert (tmp_path/'trace').is_dir()

def test_pickled_arrays_are_not_loaded(tmp_path):
    bombs = np.array([[Bomb(tmp_path/'trace')]], object)
    np.save(tmp_path/'t.npy', bombs, allow_pickle=True); np.savez(tmp_path/'t.npz', x=bombs)
    for f in ('t.npy', 't.npz'): assert refused(lambda: load_data(tmp_path/f), tmp_path/f)
    assert not (tmp_path/'trace').exists()

def test_names_and_paths(tmp_path):
    for wrong, near in (('mnits', 'mnist'), ('MNIST', 'mnist'), ('fashon', 'fashion'),
                        ('coil', 'coil20'), ('digit', 'digits')):
        assert refused(lambda: load_data(wrong), repr(wrong), f'did you mean {near!r}', '.csv')
    for far in ('zzzz', 'customers', 'cats', 'iris'): # no name is near
        with pytest.raises(DecError, match=f"called '{far}'; known are digits"): load_data(far)
    assert refused(lambda: load_data(None), 'None')
    assert refused(lambda: load_data(5), "'5'")
    assert refused(lambda: load_data(tmp_path), 'is a folder', '.csv')
    (tmp_path/'t.xlsx').write_bytes(b'PK')
    assert refused(lambda: load_data(tmp_path/'t.xlsx'), 't.xlsx', '.csv')
    for path in ('', 'a\0b.npz', '~nobody-of-this-name/t.npz', 'x'*5000, 'x'*5000 + '.csv'):
        assert refused(lambda: load_data(path))
    assert refused(lambda: load_data('usps', root='~nobody-of-this-name/data', download=False),
                   'nobody')

def test_without_a_home(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', '')                               # as if it were not set
    monkeypatch.setattr(Path, 'home', lambda: tmp_path)
    assert reading._roots(None) == [tmp_path/'.cache'/'dec_tutorial']
    def nobody(): raise RuntimeError('Could not determine home directory.')
    monkeypatch.setattr(Path, 'home', nobody)
    assert load_data('digits').n == 1797 and reading._roots(tmp_path) == [tmp_path]
    assert refused(lambda: load_data('usps', download=False), 'no home folder', 'root=')

def mutate(raw, r): # flip some bits, cut some bytes out, or put some in
    b, at = bytearray(raw), int(r.integers(len(raw)))
    match r.integers(3):
        case 0:
            for j in r.integers(len(raw), size=3): b[j] ^= 1 << int(r.integers(8))
        case 1: del b[at:at + int(r.integers(1, 40))]
        case 2: b[at:at] = r.bytes(int(r.integers(1, 9)))
    return bytes(b)

@pytest.mark.filterwarnings('ignore')
def test_fuzz(tmp_path): # 1400 damaged files: a sentence or a sound data set, nothing else
    r, good, bad = np.random.default_rng(7), 0, 0
    for f in make_all(tmp_path):
        raw = f.read_bytes()
        for _ in range(200):
            f.write_bytes(mutate(raw, r))
            try: ds = load_data(f)
            except DecError as e:
                bad += 1
                assert '\n' not in str(e) and (str(f) in str(e) or str(e).startswith('y ')), e
            else:
                good += 1
                assert (ds.x.dtype == np.float32 and ds.x.ndim == 2 and ds.n and ds.d
                        and np.isfinite(ds.x.sum(dtype=np.float64)))
                assert ds.y is None or ds.y.shape == (ds.n,) and ds.y.min() >= 0
                assert ds.image_shape is None or math.prod(ds.image_shape) == ds.d
    assert good > 25 and bad > 500

# --- writing ---

def write(path, text='new', then=None):
    with atomic_path(path) as tmp:
        tmp.write_text(text)
        if then: raise then

def test_threads_that_write_one_file(tmp_path):
    texts = [str(i)*20_000 for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: write(tmp_path/'f.txt', texts[i % 4]), range(200)))
    assert (tmp_path/'f.txt').read_text() in texts and os.listdir(tmp_path) == ['f.txt']

def test_atomic_path(tmp_path):
    f = tmp_path/'deep'/'er'/'f.txt'
    write(f, 'old'); assert f.read_text() == 'old'
    for error in (RuntimeError('x'), KeyboardInterrupt()):
        with pytest.raises(type(error)): write(f, then=error)
        assert f.read_text() == 'old' and os.listdir(f.parent) == ['f.txt']
    assert refused(lambda: write(f, then=OSError(errno.ENOSPC, 'No space left on device')), f,
                   'No space left')
    assert f.read_text() == 'old' and os.listdir(f.parent) == ['f.txt']
    # who reads meanwhile gets the old file whole
    with open(f) as reader: write(f, 'new'); assert reader.read() == 'old'
    assert f.read_text() == 'new' and os.listdir(f.parent) == ['f.txt']

def test_large_numbers_as_classes_keep_their_names(tmp_path):
    (tmp_path/'t.csv').write_text('a,class\n1,1234567\n2,1234568\n3,1234567\n')
    assert load_data(tmp_path/'t.csv').classes == ['1234567', '1234568']
    assert load_data(tmp_path/'t.csv', classes=False).y is None

@pytest.mark.parametrize('x', [pd.DataFrame(dict(a=['2020', '2021_02'], b=[1, 2])),
                               [['2021_02', '1']]], ids=['frame', 'list'])
def test_an_underscore_makes_no_number(x):
    assert refused(lambda: check_x(x), "'2021_02' as 202102")

def test_errors_that_are_not_of_the_file_written_are_left_alone(tmp_path):
    stale = OSError(errno.ESTALE, 'Stale file handle')              # of a folder on another machine
    assert refused(lambda: write(tmp_path/'f.txt', then=stale), 'Stale file handle')
    for error in (ConnectionResetError(errno.ECONNRESET, 'Connection reset by peer'),
                  FileNotFoundError(errno.ENOENT, 'No such file', str(tmp_path/'other.csv'))):
        with pytest.raises(type(error)): write(tmp_path/'f.txt', then=error)
    assert not os.listdir(tmp_path)

def test_writing_through_a_link_and_with_the_old_rights(tmp_path):
    f, link = tmp_path/'f.txt', tmp_path/'link.txt'
    f.write_text('old'); f.chmod(0o640); link.symlink_to(f)
    write(link)
    assert link.is_symlink() and f.read_text() == 'new' and f.stat().st_mode & 0o777 == 0o640

def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(pipe := tmp_path/'p')
    with ThreadPoolExecutor(1) as other:
        got = other.submit(pipe.read_text)
        write(pipe)
        assert got.result(10) == 'new' and pipe.is_fifo() and os.listdir(tmp_path) == ['p']

def test_the_home_folder_may_be_written_short(tmp_path, monkeypatch, fitted):
    monkeypatch.setenv('HOME', str(tmp_path)); monkeypatch.chdir(tmp_path)
    fitted.save('~/m.safetensors')
    assert (DEC.load('~/m.safetensors').labels_ == fitted.labels_).all()
    Checkpoint('~/ck.pt').save()
    assert sorted(os.listdir()) == ['ck.pt', 'm.safetensors']
    assert refused(lambda: fitted.save('~nobody-of-this-name/m'), 'nobody')

# A file where a folder should be; a folder where the file should be; names that no file system
# takes
@pytest.mark.parametrize('name', ['file/f', 'folder', '.', '', 'n'*300, 'n'*250], ids=brief)
def test_what_cannot_be_written(tmp_path, monkeypatch, fitted, name):
    (tmp_path/'file').touch(); (tmp_path/'folder').mkdir(); monkeypatch.chdir(tmp_path)
    ck = Checkpoint(); ck.path = Path(name)
    for save in (lambda: write(Path(name)), lambda: fitted.save(name), ck.save):
        if name == 'n'*250:                        # a legal name: written, or refused in a sentence
            try: save()
            except DecError: pass
            else: Path(name).unlink()
        else: assert refused(save, 'cannot write')
        assert sorted(os.listdir(tmp_path)) == ['file', 'folder']

@pytest.mark.skipif(not Path('/proc/self').exists(),
                    reason='wants a folder that nobody, not even root, can write to')
def test_folder_that_takes_no_files(fitted):
    ck = Checkpoint(); ck.path = Path('/proc/x.pt')
    for save in (lambda: write('/proc/x.txt'), lambda: fitted.save('/proc/x.safetensors'), ck.save):
        assert refused(save, 'cannot write /proc/x')

# --- arguments of DEC ---

tiny = Recipe('tiny', finetune=Stage(30), cluster=Stage(30, lr=.01), dims=(16, 8, 3),
              init='uniform', update_interval=10)
X = rng.random((60, 20)).astype(np.float32)

def dec(k=3, **kw):
    return DEC(k, **(dict(recipe=tiny, n_init=2, random_state=0, device='cpu') | kw))

@pytest.fixture(scope='session')
def fitted(): return dec().fit(X)

# from 1e-27 to 1e27 the scaled points are the same, bit by bit
def test_powers_of_two_change_nothing(fitted):
    for size in (2.**-90, 2.**90):
        np.testing.assert_array_equal(
            dec().fit(X*np.float32(size)).predict_proba(X*np.float32(size)),
            fitted.predict_proba(X))

def test_sparse_points(fitted):
    q = dec().fit(sparse.csr_matrix(X)).predict_proba(sparse.csr_matrix(X))
    assert q.shape == (60, 3) and np.abs(q.sum(1) - 1).max() < 1e-6
    np.testing.assert_allclose(fitted.predict_proba(sparse.csr_matrix(X)), fitted.predict_proba(X),
                               rtol=1e-5)

@pytest.mark.parametrize('arguments, words', [
    (dict(k=61), ('n_samples=60', 'n_clusters=61')), (dict(k=0), ('n_clusters is 0',)),
    (dict(k=-3), ('n_clusters',)),
    *((dict(k=k), ('n_clusters', 'whole number', repr(k))) for k in (3., '3', None, True)),
    *((dict(recipe=r), ('recipe', 'fast')) for r in ('slow', None, 5, [])),
    *((dict(tol=t), ('tol', repr(t))) for t in (-1, 1.5, math.nan, 'a')),
    *((dict(update_interval=u), ('update_interval', repr(u))) for u in (0, -1, 2.5, 'a')),
    *((dict(max_iter=m), ('max_iter', repr(m))) for m in (0, -1, 2.5, 'a')),
    *((dict(n_init=n), ('n_init', repr(n))) for n in (0, 2.5, 'auto')),
    *((dict(alpha=a), ('alpha', str(a))) for a in (0, -1, math.nan, 'a', None)),
    *((dict(random_state=s), ('random_state', str(s))) for s in ('a', -1, 2**40, 1.5)),
    *((dict(train_rows=t), ('train_rows', str(t))) for t in (0, -60, 'a', 2.5)),
    *((dict(device=d), ('device',)) for d in ('gpu', 'meta', 'cpu:x', None)),
    *((dict(precision=p), ('precision', 'bf16')) for p in ('double', 16, None)),
    (dict(autoencoder='a'), ('autoencoder',)),
    (dict(autoencoder=AutoEncoder(5, (3,))), ('5 features', '20')),
    *((dict(recipe=dataclasses.replace(tiny, **r)), (w,))
      for r, w in ((dict(init='x'), 'init'), (dict(scale='x'), 'scale')))], ids=brief)
def test_bad_arguments(arguments, words, never_train):
    assert refused(lambda: dec(**arguments).fit(X), *words)

@pytest.mark.parametrize('dims', [(), (3, 0)])
def test_bad_widths(dims): assert refused(lambda: AutoEncoder(5, dims), 'dims')

@pytest.fixture
def never_train(monkeypatch): # a mistake is found at once, not after an hour of training
    def step(_): raise AssertionError('trained before it looked at its arguments')
    monkeypatch.setattr('dec_tutorial.training.Trainer.step', step)

@pytest.mark.parametrize('stage', ['finetune', 'cluster'])
@pytest.mark.parametrize('setting', ['optimizer', 'order'])
def test_bad_stage(setting, stage, never_train):
    assert refused(lambda: dec(
        recipe=dataclasses.replace(tiny, **{stage: Stage(30, **{setting: 'x'})})).fit(X), setting,
                   "'x'")

def test_diverging_training():
    assert refused(lambda: dec(recipe=dataclasses.replace(tiny, finetune=Stage(30, lr=1e9))).fit(X),
                   'learning rate')

@pytest.mark.skipif(torch.cuda.is_available(), reason='wants a machine without a GPU')
def test_no_gpu_here(): assert refused(lambda: dec(device='cuda').fit(X), 'cuda', "'cpu'")

def test_other_points_at_predict(fitted):
    for f in (fitted.predict, fitted.predict_proba, fitted.transform):
        assert refused(lambda: f(X[:, :5]), '5 features', '20')
        assert refused(lambda: f(X[0]), '2D')
        assert refused(lambda: f(sparse.csr_matrix(X[:, :5])), '5 features')
        assert refused(lambda: f(X*np.nan), 'NaN at row 0')

def test_unfitted(tmp_path): # scikit-learn's own error, since its users and its checks expect that
    for f in (lambda: dec().predict(X), lambda: dec().transform(X),
              lambda: dec().save(tmp_path/'m')):
        with pytest.raises(NotFittedError): f()
    assert not os.listdir(tmp_path)

# --- model files ---

# header and arrays of a good file, and a function that writes them changed and loads them again
@pytest.fixture
def parts(fitted, tmp_path):
    fitted.save(tmp_path/'good.safetensors')
    with safe_open(tmp_path/'good.safetensors', 'pt') as f:
        header = json.loads(f.metadata()['dec_tutorial'])
        arrays = {k: f.get_tensor(k) for k in f.keys()}
    def load(header, arrays, text=None): # sealed anew, as by someone who wishes ill
        text, arrays = text or json.dumps(header), {k: v.contiguous() for k, v in arrays.items()}
        save_file(arrays, tmp_path/'m.safetensors', dict(dec_tutorial=text,
                                                         seal=_seal(text, arrays)))
        return DEC.load(tmp_path/'m.safetensors', device='cpu')
    return header, arrays, load

def test_save_and_load(fitted, parts):
    model = parts[2](*parts[:2])
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
    assert (model.recipe == fitted.recipe_ == tiny and (model.labels_ == fitted.labels_).all()
            and model.get_params()['alpha'] == 1)

def test_missing_truncated_and_foreign_models(fitted, tmp_path):
    f = tmp_path/'m.safetensors'
    assert refused(lambda: DEC.load(f), 'no model file', f)
    assert refused(lambda: DEC.load(tmp_path), 'no model file')
    fitted.save(f); raw = f.read_bytes()
    save_file({'x': torch.ones(2)}, tmp_path/'foreign'); np.savez(tmp_path/'npz', x=X)
    good = ([raw[:n] for n in (0, 1, 8, 9, 100, len(raw)//2, len(raw) - 1)]
            + [raw + b'x', b'\xff'*8 + raw[8:]])
    for data in [*good, b'hello', (tmp_path/'foreign').read_bytes(),
                 (tmp_path/'npz.npz').read_bytes(), pickle.dumps(Bomb(tmp_path.parent/'trace'))]:
        f.write_bytes(data); assert refused(lambda: DEC.load(f), f, 'not a complete model')
    torch.save(Bomb(tmp_path.parent/'trace'), f); assert refused(lambda: DEC.load(f), f)
    assert not (tmp_path.parent/'trace').exists()

@pytest.mark.parametrize('change', [
    *(dict(alpha=a) for a in ('x', None, [], -1, 0, math.nan)),
    *(dict(scale=s) for s in ('x', None, math.nan, math.inf, 0, -1)),
    dict(alpha=10**400), dict(scale=10**400), dict(random_state='x'), dict(random_state=10**400),
    dict(n_iter=1.5), dict(n_init=-5), dict(n_init='auto'), dict(train_rows=0), dict(method=5),
    dict(precision='foo'), dict(stop_reason=[]), dict(own='x'), dict(seconds={}), dict(history={}),
    dict(history=dict(clusters=[[0, 'x']], changes=[])), dict(features='a'*20),
    dict(features=['a']*20), dict(format='\x1b]0;owned\x07'), dict(format='A'*10**6),
    *(dict(n_clusters=k) for k in ('3', 3., 4, None, -3)),
    dict(format=99), *(dict(recipe=r) for r in ('fast', None, [], {}))], ids=brief)
def test_changed_header(parts, change):
    header, arrays, load = parts
    assert refused(lambda: load(header | change, arrays), 'm.safetensors')

@pytest.mark.parametrize('change', [dict(dims=5), dict(dims=[16, 8]), dict(dims=[16, 8, 4]),
                                    dict(dims='abc'), dict(dims=[1]*10**6),
                                    dict(unknown=1), dict(update_interval='x'), dict(tol=2),
                                    dict(finetune=None),
                                    dict(finetune=5), dict(cluster=dict(n=3))], ids=brief)
def test_changed_recipe(parts, change):
    header, arrays, load = parts
    assert refused(lambda: load(header | dict(recipe=header['recipe'] | change), arrays),
                   'm.safetensors')

def test_missing_parts(parts):
    header, arrays, load = parts
    without = lambda d, k: {a: v for a, v in d.items() if a != k}
    for k in header: assert refused(lambda: load(without(header, k), arrays), 'm.safetensors', k)
    for k in arrays: assert refused(lambda: load(header, without(arrays, k)), 'm.safetensors')
    for text in ('null', '[]', '5', '{}', '{', '['*20_000):
        assert refused(lambda: load(header, arrays, text), 'm.safetensors')

o = torch.ones
@pytest.mark.parametrize('change', [
    *({'head.mu': m} for m in (o(3, 4), o(4, 3), o(3), o(()), o(3, 3)*math.nan,
                               o(3, 3, dtype=torch.bfloat16), o(3, 3, dtype=torch.float64))),
    dict(mu=o(3, 3)), dict(labels=o(60, 2)), dict(labels=torch.full((60,), 3)),
    dict(labels=-torch.ones(60)),
    dict(labels=o(5)), dict(labels=o(0)), dict(labels=torch.zeros(60, dtype=torch.int32) + .7),
    dict(soft_sizes=-torch.ones(3, dtype=torch.float64)), dict(soft_sizes=o(3)),
    dict(kmeans_labels=o(60, dtype=torch.bool)), dict(soft_sizes=o(4)), dict(soft_sizes=o(3)*math.nan),
    *({'encoder.0.weight': w}
      for w in (o(16), o(()), o(16, 20, 1), o(16, 0), o(16, 20)*math.inf, o(15, 20))),
    {'encoder.0.bias': o(3)}, {'decoder.4.weight': o(20, 15)}, {'encoder.9.weight': o(2)}],
                         ids=lambda c: ' '.join(f'{k} {tuple(v.shape)}' for k, v in c.items()))
def test_changed_arrays(parts, change):
    header, arrays, load = parts
    assert refused(lambda: load(header, arrays | change), 'm.safetensors')

def test_a_wrong_device_is_not_the_files_fault(fitted, tmp_path):
    fitted.save(tmp_path/'m')
    with pytest.raises(DecError, match='device') as e: DEC.load(tmp_path/'m', device='gpu')
    assert 'changed' not in str(e.value)

def test_no_turned_bit_goes_unnoticed(fitted, tmp_path):
    f, r = tmp_path/'m.safetensors', np.random.default_rng(3)
    fitted.save(f); raw = f.read_bytes()
    length = 8 + struct.unpack('<Q', raw[:8])[0]
    for i in range(300): # in the header, and in the arrays
        b = bytearray(raw)
        b[int(r.integers(length) if i%2 else r.integers(length, len(raw)))] ^= 1 << int(r.integers(8))
        f.write_bytes(b)
        with pytest.raises(DecError) as e: DEC.load(f, device='cpu')
        assert str(f) in str(e.value) and '\n' not in str(e.value)

def test_forged_headers(parts): # a sentence, or a model that works
    header, arrays, load = parts
    text, r, loaded = json.dumps(header), np.random.default_rng(3), 0
    for _ in range(150):
        i = int(r.integers(len(text)))
        forged = text[:i] + chr(ord(text[i]) ^ 1 << int(r.integers(7))) + text[i + 1:]
        try: q = load(None, arrays, forged).predict_proba(X); loaded += 1
        except DecError as e: assert 'm.safetensors' in str(e) and '\n' not in str(e)
        else: assert q.shape == (60, 3) and np.isfinite(q).all()
    assert 0 < loaded < 150

def test_forged_entries(parts): # whatever is read can be used, or says why not
    header, arrays, load = parts
    def entries(d, path=()):
        for k, v in d.items():
            yield (*path, k)
            if isinstance(v, dict): yield from entries(v, (*path, k))
    count = dict.fromkeys(('refused', 'used', 'complained'), 0)
    for path in entries(header):
        for v in (10**30, -1, 0, math.nan, 'x', None, True, [], {}, [[]], [2**62, 2]):
            inner = forged = json.loads(json.dumps(header))
            for k in path[:-1]: inner = inner[k]
            inner[path[-1]] = v
            try: model = load(forged, arrays)
            except DecError: count['refused'] += 1; continue
            try: model.partial_fit(X).predict(X); count['used'] += 1
            except DecError: count['complained'] += 1
    assert count['used'] > 50 and count['refused'] > 300, count

def test_a_model_does_not_depend_on_its_file(fitted, tmp_path): # once it is loaded
    fitted.save(tmp_path/'m'); model = DEC.load(tmp_path/'m')
    other = dec(random_state=5).fit(X)
    other.save(tmp_path/'n')
    shutil.copyfile(tmp_path/'n', tmp_path/'m')                     # in place, as cp does
    os.truncate(tmp_path/'m', 100)
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))

@pytest.mark.parametrize('path', [None, 0, b'abc', 'a\0b', 'a'*5000],
                         ids=['None', 'int', 'bytes', 'null', 'long'])
def test_what_is_no_path(fitted, path):
    for f in (lambda: DEC.load(path), lambda: fitted.save(path)):
        with pytest.raises(DecError, match='not the path|no model file|cannot write|too long'): f()

def test_a_file_without_a_seal_or_of_before(parts, tmp_path):
    header, arrays, load = parts
    assert refused(lambda: load(header | dict(format=6), arrays), 'format 6 instead of 7')
    save_file({k: v.contiguous() for k, v in arrays.items()}, tmp_path/'m.safetensors',
              dict(dec_tutorial=json.dumps(header)))
    assert refused(lambda: DEC.load(tmp_path/'m.safetensors'), 'numbers that are not the ones')

def test_tensors_of_every_kind_and_masks():
    for t in (torch.rand(4, 3, dtype=torch.bfloat16), torch.rand(4, 3, requires_grad=True),
              torch.ones(4, 3, dtype=torch.int32)): assert check_x(t).dtype == np.float32
    with pytest.raises(DecError, match='masked cells'):
        check_x(np.ma.masked_array(np.ones((2, 2)), [[0, 1], [0, 0]]))
    with pytest.raises(DecError, match='too small for float32'):
        scale_factor(np.full((5, 2), 1e-42, dtype=np.float32))
