"What is made from something else is in step with it, and what is installed is complete"
import ast, json, os, re, shutil, subprocess, sys, tarfile, zipfile
from configparser import ConfigParser
import pytest
from conftest import make_blobs, root, script
from dec_tutorial.records import read_records
from test_command_line import schema
import numpy as np

def settings(at=root):
    cfg = ConfigParser(delimiters=['=']); cfg.read(at/'settings.ini', encoding='utf-8')
    return cfg['DEFAULT']

def tracked(): # what git knows, or would know after `git add .`
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '-z'], cwd=root,
                            capture_output=True, text=True)
    if listed.returncode: pytest.skip('not a git checkout')
    return [f for f in listed.stdout.split('\0') if f and os.path.lexists(root/f)]

@pytest.fixture
def copy(tmp_path): # of the project, to be spoilt
    for f in tracked():
        (tmp_path/'copy'/f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root/f, tmp_path/'copy'/f, follow_symlinks=False)
    return tmp_path/'copy'

# nbdev('export', at=copy): nbdev_export there; it would do nothing with IN_TEST
def nbdev(*names, at):
    for name in names:
        r = subprocess.run([script(f'nbdev_{name}')], cwd=at, env=os.environ | dict(IN_TEST=''),
                           capture_output=True, text=True)
        assert r.returncode == 0, r.stderr[-3000:]

def contents(folder, *patterns):
    return {str(f.relative_to(folder)): f.read_bytes() for p in patterns
            for f in sorted(folder.glob(p))}

def test_modules_and_notebooks_are_in_step(copy):
    patterns = 'dec_tutorial/**/*.py', 'nbs/*.ipynb'
    (copy/'dec_tutorial'/'data.py').write_text('')                     # the export has to mend this
    nbdev('export', 'clean', at=copy)
    old, new = contents(root, *patterns), contents(copy, *patterns)
    assert old.keys() == new.keys() and len(old) > 15
    assert [f for f in old if old[f] != new[f]] == [], 'run nbdev_export and nbdev_clean'

# ---- Addresses
@pytest.mark.parametrize('tool', ['links', 'readme', 'stubs'])
def test_what_ci_writes_is_in_step(tool):
    r = subprocess.run([sys.executable, f'.ci/{tool}', '--check'], cwd=root, capture_output=True,
                       text=True)
    assert r.returncode == 0, r.stdout + r.stderr

def test_the_owner_is_named_in_one_place(copy):
    "Another owner in settings.ini, `.ci/links`, an export: and no file names the old one"
    s = settings()
    old = re.compile(rf'{s["user"]}/{s["repo"]}\b|\b{s["user"]}\.github\.io')
    assert [f for f in tracked() if f.endswith('.ipynb')
            and old.search((copy/f).read_text(encoding='utf-8'))]
    text = (copy/'settings.ini').read_text(encoding='utf-8')
    (copy/'settings.ini').write_text(re.sub(r'^repo = .*', 'repo = a-fork',
                                            re.sub(r'^user = .*', 'user = some-body', text,
                                                   flags=re.M), flags=re.M), encoding='utf-8')
    subprocess.run([sys.executable, '.ci/links'], cwd=copy, check=True, capture_output=True)
    nbdev('export', at=copy)
    texts = {f: (copy/f).read_bytes().decode(errors='ignore') for f in tracked()
             if not (copy/f).is_symlink()}
    assert [f for f, t in texts.items() if old.search(t)] == []
    assert ('some-body/a-fork' in texts['nbs/00_data.ipynb']
            and 'some-body/a-fork' in texts['README.md'])

def test_everything_public_says_what_it_does():
    defs = [(f.stem, d) for f in sorted((root/'dec_tutorial').rglob('[!_]*.py'))
            for d in ast.parse(f.read_text(encoding='utf-8')).body
            if isinstance(d, (ast.FunctionDef, ast.ClassDef))]
    # those that the site describes
    shown = [(f, d) for f, d in defs if not d.name.startswith('_') or d.name.startswith('__')]
    assert (len(shown) > 150
            and [f'{f}.{d.name}' for f, d in shown if not ast.get_docstring(d)] == [])
    # the site sets the first line apart; a sentence that runs on would be cut in two there
    assert [f'{f}.{d.name}' for f, d in shown
            if (ast.get_docstring(d).splitlines() + ['', ''])[1]] == []

def test_types():
    "What type checkers and editors are told is consistent, and true of the modules"
    for tool in ('mypy', 'mypy.stubtest'):
        r = subprocess.run([sys.executable, '-m', tool,
                            *(['--config-file', '.ci/mypy.ini', 'dec_tutorial'] if tool == 'mypy'
                              else ['--mypy-config-file', '.ci/mypy.ini', '--ignore-missing-stub',
                                    '--allowlist', '.ci/stubtest.txt', 'dec_tutorial'])], cwd=root, capture_output=True, text=True)
        assert r.returncode == 0 and 'no issues found' in r.stdout, r.stdout + r.stderr

def test_the_version_is_the_same_everywhere():
    version, import_line = settings()['version'], (root/'dec_tutorial'/'__init__.py').read_text()
    assert f'"{version}"' in import_line
    assert (re.search(rf'^version: {re.escape(version)}$', (root/'CITATION.cff').read_text(), re.M)
            and f'## {version}' in (root/'CHANGELOG.md').read_text())

# ---- README.md
def blocks(text, lang):
    return [m[1].strip() for m in re.finditer(rf'^``` *{lang} *\n(.*?)^```', text, re.M | re.S)]

def parts(text):
    "Headings, code blocks and links of a Markdown text, in order; targets as seen from nbs/"
    for m in re.finditer(r'^``` *(?P<lang>\w*)[^\n]*\n(?P<code>.*?)^```|^#+ '
                         r'(?P<head>.+?)\s*$|!?\[(?P<text>[^\]]*)\]\((?P<url>[^)\s]+)\)|<(?:a '
                         r'href|img src)="(?P<tag>[^"]+)"', text, re.M | re.S):
        if m['code'] is not None: yield 'code', m['lang'], m['code'].strip()
        elif m['head']: yield 'heading', re.sub(r'[`*]', '', m['head'])
        else: yield 'link', (m['text'] or '').strip('`'), re.sub(r'^nbs/', '', m['url'] or m['tag'])

def test_readme_holds_the_index():
    "Every heading, code block and link of the index, in their order"
    cells = json.loads((root/'nbs'/'index.ipynb').read_text(encoding='utf-8'))['cells']
    def shown(c):
        src = ''.join(c['source'])
        if c['cell_type'] == 'markdown': return src
        if re.search(r'^#\| *(hide|echo: false|include: false)', src, re.M): return ''
        return '```python\n' + re.sub(r'^#\|.*\n', '', src, flags=re.M) + '\n```'
    wanted = [*parts('\n\n'.join(map(shown, cells)))]
    readme = parts((root/'README.md').read_text(encoding='utf-8'))
    assert len(wanted) > 20
    # `in` moves the iterator on
    for w in wanted: assert w in readme, f'missing, or out of order: {w}'

def test_readme_leads_somewhere():
    text = (root/'README.md').read_text(encoding='utf-8')
    local = [u for _, u in re.findall(r'\[([^\]]*)\]\(([^)\s]+)\)', text) if '://' not in u
             and not u.startswith('#')]
    assert local and [u for u in local if not (root/u.split('#')[0]).exists()] == []

def test_readme_commands():
    text = (root/'README.md').read_text(encoding='utf-8')
    first, second = blocks(text, 'sh')
    assert ('pip install' in first and 'dec_fit' in first and 'pytest' in second
            and len(first.splitlines()) == len(second.splitlines()) == 1)
    [extract] = re.findall(r'^command=.*$', (root/'.ci'/'run').read_text(), re.M)
    assert subprocess.run(['bash', '-c', f'{extract}; echo "$command"'], cwd=root,
                          capture_output=True, text=True).stdout.strip() == second

# ---- Requirements, records, wheel
def test_requirements():
    users, dev = (settings()[k].split() for k in ('requirements', 'dev_requirements'))
    assert not [r for r in users if re.match(r'nbdev|execnb|ipython|jupyter', r, re.I)]
    assert not [r for r in users if re.search(r'<|==|~=', r)]
    assert {'nbdev==2.4.14', 'execnb<0.2', 'fastcore<2'} <= set(dev)
    assert 'pkg_resources' not in (root/'setup.py').read_text()

records = [f for f in sorted((root/'dec_tutorial'/'results').glob('*.json'))
           if 'experiment' in json.loads(f.read_text(encoding='utf-8'))[0]]

def test_there_are_records(): assert records

@pytest.mark.parametrize('path', records, ids=lambda p: p.stem)
def test_records(path):
    found = json.loads(path.read_text(encoding='utf-8'))
    assert isinstance(found, list) and found
    for r in found:
        assert set(r) - {'measured'} == set(schema), path
        assert (r['dataset'] in 'digits mnist fashion usps stl10 stl10_hog coil20 rcv1_10k '
                'rcv1'.split() and r['recipe'] in (None, 'fast', 'paper', 'authors'))
        assert (r['experiment'] in 'fit table2 table3 table4 fig2 fig3 fig4 fig5 fig6 overfit '
                'graphs details precision ablations widths starts mistakes combining family jitter '
                'sizes fewer'.split())
        for score in ('acc', 'nmi', 'ari'):
            assert 0 <= r[score] <= 1 or score == 'ari' and -.5 <= r[score] < 0
        assert (isinstance(r['params'], dict) and isinstance(r['versions'], dict)
                and re.fullmatch(r'\d{4}-\d\d-\d\d', r['date']))
        assert r['seconds'] is None or r['seconds'] >= 0

def test_all_records_are_read():
    assert len(read_records()) == sum(len(json.loads(f.read_text(encoding='utf-8')))
                                      for f in records)
    assert all(set(r) == set(schema) for r in read_records(experiment='fit'))

alone = '''
import sys
for name in 'nbdev execnb IPython ipykernel nbconvert pytest hypothesis'.split(): sys.modules[name] = None   # not there for users
import importlib, pkgutil, dec_tutorial
assert dec_tutorial.__file__.startswith(sys.argv[1]), dec_tutorial.__file__
modules = [m.name for m in pkgutil.walk_packages(dec_tutorial.__path__, 'dec_tutorial.')]
for m in modules: importlib.import_module(m)
from dec_tutorial.command_line import dec_fit
dec_fit('blobs.npz', ae_iter=5, max_iter=20, update_interval=10, out='o')
print(*modules)
'''

def test_what_is_published_is_complete(built, tmp_path):
    "It runs where there is neither nbdev nor this folder, and holds nothing else"
    sdist, whl, site = built
    with zipfile.ZipFile(whl) as z:
        names = z.namelist()
        meta = z.read(next(n for n in names if n.endswith('METADATA'))).decode()
        scripts = z.read(next(n for n in names if n.endswith('entry_points.txt'))).decode()
    for pattern in ('dec_tutorial/**/*.py', 'dec_tutorial/**/*.pyi', 'dec_tutorial/py.typed',
                    'dec_tutorial/results/*.json'):
        assert {str(f.relative_to(root)) for f in root.glob(pattern)} <= set(names)
    assert ({n.split('/')[0] for n in names}
            == {'dec_tutorial', next(n for n in names if n.endswith('METADATA')).split('/')[0]})
    needs = [re.sub(r'[\s()]', '', n)
             for n in re.findall(r'^Requires-Dist: ([^;\n]+)$', meta, re.M)]
    bare = lambda rs: sorted(re.match(r'[\w-]+', r)[0] for r in rs)
    assert (bare(needs) == bare(settings()['requirements'].split())
            and f"Version: {settings()['version']}\n" in meta)
    for line in settings()['console_scripts'].split('\n'):
        assert line.strip().replace('=', ' = ') in scripts
    r = subprocess.run([sys.executable, '-m', 'twine', 'check', '--strict', str(whl), str(sdist)],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    with tarfile.open(sdist) as t: inside = {'/'.join(n.split('/')[1:]) for n in t.getnames()}
    assert ({'settings.ini', 'setup.py', 'README.md', 'LICENSE', 'CHANGELOG.md'} <= inside
            and not [n for n in inside if n.startswith(('nbs', 'tests', '.', 'dec_runs'))])
    x, y = make_blobs()
    (tmp_path/'elsewhere').mkdir()
    np.savez(tmp_path/'elsewhere'/'blobs.npz', x=x, y=y)
    r = subprocess.run([sys.executable, '-c', alone, str(site)], cwd=tmp_path/'elsewhere',
                       env=os.environ | dict(PYTHONPATH=str(site)), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr[-3000:]
    assert ((tmp_path/'elsewhere'/'o'/'report.html').exists()
            and {f'dec_tutorial.{m}' for m in (
                'data', 'training', 'sae', 'dec', 'evaluation', 'command_line', 'inside.machine',
                'paper.tables')} <= set(r.stdout.splitlines()[-1].split()))

def test_imports_go_down_the_layers():
    "The contract stands in .importlinter"
    r = subprocess.run([script('lint-imports'), '--no-cache'], cwd=root, capture_output=True,
                       text=True)
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]

def test_the_two_names_of_the_package():
    import dec_tutorial
    from dec_tutorial import DEC, load_data
    from dec_tutorial.data import load_data as of_data
    from dec_tutorial.dec import DEC as of_dec
    assert DEC is of_dec and load_data is of_data and {'DEC', 'load_data'} <= {*dir(dec_tutorial)}
    with pytest.raises(AttributeError, match='no attribute .SDEC.'): dec_tutorial.SDEC
    quick = "import sys, dec_tutorial; sys.exit('torch' in sys.modules)"       # the name alone is free
    assert subprocess.run([sys.executable, '-c', quick]).returncode == 0
