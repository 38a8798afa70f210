"The benchmarks, from their original files as their makers give them"
import bz2, hashlib, io, struct, sys, zipfile
import numpy as np, pytest, torchvision
from PIL import Image
from scipy import sparse
from dec_tutorial.data import load_data
from test_data import make_csr, make_npz, pixels, refused, rng

pytestmark = pytest.mark.usefixtures('alone')

def make_idx(path, a): # big-endian: two zero bytes, type, dimensions; the sizes; the bytes
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f'>HBB{a.ndim}I', 0, 8, a.ndim, *a.shape) + a.tobytes())

def make_mnist(root, folder='MNIST'):
    x, y = pixels(7, 28, 28), np.array([5, 0, 4, 1, 9, 2, 3], np.uint8)
    for part, s in (('train', slice(0, 4)), ('t10k', slice(4, 7))):
        make_idx(root/folder/'raw'/f'{part}-images-idx3-ubyte', x[s])
        make_idx(root/folder/'raw'/f'{part}-labels-idx1-ubyte', y[s])
    return x

def make_stl10(root, monkeypatch):
    x, y = pixels(6, 3, 96, 96), np.array([2, 1, 10], np.uint8)                     # classes from 1
    files = dict(train_X=x[:2], train_y=y[:2], test_X=x[2:3], test_y=y[2:], unlabeled_X=x[3:])
    (root/'stl10_binary').mkdir()
    sums = {}
    for name, v in files.items():
        raw = (v.transpose(0, 1, 3, 2) if v.ndim == 4 else v).tobytes()      # column by column
        (root/'stl10_binary'/f'{name}.bin').write_bytes(raw)
        sums[f'{name}.bin'] = hashlib.md5(raw).hexdigest()
    for part in ('train_list', 'test_list'): # our files' checksums instead of the published ones
        names = [f for f, _ in getattr(torchvision.datasets.STL10, part)]
        monkeypatch.setattr(torchvision.datasets.STL10, part, [[f, sums[f]] for f in names])
    return x

def make_coil(path, names):
    with zipfile.ZipFile(path, 'w') as z:
        for name, v in names:
            png = io.BytesIO()
            Image.fromarray(v).save(png, 'png')
            z.writestr(f'coil-20-proc/{name}', png.getvalue())

class TestLoaders:
    def load(self, name, root): return load_data(name, root=root, download=False)

    def test_digits(self):
        ds = load_data()
        assert (ds.name, ds.n, ds.d, ds.n_classes) == ('digits', 1797, 64, 10)
        assert ds.image_shape == (8, 8)
        assert ds.x.min() == 0 and ds.x.max() == 1

    @pytest.mark.parametrize('name, folder', [('mnist', 'MNIST'), ('fashion', 'FashionMNIST')])
    def test_mnist(self, tmp_path, name, folder):
        x = make_mnist(tmp_path, folder)
        ds = self.load(name, tmp_path)
        assert (ds.name, ds.image_shape, ds.n_train) == (name, (28, 28), 60_000)
        np.testing.assert_array_equal(ds.x, x.reshape(7, 784).astype(np.float32)/255)
        np.testing.assert_array_equal(ds.y, [5, 0, 4, 1, 6, 2, 3])     # 9, the largest of the seven

    def test_usps(self, tmp_path): # libsvm's own: pixels in [-1, 1], classes from 1
        x, y = rng.uniform(-1, 1, (6, 256)).round(3), [7, 1, 10, 2, 1, 3]
        lines = [f'{c} ' + ' '.join(f'{j+1}:{v}' for j, v in enumerate(r)) + '\n'
                 for r, c in zip(x, y)]
        for name, part in (('usps.bz2', lines[:4]), ('usps.t.bz2', lines[4:])):
            (tmp_path/name).write_bytes(bz2.compress(''.join(part).encode()))
        ds = self.load('usps', tmp_path)
        assert ds.image_shape == (16, 16) and ds.n_train == 7_291
        np.testing.assert_allclose(ds.x, (x + 1)/2, atol=1/255)  # torchvision keeps 256 grey levels
        np.testing.assert_array_equal(ds.y, [3, 0, 4, 1, 0, 2])

    def test_ready_made_npz(self, tmp_path, monkeypatch): # the folder given comes first
        monkeypatch.setenv('DEC_TUTORIAL_DATA', str(tmp_path/'home'))
        for folder in ('cache/dec_tutorial', 'home', 'mine'):
            (tmp_path/folder).mkdir(parents=True)
            x, _ = make_npz(tmp_path/folder/'usps.npz')
            root = tmp_path/'mine' if folder == 'mine' else None
            assert (load_data('usps', root=root).x == x).all()

    def test_stl10(self, tmp_path, monkeypatch):
        x = make_stl10(tmp_path, monkeypatch)
        ds = self.load('stl10', tmp_path)
        assert ds.image_shape == (3, 96, 96) and ds.n_train == 5_000
        np.testing.assert_array_equal(ds.x, x[:3].reshape(3, -1).astype(np.float32)/255)
        np.testing.assert_array_equal(ds.y, [1, 0, 2])

    def test_stl10_hog(self, tmp_path, monkeypatch):
        x = make_stl10(tmp_path, monkeypatch)
        ds = self.load('stl10_hog', tmp_path)
        assert ds.x.shape == ds.more.shape == (3, 1428)
        both = np.vstack([ds.x, ds.more])
        red = (x.transpose(0, 2, 3, 1)/255.)@[112., -93.786, -18.214]/10   # Cr of ITU-R BT.601
        red = red.reshape(6, 8, 12, 8, 12).mean((2, 4)).reshape(6, 64)
        np.testing.assert_allclose(both[:, 1300::2], red, atol=2e-3)
        assert .1 < both[:, :1300].mean()/10 + .2 < .4
        (tmp_path/'stl10_binary').rename(tmp_path/'away')                # what was computed is kept
        np.testing.assert_array_equal(self.load('stl10_hog', tmp_path).more, ds.more)

    def test_stl10_hog_needs_scikit_image(self, tmp_path, monkeypatch): # told before 2.6 GB come
        monkeypatch.setitem(sys.modules, 'skimage', None)
        assert refused(lambda: load_data('stl10_hog', root=tmp_path), 'dec-tutorial[stl10]')

    def test_coil20(self, tmp_path):
        big = pixels(3, 128, 128)
        make_coil(tmp_path/'coil-20-proc.zip', [('obj10__0.png', big[2]), ('obj2__10.png', big[1]),
                                                ('obj2__9.png', big[0]), ('readme.png', big[0])])
        ds = self.load('coil20', tmp_path)
        assert ds.image_shape == (32, 32)
        assert list(ds.y) == [0, 0, 1]                 # objects, then poses, by number: 9 before 10
        blocks = big.reshape(3, 32, 4, 32, 4).mean((2, 4)).reshape(3, -1)
        np.testing.assert_allclose(ds.x, blocks/255, atol=1e-6)

    def test_rcv1(self, tmp_path): # as scikit-learn keeps it: four files in the folder RCV1
        import joblib
        from sklearn.datasets._base import _pkl_filepath
        topics = [[1], [0, 1], [2], [3], [4, 0], [1, 2], [0], [], [3]]       # 5, 6, 7: not one root
        y = sparse.csr_matrix([[int(j in t) for j in range(5)] for t in topics], dtype=np.uint8)
        x = np.zeros((9, 2004), np.float32)
        for i in range(8): x[i, :2001] = np.roll(np.arange(1, 2002), i)/7
        x[[0, 5], 2001], x[8, 2002], x[0, 3] = 1, 1, 0            # term 3 is the rarest of the 2001
        (tmp_path/'RCV1').mkdir()
        names = np.array(['C11', 'CCAT', 'ECAT', 'GCAT', 'MCAT'], object)
        for name, v in dict(samples=sparse.csr_matrix(x), sample_id=np.arange(9), sample_topics=y,
                            topics_names=names).items():
            joblib.dump(v, _pkl_filepath(str(tmp_path/'RCV1'), f'{name}.pkl'))
        ds = self.load('rcv1', tmp_path)
        want = x[:5][:, np.r_[0:3, 4:2001]]                   # document 8 holds none of these terms
        want /= np.linalg.norm(want, axis=1, keepdims=True)
        assert sparse.issparse(ds.x) and list(ds.y) == [0, 0, 1, 2, 3]
        np.testing.assert_allclose(ds.x.toarray(), want, rtol=1e-5)
        assert self.load('rcv1_10k', tmp_path).n == 5                  # fewer than 10 000 here: all
        make_csr(tmp_path/'rcv1_10k.npz')
        assert self.load('rcv1_10k', tmp_path).n == 6                      # a ready file goes first

    @pytest.mark.parametrize('download', [False, True])
    @pytest.mark.parametrize('name, place', [('mnist', 'MNIST/raw'), ('coil20', 'coil20.npz'),
                                             ('rcv1_10k', 'rcv1_10k.npz')])
    def test_a_missing_one_says_what_to_put_where(self, tmp_path, monkeypatch, name, place,
                                                  download):
        monkeypatch.setattr('time.sleep', lambda seconds: None)           # scikit-learn tries again
        assert refused(lambda: load_data(name, root=tmp_path, download=download), 'is not in',
                       tmp_path, place, 'DEC_TUTORIAL_DATA', 'download')
        assert not [f for f in tmp_path.rglob('*') if f.is_file()]    # and leaves no half of a file

    @pytest.mark.parametrize('file', ['usps.bz2', 'coil-20-proc.zip', 'coil20.npz',
                                      'MNIST/raw/t10k-labels-idx1-ubyte'])
    def test_damaged_ones(self, tmp_path, file):
        make_mnist(tmp_path)
        (tmp_path/file).write_bytes(b'PK\x03\x04')
        name = dict(u='usps', c='coil20', M='mnist')[file[0]]
        assert refused(lambda: self.load(name, tmp_path), name, tmp_path, 'damaged')

class TestNames:
    def test_a_name_is_near(self):
        assert refused(lambda: load_data('coil'), "'coil'", "did you mean 'coil20'", '.csv')

    @pytest.mark.parametrize('name', ['customers', ''])
    def test_no_name_is_near(self, name):
        assert refused(lambda: load_data(name), 'known are digits')

    def test_a_file_does_not_pass_for_a_benchmark(self, tmp_path):
        make_npz(tmp_path/'mnist.npz')
        assert load_data(tmp_path/'mnist.npz').name == 'mnist-file'
