"What is made from something else is in step with it, and what is installed is complete"
import ast, os, re, shutil, subprocess, sys, tarfile, zipfile
import numpy as np, pytest
from conftest import make_blobs, root, script, settings
from dec_tutorial.data import schematic
from dec_tutorial.records import make_record, read_records

def text(name): return (root/name).read_text(encoding='utf-8')

def run(*argv, at=root, env={}):
    r = subprocess.run([*map(str, argv)], cwd=at, env=os.environ | env, capture_output=True,
                       text=True)
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]
    return r

def tracked():
    "What git knows, or would know after `git add .`"
    listed = run('git', 'ls-files', '-co', '--exclude-standard').stdout.splitlines()
    return [f for f in listed if (root/f).is_file()]

@pytest.fixture
def copy(tmp_path): # of the project, to be spoilt
    for f in tracked():
        (tmp_path/f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root/f, tmp_path/f, follow_symlinks=False)
    return tmp_path

class TestMadeFromTheNotebooks:
    def test_modules(self, copy):
        (copy/'dec_tutorial'/'data.py').write_text('')             # the export has to mend this
        for name in ('nbdev_export', 'nbdev_clean'):
            run(script(name), at=copy, env=dict(IN_TEST=''))
        made = [f for f in tracked() if re.fullmatch(r'dec_tutorial/.*\.py|nbs/.*\.ipynb', f)]
        differ = [f for f in made if (root/f).read_bytes() != (copy/f).read_bytes()]
        assert differ == [], 'run nbdev_export and nbdev_clean'

    def test_readme(self, copy):
        run(sys.executable, '.ci/readme', at=copy)
        assert (copy/'README.md').read_text(encoding='utf-8') == text('README.md'), 'run .ci/readme'

class TestReadme:
    def test_its_map_is_that_of_the_walk(self):
        assert text('nbs/images/dec.svg') == schematic()

    def test_links_lead_somewhere(self):
        links = re.findall(r'\]\(([^)#:]+)[)#]', text('README.md'))
        assert links and [l for l in links if not (root/l).exists()] == []

    def test_its_second_command_is_what_ci_runs(self):
        first, second = re.findall(r'^``` *sh\n([^`]*)\n```', text('README.md'), re.M)
        assert 'dec_fit' in first and 'pytest' in second
        [extract] = re.findall(r'^command=.*$', text('.ci/run'), re.M)
        assert run('bash', '-c', f'{extract}; echo "$command"').stdout.strip() == second

class TestSite:
    def test_all_but_notebooks_reaches_quarto_as_it_is(self, copy):
        for nb in (copy/'nbs').glob('*.ipynb'): nb.unlink()
        made = 'from nbdev.serve import proc_nbs; proc_nbs(n_workers=0)'
        run(sys.executable, '-c', made, at=copy)
        ours = [f for f in (copy/'nbs').rglob('[!_]*') if f.suffix != '.py' and f.is_file()]
        assert copy/'nbs'/'images'/'card.png' in ours
        for f in ours:
            assert (copy/'_proc'/f.relative_to(copy/'nbs')).read_bytes() == f.read_bytes()
        assert '[`DEC`](37_dec.ipynb#dec)' in (copy/'_proc'/'api.qmd').read_text(encoding='utf-8')

class TestAddresses:
    def test_a_fork_has_its_own(self, copy):
        old = re.compile(rf"{settings['user']}(/|\.github\.io/){settings['repo']}\b")
        run('bash', '.ci/links', 'some-body', 'a-fork', at=copy)
        texts = {f: (copy/f).read_bytes().decode(errors='ignore') for f in tracked()
                 if not f.startswith('dec_tutorial')}
        assert [f for f, t in texts.items() if old.search(t)] == []
        assert 'some-body/a-fork' in texts['README.md']

    def test_badges(self):
        where = f"github/{settings['user']}/{settings['repo']}/blob/{settings['branch']}/nbs/"
        for path in (root/'nbs').glob('[0-9]*.ipynb'):
            opened = set(re.findall(r'research\.google\.com/(github/[^\\")]+)', path.read_text()))
            assert opened == {where + path.name}

    def test_version(self):
        assert f'__version__ = "{settings["version"]}"' in text('dec_tutorial/__init__.py')
        assert f'\nversion: {settings["version"]}\n' in text('CITATION.cff')
        assert f'{settings["lib_name"]} {settings["version"]} ·' in text('_quarto.yml')
        assert f'## {settings["version"]}' in text('CHANGELOG.md')

class TestPackage:
    def test_everything_public_says_what_it_does(self):
        defs = [d for f in (root/'dec_tutorial').rglob('[!_]*.py') for d in
                ast.parse(f.read_text(encoding='utf-8')).body
                if isinstance(d, (ast.FunctionDef, ast.ClassDef)) and not d.name.startswith('_')]
        assert [d.name for d in defs if not ast.get_docstring(d)] == []

    def test_imports_go_down_the_layers(self): # the contract stands in .importlinter
        run(script('lint-imports'), '--no-cache')

    def test_its_two_names(self):
        import dec_tutorial
        assert all(name in dir(dec_tutorial) for name in ('DEC', 'load_data'))
        assert dec_tutorial.DEC and dec_tutorial.load_data
        with pytest.raises(AttributeError, match='no attribute .SDEC.'): dec_tutorial.SDEC

class TestRecords:
    def test_have_the_fields_of_today(self):
        fields = set(make_record('fit', 'digits', 2, 'k-means', [0, 1], [0, 1]))
        records = read_records()
        assert records and [r for r in records if set(r) - {'measured'} != fields] == []

alone = '''
import sys
for name in 'nbdev execnb IPython ipykernel nbconvert pytest hypothesis'.split():
    sys.modules[name] = None                                           # users do not have them
import importlib, pkgutil, dec_tutorial
assert dec_tutorial.__file__.startswith(sys.argv[1]), dec_tutorial.__file__
for m in pkgutil.walk_packages(dec_tutorial.__path__, 'dec_tutorial.'):
    importlib.import_module(m.name)
from dec_tutorial.command_line import dec_fit
dec_fit('blobs.npz', ae_iter=5, max_iter=20, update_interval=10, out='o')
'''

class TestWheel:
    def test_files(self, built):
        names = set(zipfile.ZipFile(built[1]).namelist())
        ours = {f for f in tracked() if f.startswith('dec_tutorial/')}
        assert ours == {n for n in names if '.dist-info/' not in n}

    def test_is_fit_for_pypi(self, built):
        run(sys.executable, '-m', 'twine', 'check', '--strict', *built[:2])

    def test_source_distribution(self, built):
        with tarfile.open(built[0]) as t: names = [n.partition('/')[2] for n in t.getnames()]
        assert {'settings.ini', 'setup.py', 'README.md', 'LICENSE', 'CHANGELOG.md'} <= set(names)
        assert [n for n in names if n.startswith(('nbs', 'tests', '.'))] == []

    def test_runs_where_developers_tools_are_missing(self, built, tmp_path):
        x, y = make_blobs()
        np.savez(tmp_path/'blobs.npz', x=x, y=y)
        r = run(sys.executable, '-c', alone, built[2], at=tmp_path,
                env=dict(PYTHONPATH=str(built[2])))
        assert (tmp_path/'o'/'report.html').exists() and not r.stderr, r.stderr
