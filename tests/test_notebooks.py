"Every notebook runs, in time, and keeps to the house's form"
import ast, json, os, re, shutil, sys
from functools import cache
from pathlib import Path
import pytest, yaml
from conftest import root

nbs = sorted((root/'nbs').glob('*.ipynb'))
# what a page says that it takes, in seconds of one core without units for bfloat16
promises = {'a few seconds': 15, 'half a minute': 45, 'a minute': 90, 'two minutes': 150,
            'three minutes': 210, 'four minutes': 270}
says = re.compile(r'\*About \d+ minutes to read, (.+) to run on one processor core\. '
                  r'(Builds on \[|The first page).*\.\)?\*$')
notebooks = pytest.mark.parametrize('path', nbs, ids=lambda p: p.stem)
numbered = pytest.mark.parametrize('path', [p for p in nbs if p.stem[:2].isdigit()],
                                   ids=lambda p: p.stem)
# pages whose module stands in a layer of the house, or has another name
homes = {'32_scaling_out': 'inside.workers', '36_jobs': 'checkpoint',
         '38_machine': 'inside.machine', '40_reading': 'inside.reading',
         '42_benchmarks': 'inside.loaders'}
homes |= {p.stem: f'{layer}.{p.stem[3:]}'
          for tens, layer in (('1', 'paper'), ('2', 'family'), ('3', 'practice'))
          for p in nbs if p.stem[0] == tens and p.stem < '36' and p.stem not in homes}
homes |= {p: f'paper.{p[3:]}' for p in ('21_combining', '24_compare')}
unseen = {'hide', 'slow', 'cuda', 'notest', 'eval: false', 'output: false', 'include: false'}

@cache
def cells(path, kind=None):
    "(number, source, cell) of the cells of a kind"
    return [(i, ''.join(c['source']), c)
            for i, c in enumerate(json.loads(path.read_text(encoding='utf-8'))['cells'])
            if kind in (None, c['cell_type'])]

def directives(src): return {m.strip() for m in re.findall(r'^#\|(.*)$', src, re.M)}
def names(src): return {d.split(':')[0] for d in directives(src)}
def figures(path):
    return [(i, src, c) for i, src, c in cells(path, 'code') if 'fig-cap' in names(src)]
def pngs(cell):
    return [''.join(o['data']['image/png']) for o in cell['outputs']
            if 'image/png' in o.get('data', {})]

def run(path, site):
    """As a user has it: the package from its wheel, an empty folder around the notebook, and
    nothing that only developers install"""
    import torch
    from configparser import ConfigParser
    from nbdev.test import test_nb as run_nb
    from threadpoolctl import threadpool_limits
    for name in [m for m in sys.modules if m.split('.')[0] == 'dec_tutorial']: del sys.modules[name]
    for name in ('nbdev', 'hypothesis', 'mpmath', 'skimage', 'clustpy', 'tensorboard',
                 'torch.utils.tensorboard'):
        sys.modules[name] = None
    sys.path.insert(0, str(site))
    # one thread, since its seconds are those of one core
    os.environ.update(PYTHONPATH=str(site), OMP_NUM_THREADS='1')
    torch.set_num_threads(1); threadpool_limits(1)
    cfg = ConfigParser(delimiters=['=']); cfg.read(root/'settings.ini', encoding='utf-8')
    alone = shutil.copy(path, Path.cwd())
    ok, took = run_nb(Path(alone), skip_flags=cfg['DEFAULT']['tst_flags'].split(),
                      basepath=Path.cwd())
    import dec_tutorial
    assert dec_tutorial.__file__.startswith(str(site)), dec_tutorial.__file__
    print(f'{took:.1f} {sum(os.times()[:4]):.1f}')                     # with processes it started
    raise SystemExit(not ok)

@notebooks
def test_runs(path, built, start, record_property):
    child = start(run, path, built[2]).finish(1800)
    assert child.returncode == 0, child.stderr[-6000:]
    took, cpu = map(float, child.stdout.split()[-2:])
    record_property('took', f'{took:.0f} s, {cpu:.0f} s of the processor')
    said = says.search(cells(path)[1][1])
    assert cpu <= 2*promises[said[1] if said else 'three minutes']      # old cores are twice as slow

@notebooks
def test_title_and_promise(path):
    assert (re.fullmatch(r'# [^\n]+\n\n> [^\n]+(\n\n- format: revealjs)?\s*',
                         cells(path, 'markdown')[0][1])
            and cells(path)[0][2]['cell_type'] == 'markdown')

@numbered
def test_sections_and_name(path):
    text = '\n'.join(src for _, src, _ in cells(path, 'markdown'))
    found = re.findall(r'^## (Summary|Exercises|References)$', text, re.M)
    assert found == ['Summary', 'Exercises', 'References']
    assert re.findall(r'^## Check yourself$|<summary>Answers</summary>', text,
                      re.M) == ['## Check yourself', '<summary>Answers</summary>']
    exported = re.findall(r'^#\| *default_exp (\S+)',
                          '\n'.join(src for _, src, _ in cells(path, 'code')), re.M)
    assert exported in ([], [homes.get(path.stem, path.stem[3:])])
    assert re.search(r'export', ' '.join(d for _, src, _ in cells(path, 'code')
                                         for d in directives(src))) is None or exported

@notebooks
def test_is_in_the_sidebar(path):
    listed = yaml.safe_load(
        (root/'nbs'/'sidebar.yml').read_text(encoding='utf-8'))['website']['sidebar']['contents']
    assert path.name in [f for section in listed for f in section['contents']]

@notebooks
def test_cells_are_short_and_narrow(path): # as a page is read
    assert [(i, len(src.splitlines())) for i, src, _ in cells(path)
            if len(src.splitlines()) > 40] == []
    assert [(i, line) for i, src, _ in cells(path, 'code') for line in src.splitlines()
            if len(line) > 100 and not line.startswith('#|')] == []
    quoted = re.findall(r'^```.*?^```', '\n'.join(src for _, src, _ in cells(path, 'markdown')),
                        re.M | re.S)
    assert [line for block in quoted for line in block.splitlines() if len(line) > 100] == []

@notebooks
def test_figures_are_described(path):
    for i, src, _ in figures(path):
        d = {k: yaml.safe_load(v) for k, v in re.findall(r'^#\| *([\w-]+): *(.+)$', src, re.M)}
        assert (re.fullmatch(r'fig-[\w-]+', d.get('label', '')) and len(d['fig-cap']) > 10
                and len(d.get('fig-alt', '')) > 30), (i, d)
    labels = [l for _, src, _ in cells(path, 'code')
              for l in re.findall(r'^#\| *label: *(\S+)', src, re.M)]
    assert len(labels) == len(set(labels))
    for i, src, c in cells(path, 'code'):
        assert (not pngs(c) or 'fig-cap' in names(src)
                or 'alt=' in src), f'cell {i} draws a picture without a description'

@notebooks
def test_every_cell_has_a_name_of_its_own(path):
    ids = [c['id'] for _, _, c in cells(path)]
    assert len(ids) == len(set(ids))

@numbered
def test_says_what_it_takes(path):
    "Under the badge: minutes to read, time to run, what to read before"
    badge = cells(path)[1][1]
    assert path.name in badge and says.search(badge)[1] in promises
    earlier = re.findall(r'\]\((\d\d)_', badge)
    assert all(e < path.name[:2] for e in earlier) and (earlier or path.name.startswith('00'))

def expects_output(src):
    "Does a cell end by showing something? None where that can't be told"
    try: body = ast.parse(src).body
    except SyntaxError: return None                                               # shell commands
    if not body or not isinstance(body[-1], ast.Expr) or src.rstrip().endswith(';'): return None
    last = body[-1].value
    if isinstance(last, ast.Call):
        return getattr(last.func, 'id', '') in ('print', 'display', 'Markdown', 'Image') or None
    return isinstance(last, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare,
                             ast.Tuple, ast.List, ast.Dict, ast.JoinedStr)) or None

@notebooks
def test_outputs_are_stored_and_none_is_an_error(path):
    for i, src, c in cells(path, 'code'):
        kinds = {o['output_type'] for o in c['outputs']}
        assert 'error' not in kinds, f'cell {i}'
        if directives(src) & unseen: continue
        if 'fig-cap' in names(src): assert pngs(c), f'cell {i} has no picture'
        elif expects_output(src):
            assert kinds & {'stream', 'execute_result',
                            'display_data'}, f'cell {i} has no output: {src[-80:]}'

@notebooks
def test_links_lead_somewhere(path):
    for i, src, _ in cells(path, 'markdown'):
        text = re.sub(r'```.*?```|`[^`\n]*`', '', src, flags=re.S)
        for target in re.findall(r'\]\(([^)\s]+)\)|(?:href|src)="([^"]+)"', text):
            target = ''.join(target).split('#')[0]
            if re.search(r'\.(ipynb|md|png|svg|jpe?g|html)$', target) and '://' not in target:
                assert (path.parent/target).exists(), f'cell {i}: {target}'

@notebooks
def test_sizes(path):
    assert path.stat().st_size < 1.5e6
    for i, _, c in cells(path, 'code'):
        for p in pngs(c): assert len(p)*3/4 < 100e3, f'cell {i}: {len(p)*3/4e3:.0f} kB; run .ci/light'
