"Small data, and the installed command line in processes of its own"
import os
os.environ.update(IN_TEST='1', MPLBACKEND='Agg')
# pytest-xdist's workers share the processors; one alone has use for two of them
workers = int(os.environ.get('PYTEST_XDIST_WORKER_COUNT', 0))
if workers: os.environ['OMP_NUM_THREADS'] = str(max(1, min(2, (os.cpu_count() or 1)//workers)))
else: os.environ.setdefault('OMP_NUM_THREADS', str(min(2, os.cpu_count() or 1)))
# In a new environment nothing is compiled yet, so two workers begin with different libraries
if os.environ.get('PYTEST_XDIST_WORKER') == 'gw1': import nbdev.test
elif workers: import torch._dynamo
import multiprocessing, runpy, shutil, signal, subprocess, sys, urllib.error, urllib.request
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path
import numpy as np, pytest

root = Path(__file__).resolve().parent.parent
config = ConfigParser(delimiters=['='])
config.read(root/'settings.ini', encoding='utf-8')
settings = config['DEFAULT']

# Importing torch takes seconds and these tests start a hundred processes, so they are forked from
# one that has it already
forks = multiprocessing.get_context('forkserver')
forks.set_forkserver_preload(['dec_tutorial.fitting', 'torch._dynamo',
                              'matplotlib.backends.backend_agg', 'nbdev.test',
                              'sklearn.datasets'])

def pytest_collection_modifyitems(items):
    "Each worker begins with its share of what takes longest, so that nobody waits at the end"
    slow = [i for mark in ('pages', 'slow') for i in items if i.get_closest_marker(mark)]
    rest, n = [i for i in items if i not in slow], max(1, workers)
    shares = [slow[w::n] + rest[w*len(rest)//n:(w + 1)*len(rest)//n] for w in range(n)]
    items[:] = sum(shares, [])                  # pytest-xdist deals them out as they stand here

def pytest_terminal_summary(terminalreporter): # what tests wrote down: workers cannot print
    for r in terminalreporter.stats.get('passed', []):
        for what, how in r.user_properties:
            terminalreporter.write_line(f'{r.nodeid.split("::")[-1]}: {what} {how}')

def script(name): return str(Path(sys.executable).with_name(name))             # as pip installed it

def _in_child(out, err, cwd, env, func, args):
    for fd, f in ((1, out), (2, err)):
        os.dup2(os.open(f, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd); os.environ.update(env)
    func(*args)

class Child:
    "`func(*args)` in a process of its own, which starts in `cwd`"
    def __init__(self, tmp, cwd, func, *args, env={}):
        self.out, self.err, self.args = tmp/'stdout', tmp/'stderr', args
        self.process = forks.Process(target=_in_child,
                                     args=(self.out, self.err, cwd, env, func, args), daemon=True)
        self.process.start(); self.pid = self.process.pid
    def finish(self, timeout=600): # a busy or old machine takes several times as long
        self.process.join(timeout)
        late = self.process.exitcode is None
        if late: self.process.kill(); self.process.join()
        out, err = (f.read_text(encoding='utf-8') if f.exists() else ''
                    for f in (self.out, self.err))
        code = 'too late' if late else self.process.exitcode
        return subprocess.CompletedProcess(self.args, code, out, err)

def run_script(argv): # with narrow layers, so that a whole run takes half a second
    from dec_tutorial.methods import RECIPES
    from dec_tutorial.paper.tables import QUICK
    for name, r in RECIPES.items(): RECIPES[name] = replace(r, dims=(32, 8))
    QUICK.update(ae_iter=40, max_iter=40)
    sys.argv = [script(argv[0]), *map(str, argv[1:])]
    runpy.run_path(sys.argv[0], run_name='__main__')

@pytest.fixture
def start(tmp_path, tmp_path_factory): # start(func, *args, env={}): a `Child`
    return lambda func, *args, env={}: Child(tmp_path_factory.mktemp('child'), tmp_path, func,
                                             *args, env=env)

@pytest.fixture
def cli(start): # cli('dec_fit', …): its exit status, stdout and stderr; starts in tmp_path
    return lambda *argv: start(run_script, argv).finish()

@pytest.fixture
def shell(tmp_path, monkeypatch, capsys): # as `cli`, but in this process, which takes no start
    from dec_tutorial import command_line
    monkeypatch.chdir(tmp_path)
    def shell(*argv):
        monkeypatch.setattr(sys, 'argv', [*map(str, argv)])
        code, said = 0, ''
        try: getattr(command_line, argv[0])()
        except SystemExit as e: # a text is what Python would print
            code, said = (1, e.code) if isinstance(e.code, str) else (e.code, '')
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(argv, code, out, err + said)
    return shell

@pytest.fixture
def alone(monkeypatch, tmp_path):
    "No network, and no folder but the test's own"
    def refuse(*_, **__): raise urllib.error.URLError('blocked')
    monkeypatch.setattr(urllib.request, 'urlopen', refuse)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path/'cache'))
    monkeypatch.delenv('DEC_TUTORIAL_DATA', raising=False)

# the source distribution, the wheel that is made from it, and the folder where that was unpacked
@pytest.fixture(scope='session')
def built(tmp_path_factory):
    here, tmp = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('built')
    for f in ('settings.ini', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE', 'CHANGELOG.md',
              'CITATION.cff'):
        shutil.copy(root/f, here/f)
    shutil.copytree(root/'dec_tutorial', here/'dec_tutorial',
                    ignore=shutil.ignore_patterns('__pycache__'))
    def build(what, at): # as pip does it, in this environment
        call = f'import setuptools.build_meta as b; b.build_{what}({str(tmp)!r})'
        r = subprocess.run([sys.executable, '-c', call], cwd=at, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr[-3000:]
    build('sdist', here)
    [sdist] = tmp.glob('*.tar.gz')
    shutil.unpack_archive(sdist, tmp/'unpacked')
    build('wheel', next((tmp/'unpacked').iterdir()))
    [wheel] = tmp.glob('*.whl')
    shutil.unpack_archive(wheel, tmp/'site', 'zip')
    return sdist, wheel, tmp/'site'

def make_blobs(n=200, d=16, k=3, seed=0): # well separated, in [0, 1]
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return ((rng.random((k, d))[y] + .05*rng.standard_normal((n, d))).clip(0, 1).astype(np.float32),
            y)

@pytest.fixture
def blobs(tmp_path): # a labelled file
    x, y = make_blobs()
    np.savez(tmp_path/'blobs.npz', x=x, y=y)
    return tmp_path/'blobs.npz'

def files(folder):
    return sorted(str(f.relative_to(folder)) for f in folder.rglob('*') if f.is_file())
