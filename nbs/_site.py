"What the site adds to nbdev: settings.ini names it as `renderer` and `procs`"
import inspect, re, textwrap, warnings, yaml
from importlib import import_module
from pathlib import Path
from execnb.nbio import read_nb
from fastcore.docments import docments
from nbdev.config import get_config
from nbdev.process import Processor
from nbdev.showdoc import BasicMarkdownRenderer

warnings.filterwarnings('ignore', 'Found cells containing imports')  # hidden cells set a variable

def exported(sym):
    "A class as the library has it: Python finds no comments in a class of a notebook"
    from dec_tutorial._modidx import d
    for module, names in d['syms'].items():
        if f'{module}.{sym.__name__}' in names: return getattr(import_module(module), sym.__name__)
    return sym

def short(annotation):
    "An annotation as one reads it, without modules; in words, if a command converts to it"
    if inspect.isfunction(annotation): return annotation.__name__.strip('_').replace('_', ' ')
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return '`' + re.sub(r'\b\w+\.', '', text).replace(' | ', ' or ') + '`'

def parameter_row(name, doc, annotation, default=inspect.Parameter.empty):
    "A line of the table of parameters"
    if hasattr(annotation, 'help'): # of a command
        doc, annotation = annotation.help, annotation.type or str
    kind = '' if annotation is inspect.Parameter.empty else short(annotation)
    if default is inspect.Parameter.empty: usual = ''
    else:
        names = (getattr(default, key, None) for key in ('__name__', 'name'))
        usual = next(filter(None, names), repr(default))
    cells = [f'**{name}**', kind, usual and f'`{usual}`', doc or '']
    return '| ' + ' | '.join(c.replace('|', r'\|').replace('\n', ' ') for c in cells) + ' |'

class WithTable(BasicMarkdownRenderer):
    "A signature of names alone, the docstring, and a table of parameters"
    def __init__(self, sym, name=None, title_level=3):
        if inspect.isclass(sym): sym = exported(sym)
        super().__init__(sym, name=name, title_level=title_level)
        self.parameters = [p for p in self.sig.parameters.values() if p.name != 'self'] \
                          if self.sig else []
        kind = 'class' if inspect.isclass(sym) else 'def'
        line = f'{kind} {self.nm}({", ".join(p.name for p in self.parameters)})'
        self.dm = textwrap.fill(line, 90, subsequent_indent='    ')

    def _repr_markdown_(self):
        docs = docments(self.sym, full=True)
        rows = [parameter_row(p.name, docs.get(p.name, {}).get('docment'), p.annotation, p.default)
                for p in self.parameters]
        back = docs.get('return')
        if back and back.docment: rows.append(parameter_row('returns', back.docment, back.anno))
        if not rows: return super()._repr_markdown_()
        # the dashes give the widths
        head = '::: {.parameters}\n| | type | default | |\n|---|---|---|-------|\n'
        return super()._repr_markdown_() + '\n\n' + head + '\n'.join(rows) + '\n:::'

defined = re.compile(r'^(?:show_doc\((?:\w+\.)*|(?:async )?(?:class|def) )(\w+)', re.M)

class in_order(Processor):
    """What is documented side by side stands in the order in which it is written, each source
    after its documentation, and folded unless it is the lesson: on the walk"""
    def place(self, cell):
        place = max(self.places.get(name, -1) for name in defined.findall(cell.source))
        return place, not hasattr(cell, 'has_sd')

    def arrange(self, run):
        run = sorted(run, key=self.place)
        for above, cell in zip(run, run[1:]):
            if hasattr(above, 'has_sd') and Path(self.nb.path_).name[0] != '0':
                cell.source = cell.source.replace('code-fold: show', 'code-fold: true')
        return run

    def begin(self):
        written = '\n'.join(cell.source for cell in read_nb(self.nb.path_).cells)
        names = defined.findall(written)
        self.places = {name: i for i, name in enumerate(names)}
        cells, run = self.nb.cells, []
        for i, cell in enumerate([*cells, None]):
            shown = cell and cell.cell_type == 'code' and defined.search(cell.source) \
                    and (hasattr(cell, 'has_sd') or 'exports' in cell.directives_)
            if shown: run.append(cell)
            elif run: cells[i-len(run):i], run = self.arrange(run), []

class addressed(Processor):
    "The address of a page, for those who share it"
    def begin(self):
        front = self.nb.cells[0]
        told, cfg = yaml.safe_load(front.source.strip().strip('-')), get_config()
        page = f'{cfg.doc_host}{cfg.doc_baseurl}/{told["output-file"]}'
        told['include-in-header'] = [dict(text=f'<meta property="og:url" content="{page}">')]
        front.source = f'---\n{yaml.dump(told)}\n---\n'

link_in_link = re.compile(r'\[([^][]*)\[(`[^`]+`)\]\([^)]*\)([^][]*)\](?=\()')
private = re.compile(r'\[(`_\w+`)\]\([^)]*\)')
picture = re.compile(r'^!\[([^]]+)\]\(([^)]+)\)$', re.M)

def for_quarto(cell):
    "What nbdev links too much, pictures whose text is no caption, and what only Colab needs"
    if cell.cell_type == 'markdown':
        cell.source = link_in_link.sub(r'[\1\2\3]', cell.source)
        cell.source = private.sub(r'\1', cell.source)
        cell.source = picture.sub(r'![](\2){fig-alt="\1"}', cell.source)
    elif "'google.colab' in sys.modules" in cell.source: cell.source = None
