"What comes from outside: tables of one's own, and everything that can be wrong with them"
import errno, io, os, pickle
import numpy as np, pandas as pd, pytest, torch
from scipy import sparse
from dec_tutorial.data import Dataset, DecError, as_image, load_data, scale_factor, show_samples
from dec_tutorial.dec import DEC
from dec_tutorial.inside import reading
from dec_tutorial.inside.reading import atomic_path, check_x, check_y
from dec_tutorial.practice.own_data import load_pictures, separation, top_words
from dec_tutorial.sae import AutoEncoder
from dec_tutorial.training import Rows

rng = np.random.default_rng(0)

pytestmark = pytest.mark.usefixtures('alone')

def refused(f, *words):
    "`f()` raises DecError and nothing else; the message is one line that holds all `words`"
    with pytest.raises(DecError) as e: f()
    message = str(e.value)
    assert '\n' not in message and len(message) < 800, message
    for w in words: assert str(w) in message, message
    return True

class Bomb: # a pickle that leaves a folder behind where it is loaded
    def __init__(self, trace): self.trace = str(trace)
    def __reduce__(self): return os.mkdir, (self.trace,)

def pixels(*shape): return rng.integers(0, 256, shape, dtype=np.uint8)

def make_npz(path, n=6, **more): # a table of pictures, as usps.npz and coil20.npz
    x, y = rng.random((n, 4)).astype(np.float32), np.arange(n) % 3
    np.savez(path, **(dict(x=x, y=y, image_shape=(2, 2)) | more))
    return x, y

def make_csr(path, **change):
    m = sparse.random(6, 5, .5, format='csr', random_state=1)
    arrays = dict(data=m.data, indices=m.indices, indptr=m.indptr, shape=m.shape, y=[0, 1]*3)
    np.savez(path, **(arrays | change))
    return m

class TestNpz:
    def test_pictures_and_classes(self, tmp_path):
        x, y = make_npz(tmp_path/'t.npz')
        ds = load_data(tmp_path/'t.npz')
        assert isinstance(ds, Dataset) and (ds.name, ds.image_shape) == ('t', (2, 2))
        assert (ds.x == x).all() and (ds.y == y).all()

    def test_csr_stays_sparse(self, tmp_path):
        m = make_csr(tmp_path/'t.npz')
        ds = load_data(tmp_path/'t.npz')
        assert ds.x.format == 'csr' and ds.x.dtype == np.float32 and list(ds.y) == [0, 1]*3
        sparse.save_npz(tmp_path/'t.npz', m.tocsc())
        assert refused(lambda: load_data(tmp_path/'t.npz'), 'not CSR')

    @pytest.mark.parametrize('arrays, word', [
        (dict(a=np.ones(3)), 'it needs x'), (dict(x=np.ones((0, 8, 8))), 'shape=(0,'),
        (dict(x=np.ones((4, 3)), y=np.ones(3)), '4 points'),
        (dict(x=np.ones((2, 4)), image_shape=[3, 3]), 'image_shape')])
    def test_bad_arrays(self, tmp_path, arrays, word):
        np.savez(tmp_path/'t.npz', **arrays)
        assert refused(lambda: load_data(tmp_path/'t.npz'), word)

    @pytest.mark.parametrize('change', [dict(indices=lambda v: v + 50_000_000),
                                        dict(indptr=lambda v: v[:-1])])
    def test_bad_csr(self, tmp_path, change): # an index beyond the shape would be a crash in C
        [(name, f)] = change.items()
        make_csr(tmp_path/'t.npz', **{name: f(getattr(make_csr(io.BytesIO()), name))})
        assert refused(lambda: load_data(tmp_path/'t.npz'), tmp_path/'t.npz')

class TestNpy:
    def test_a_stack_of_pictures(self, tmp_path):
        x = pixels(5, 4, 6)
        np.save(tmp_path/'stack.npy', x)
        ds = load_data(tmp_path/'stack.npy')
        assert ds.image_shape == (4, 6) and (ds.x == x.reshape(5, 24)).all()

    def test_colours_first_or_last(self, tmp_path):
        x = pixels(5, 6, 7, 3)
        np.save(tmp_path/'last.npy', x)
        np.save(tmp_path/'first.npy', np.moveaxis(x, -1, 1))
        ds = load_data(tmp_path/'last.npy')
        assert ds.image_shape == (3, 6, 7)
        assert ((as_image(ds.x[2], ds.image_shape)*255).round() == x[2]).all()
        assert (load_data(tmp_path/'first.npy').x == ds.x).all()

    def test_a_large_file_stays_on_disk(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reading, 'IN_MEMORY', 100)
        np.save(tmp_path/'t.npy', np.ones((20, 5), np.float32))
        assert reading.on_disk(load_data(tmp_path/'t.npy').x)
        np.save(tmp_path/'t.npy', np.ones((20, 5)))
        with pytest.warns(UserWarning, match='saved as float32'): load_data(tmp_path/'t.npy')

class TestCsv:
    def load(self, folder, text, **how):
        (folder/'t.csv').write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_data(folder/'t.csv', **how)

    @pytest.mark.parametrize('text, y', [
        ('1,2,3\n4,5,6.5\n', None), ('a,b,c\n1,2,3\n4,5,6.5\n', None),
        ('a,b,c,class\n1,2,3, x\n4,5,6.5,x \n', [0, 0]),              # blanks are no part of a name
        ('a,Label,b,c\n1,x,2,3\n4,w,5,6.5\n', [1, 0]),            # the label column stands anywhere
        ('"a","b, too","c"\r\n"1","2","3"\r\n\r\n4,5,6.5', None),     # quotes, CRLF, an empty line
        ('\ufeffclass,a,b,c\n7,1,2,3\n7,4,5,6.5\n', [0, 0]),               # what spreadsheets write
        ('a;b;c\n1;2;3\n4;5;6,5\n', None), ('a\tb\tc\n1\t2\t3\n4\t5\t6.5\n', None),
        ('a, b,2020\n1, 2, 3\n4,5,6.5\n\n,,\n,,\n', None)])     # a spreadsheet's empty last lines
    def test_good_tables(self, tmp_path, text, y):
        ds = self.load(tmp_path, text)
        np.testing.assert_array_equal(ds.x, [[1, 2, 3], [4, 5, 6.5]])
        assert (ds.y is None) if y is None else list(ds.y) == y

    @pytest.mark.parametrize('cells, codes, names', [
        ([10, 2, 9, 10], [2, 0, 1, 2], ['2', '9', '10']),         # not in the order of the alphabet
        (['wolf', ' cat', 'wolf', 'cat'], [1, 0, 1, 0], ['cat', 'wolf'])])
    def test_classes_keep_their_names(self, tmp_path, cells, codes, names):
        text = 'a,label\n' + ''.join(f'{i},{c}\n' for i, c in enumerate(cells))
        ds = self.load(tmp_path, text)
        assert ds.y.tolist() == codes and ds.classes == names and ds.names == ['a']
        assert self.load(tmp_path, text, classes=False).y is None

    def test_columns_to_drop_and_to_take(self, tmp_path):
        text = 'id,a,class\nx1,2,0\nx2,3,1\n'
        ds = self.load(tmp_path, text, drop=['id'])
        assert ds.names == ['a'] and ds.n_classes == 2
        assert self.load(tmp_path, text, only=['class', 'a']).x.tolist() == [[0, 2], [1, 3]]
        assert refused(lambda: self.load(tmp_path, text, drop=['ID']), "no column 'ID'; it has id")
        assert refused(lambda: self.load(tmp_path, '1,2\n3,4\n', drop=['a']), 'has no names above')
        assert refused(lambda: load_data('digits', drop=['a']), 'has no columns to leave out')

    def test_which_column_holds_the_classes(self, tmp_path):
        text = 'class,target,kind\n1,0,7\n2,1,7\n'
        assert self.load(tmp_path, text).y.tolist() == [0, 1]
        assert self.load(tmp_path, text).names == ['kind']                      # nor is the other
        assert self.load(tmp_path, text, classes='kind').n_classes == 1
        assert self.load(tmp_path, text, classes='none').d == 3
        assert refused(lambda: self.load(tmp_path, text, classes='Kind'), "no column 'Kind'")

    @pytest.mark.parametrize('y', ['x,,z,x', '1,,2,1'])
    def test_rows_without_a_class(self, tmp_path, y):
        text = 'a,kind\n' + ''.join(f'{i},{c}\n' for i, c in enumerate(y.split(',')))
        with pytest.warns(UserWarning, match="'kind' names no class at row 1 .1 of 4"):
            ds = self.load(tmp_path, text, classes='kind')
        assert ds.y.tolist() == [0, -1, 1, 0] and ds.known.sum() == 3 and len(ds.classes) == 2
        assert self.load(tmp_path, 'a,class\n1,\n2,\n').y is None

    def test_coordinates_are_no_classes(self, tmp_path):
        assert self.load(tmp_path, 'X,y\n1,4\n2,4\n').y is None
        named = self.load(tmp_path, 'x,y,class\n1,4,0\n2,4,1\n1,5,1\n')
        assert named.d == 2 and named.y.tolist() == [0, 1, 1]

    def test_a_first_line_that_may_be_a_point_is_told(self, tmp_path):
        with pytest.warns(UserWarning, match='taken for names, though 4 is a number'):
            assert self.load(tmp_path, 'a,4\n1,2\n').names == ['a', '4']

    @pytest.mark.parametrize('text, word', [
        ('', 'No columns'), ('a,b\n', '0 sample(s)'), ('1,2\n3\n', 'NaN at row 1, column 1'),
        ('a,b\n1,2\n3,4,5\n', 'Expected 2 fields in line 3'),
        ('1,,3\n4,5,6\n', 'NaN at row 0, column 1'),                 # a point with a hole, no names
        ('a,b,c\n1,x,3\n1,2,?\n', "'x' at row 0, column 'b' (other columns with such cells: 1), "
         "where there must be a number; leave such columns out, or fit with --table"),
        ('a,b,c\n1,,3\n1,2,\n', "NaN at row 0, column 'b' (other columns with such cells: 1)"),
        ('a,b\n1,2,3\n3,4,5\n', 'more columns than names'),
        ('# made by a program\na,b\n1,2\n', 'nothing above the names'), ('1e99,2\n', 'infinity'),
        ('1,2\n1e999,2\n', 'at row 1, column 0, where there must be a number'),
        ('month,sum\n2020_01,2\n', "'2020_01' at row 0, column 'month'"),
        ('caf\u00e9,b\n1,2\n'.encode('latin-1'), 'save it as UTF-8'),
        (',a,b\n7,1,2\n9,4,5\n', 'the first column has no name')])
    def test_bad_tables(self, tmp_path, text, word):
        assert refused(lambda: self.load(tmp_path, text), word)

def make_all(folder): # a good file of every kind
    make_npz(folder/'dense.npz')
    make_csr(folder/'csr.npz')
    np.save(folder/'table.npy', rng.random((6, 4)))
    rows = zip(*rng.random((2, 9)), 'xyz'*3)
    (folder/'table.csv').write_text('a,b,label\n' + ''.join(f'{a:.3f},{b:.3f},{c}\n'
                                                            for a, b, c in rows))
    return sorted(f for f in folder.iterdir() if f.is_file())

class TestBadFiles:
    def test_truncated_foreign_and_missing(self, tmp_path):
        for f in make_all(tmp_path):
            raw = f.read_bytes()
            load_data(f)                                                         # whole, it is good
            wrong = [raw[:7], raw[:len(raw)//2]] if f.suffix != '.csv' else []
            for data in [*wrong, b'', b'%PDF-1.4 not what the name says\n', bytes(50),
                         pickle.dumps(Bomb(tmp_path/'trace'))]:
                f.write_bytes(data)
                assert refused(lambda: load_data(f), f)
            f.unlink()
            assert refused(lambda: load_data(f), 'there is no file', f)
        assert not (tmp_path/'trace').exists()

    @pytest.mark.filterwarnings('ignore')
    def test_fuzz(self, tmp_path): # a sentence or a sound data set, nothing else
        r, told = np.random.default_rng(7), []
        for f in make_all(tmp_path):
            raw = f.read_bytes()
            for at in r.integers(len(raw), size=20):
                f.write_bytes(raw[:at] + r.bytes(4) + raw[at + 4:])
                try: assert np.isfinite(load_data(f).x.sum(dtype=np.float64))
                except DecError as e: told.append(str(e))
        assert 20 < len(told) < 80 and '\n' not in ''.join(told)

    def test_pickled_arrays_are_not_loaded(self, tmp_path):
        bombs = np.array([[Bomb(tmp_path/'trace')]], object)
        np.save(tmp_path/'t.npy', bombs, allow_pickle=True)
        np.savez(tmp_path/'t.npz', x=bombs)
        for name in ('t.npy', 't.npz'): assert refused(lambda: load_data(tmp_path/name), name)
        assert not (tmp_path/'trace').exists()
        pickle.loads(pickle.dumps(bombs))                                    # the bomb itself works
        assert (tmp_path/'trace').is_dir()

    def test_folders_other_kinds_and_no_paths(self, tmp_path):
        (tmp_path/'t.doc').touch()
        assert refused(lambda: load_data(tmp_path), 'there is no file', '.csv')
        assert refused(lambda: load_data(tmp_path/'t.doc'), 't.doc', '.csv')
        assert refused(lambda: load_data('~nobody-of-this-name/t.npz'), 'nobody')

def put(value, dtype=np.float64):
    x = np.ones((4, 3), dtype)
    x[2, 1] = value
    return x

class TestCheckX:
    @pytest.mark.parametrize('value, word', [(np.nan, 'NaN'), (-np.inf, 'infinity'),
                                             (1e39, 'too large')])
    def test_bad_cells_are_named(self, value, word):
        for x in (put(value), put(value).tolist(), sparse.csr_matrix(put(value))):
            assert refused(lambda: check_x(x), word, 'row 2, column 1')
        assert refused(lambda: DEC(2).fit(put(value)), word, 'row 2, column 1')

    @pytest.mark.parametrize('x, word', [
        (np.array([[{}, 1]], object), 'real number'), (put(None, object), 'row 2, column 1'),
        ([[1, 2], [3]], 'inhomogeneous'), (sparse.csr_matrix(np.ones((2, 2), complex)), 'omplex'),
        (np.ones((2, 2, 2)), 'dim 3'), (None, '2-d'),
        (pd.DataFrame(dict(b=[1, 2], a=pd.to_datetime(['2020-01-01']*2))), "row 0, column 'a'")])
    def test_bad_points(self, x, word):
        assert refused(lambda: check_x(x, 'the table'), 'the table', word)

    def test_good_frames(self):
        frame = pd.DataFrame(dict(a=pd.array([1, 2, 3], dtype='Int64'), b=['.5', '1', '2']))
        assert check_x(frame).tolist() == [[1, .5], [2, 1], [3, 2]]

    def test_tensors(self): assert check_x(torch.rand(4, 3, requires_grad=True)).shape == (4, 3)

class TestCheckY:
    @pytest.mark.parametrize('y, word', [
        (np.ones((4, 2)), '4 points'), (['x', 'y', ' ', 'x'], 'row 2'),
        (pd.array(['a', pd.NA, 'b', 'c'], dtype='string'), 'row 1')])
    def test_bad_classes(self, y, word): assert refused(lambda: check_y(y, 4), 'y ', word)

    @pytest.mark.parametrize('y, codes', [
        (np.array([['b'], ['a '], ['b']], object), [1, 0, 1]), ([10., 9, 10], [1, 0, 1]),
        (pd.Categorical(['x', 'w', 'x']), [1, 0, 1])])
    def test_good_classes(self, y, codes): assert check_y(y, 3).tolist() == codes

class TestScale:
    def test_paper(self): # mean ‖x‖²/d = 1 of what training really sees, dense or sparse
        x = (rng.standard_normal((40, 7))*(rng.random((40, 7)) < .4)*1e30).astype(np.float32)
        for data in (x, sparse.csr_matrix(x)):
            rows = Rows(check_x(data), scale_factor(check_x(data), 'paper'))
            seen = torch.cat(list(rows.chunks(16))).double()
            assert seen.square().sum(1).mean().item()/7 == pytest.approx(1, rel=1e-5)

    @pytest.mark.parametrize('x, scale, word', [
        (sparse.csr_matrix([[2., 0]]), 'authors', 'unit length'), (np.eye(3), 'big', "'paper'")])
    def test_bad_scales(self, x, scale, word): assert refused(lambda: scale_factor(x, scale), word)

class TestOwnData:
    @pytest.mark.parametrize('call, word', [
        (lambda: show_samples(Dataset('t', np.eye(3))), 'give it an image_shape'),
        (lambda: load_pictures('.', 32), 'shape must be a height and a width'),
        (lambda: top_words(np.eye(4), [0, 0, 1, 1], ['a', 'b']), 'as many as x has columns, 4'),
        (lambda: top_words(np.eye(4), [0, 1], list('abcd')), 'must be (4,), one label a row'),
        (lambda: separation([['a', 1]], [0]), "'a' at row 0")])
    def test_wrong_arguments(self, call, word): assert refused(call, word)

def write(path, text='new', then=None):
    with atomic_path(path) as tmp:
        tmp.write_text(text)
        if then: raise then

class TestAtomicPath:
    def test_whole_or_not_at_all(self, tmp_path):
        f = tmp_path/'deep'/'er'/'f.txt'
        write(f, 'old')
        for error in (RuntimeError('x'), KeyboardInterrupt()):
            with pytest.raises(type(error)): write(f, then=error)
        full = OSError(errno.ENOSPC, 'No space left')
        assert refused(lambda: write(f, then=full), f, 'No space left')
        assert f.read_text() == 'old' and os.listdir(f.parent) == ['f.txt']

    def test_through_a_link_and_with_the_old_rights(self, tmp_path):
        f, link = tmp_path/'f.txt', tmp_path/'link.txt'
        f.write_text('old')
        f.chmod(0o640)
        link.symlink_to(f)
        write(link)
        assert link.is_symlink() and f.read_text() == 'new' and f.stat().st_mode & 0o777 == 0o640

    def test_what_a_killed_writer_left_is_found(self, tmp_path):
        for name in ('.f.txt.123-456.part', '.g.txt.123-456.part'): (tmp_path/name).touch()
        assert [f.name for f in reading.part_files(tmp_path/'f.txt')] == ['.f.txt.123-456.part']

    @pytest.mark.parametrize('name', ['folder', 'n'*300, '/dev/null'])
    def test_what_cannot_be_written(self, tmp_path, monkeypatch, name):
        (tmp_path/'folder').mkdir()
        monkeypatch.chdir(tmp_path)
        assert refused(lambda: write(name), 'cannot write')
        assert sorted(os.listdir(tmp_path)) == ['folder']

X = rng.random((60, 20)).astype(np.float32)
brief = dict(dims=(16, 8, 3), ae_iter=60, max_iter=20, random_state=0, device='cpu')

class TestPoints:
    @pytest.mark.parametrize('value', [2024., 1e7])
    def test_a_column_that_drowns_the_others_is_named(self, value):
        far = pd.DataFrame(np.c_[X, np.full(60, value)], columns=[*'abcdefghijklmnopqrst', 'year'])
        with pytest.warns(UserWarning, match="most of it in column 'year'; subtract the mean"):
            DEC(3, **brief).fit(far)

    def test_clusters_that_merge_are_not_lost_unseen(self):
        near = np.repeat([[0, 0], [.012, 0], [1, 1.]], 40, 0)
        near = near + np.random.default_rng(0).normal(0, .001, (120, 2))
        ae = AutoEncoder(2, (2,))
        ae.encoder[0].weight.data, ae.decoder[0].weight.data = torch.eye(2), torch.eye(2)
        with pytest.warns(UserWarning, match='codes had 3 .kmeans_labels_.*alpha, now 1, to'):
            d = DEC(3, autoencoder=ae, random_state=0, device='cpu').fit(near)
        kept = DEC(3, autoencoder=ae, random_state=0, device='cpu', alpha=.01).fit(near)
        assert [len(set(v)) for v in (d.labels_, d.kmeans_labels_, kept.labels_)] == [2, 3, 3]
