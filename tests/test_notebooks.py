"Every notebook runs, in time, and keeps to the house's form"
import json, os, re, shutil, sys
from functools import cache
from pathlib import Path
import pytest, yaml
from conftest import root, settings

# what a page says that it takes, in seconds of one core without units for bfloat16
promises = {'a few seconds': 15, 'half a minute': 45, 'a minute': 90, 'two minutes': 150,
            'three minutes': 210, 'four minutes': 270}
says = re.compile(r'\*About (\d+) minutes to read, (.+) to run on one processor core\.')
unseen = {'hide', 'slow', 'cuda', 'notest', 'eval', 'output', 'include'}
unseen_code = {'hide', 'export', 'default_exp', 'eval', 'echo'}

@cache
def cells(path):
    "Cells with their source as one text, and the lines `#| …` as a dictionary"
    found = json.loads(path.read_text(encoding='utf-8'))['cells']
    for c in found:
        c['source'] = ''.join(c['source'])
        lines = re.findall(r'^#\| *([\w-]+)(?:: *(.*))?$', c['source'], re.M)
        c['directives'] = {key: yaml.safe_load(value) for key, value in lines}
    return found

def code(path): return [c for c in cells(path) if c['cell_type'] == 'code']
def prose(path): return [c['source'] for c in cells(path) if c['cell_type'] == 'markdown']
def pictures(path): # and the cells that drew them
    return [(c, ''.join(o['data']['image/png'])) for c in code(path) for o in c['outputs']
            if 'image/png' in o.get('data', {})]

def promised(path):
    said = says.search(cells(path)[1]['source'])
    return promises[said[2] if said else 'three minutes']

nbs = sorted((root/'nbs').glob('*.ipynb'), key=promised, reverse=True)
notebooks = pytest.mark.parametrize('path', nbs, ids=[p.stem for p in nbs])
walk = [p for p in nbs if p.stem[:2].isdigit()]
numbered = pytest.mark.parametrize('path', walk, ids=[p.stem for p in walk])

def minutes_to_read(path): # before its quiz: 180 words a minute, 25 lines of the code that is shown
    words = lines = 0
    for c in cells(path):
        if c['cell_type'] == 'code':
            if unseen_code & c['directives'].keys(): continue
            lines += sum(bool(line.strip()) for line in c['source'].splitlines()
                         if not line.startswith('#|'))
        elif '## Check yourself' in c['source']: break
        else: words += len(re.sub(r'(?<=^# )\d\d|\]\([^)]*\)|<[^>]*>', '', c['source']).split())
    return round(words/180 + lines/25)

class TestRun:
    def run(self, path, site, flags):
        """As a user has it: the package from its wheel, an empty folder around the notebook, and
        nothing that only developers install"""
        import torch
        from nbdev.test import test_nb
        from threadpoolctl import threadpool_limits
        for name in [m for m in sys.modules if m.split('.')[0] == 'dec_tutorial']:
            del sys.modules[name]
        for name in ('nbdev', 'mpmath', 'skimage', 'clustpy', 'tensorboard', 'umap'):
            sys.modules[name] = None
        sys.path.insert(0, str(site))
        os.environ.update(PYTHONPATH=str(site), OMP_NUM_THREADS='1')
        torch.set_num_threads(1)                         # its seconds are promised for one core
        threadpool_limits(1)
        copy = Path(shutil.copy(path, Path.cwd()))
        ok, took = test_nb(copy, skip_flags=flags, basepath=copy.parent)
        import dec_tutorial
        assert dec_tutorial.__file__.startswith(str(site))
        print(f'{took:.1f} {sum(os.times()[:4]):.1f}')             # with processes that it started
        raise SystemExit(not ok)

    @pytest.mark.pages
    @notebooks
    def test_runs(self, path, built, start, record_property):
        child = start(self.run, path, built[2], settings['tst_flags'].split()).finish(1800)
        assert child.returncode == 0, child.stderr[-6000:]
        took, cpu = map(float, child.stdout.split()[-2:])
        record_property('took', f'{took:.0f} s, {cpu:.0f} s of the processor')
        assert cpu <= 2*promised(path)                                # old cores are twice as slow

class TestForm:
    @notebooks
    def test_title_and_promise(self, path):
        assert re.match(r'# [^\n]+\n\n> [^\n]+', cells(path)[0]['source'])

    @numbered
    def test_sections(self, path):
        wanted = ['## Check yourself', '<summary>Answers</summary>', '## Summary', '## Exercises',
                  '## References']
        text = '\n'.join(prose(path))
        assert [w for w in wanted if w not in text] == []

    @numbered
    def test_what_to_read_before_comes_before(self, path):
        badge = cells(path)[1]['source']
        assert all(earlier < path.name[:2] for earlier in re.findall(r'\]\((\d\d)_', badge))

    @numbered
    def test_says_what_it_takes(self, path):
        assert int(says.search(cells(path)[1]['source'])[1]) == minutes_to_read(path)

    @notebooks
    def test_is_in_the_sidebar(self, path):
        sidebar = (root/'nbs'/'sidebar.yml').read_text(encoding='utf-8')
        assert re.search(rf'(- |href: ){path.name}\n', sidebar)

    @notebooks
    def test_cells_are_short_and_narrow(self, path): # as a page is read
        functions = [c['source'] for c in code(path) if not re.search('^class ', c['source'], re.M)]
        assert [src for src in functions if len(src.splitlines()) > 40] == []
        quoted = re.findall(r'^```.*?^```', '\n'.join(prose(path)), re.M | re.S)
        lines = '\n'.join([c['source'] for c in code(path)] + quoted).splitlines()
        assert [l for l in lines if len(l) > 100 and not l.startswith('#|')] == []

    @notebooks
    def test_links_lead_somewhere(self, path):
        text = re.sub(r'```.*?```|`[^`\n]*`', '', '\n'.join(prose(path)), flags=re.S)
        found = re.findall(r'(?:\]\(|(?:href|src)=")([\w/.]+\.(?:ipynb|md|png|svg|jpe?g|html))\b',
                           text)
        assert [f for f in found if not (path.parent/f).exists()] == []

class TestOutputs:
    @notebooks
    def test_figures_are_described(self, path):
        for c, _ in pictures(path):
            alt = c['directives'].get('fig-alt') or re.search('alt=(.*)', c['source'])[1]
            assert len(alt) > 30, c['source']

    @notebooks
    def test_are_light(self, path):
        assert all(len(png)*3/4 < 100e3 for _, png in pictures(path)), 'run .ci/light'
        assert path.stat().st_size < 1.5e6

    @notebooks
    def test_are_stored_and_none_is_an_error(self, path):
        for c in code(path):
            assert 'error' not in [o['output_type'] for o in c['outputs']], c['source']
            if unseen & c['directives'].keys(): continue
            if 'fig-cap' in c['directives']: assert 'image/' in str(c['outputs']), c['source']
            if re.search(r'^(for .*: )?print\(', c['source'], re.M):
                assert 'stream' in [o['output_type'] for o in c['outputs']], c['source']
