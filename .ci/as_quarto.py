"The pages as Quarto would make them, without Quarto: by Pandoc, which is inside Quarto, too"
import base64, html, os, re, subprocess, tempfile
from pathlib import Path
from shutil import copytree, copy2
import nbformat, pypandoc, yaml

here = Path(__file__).resolve().parent
root = here.parent
packages = 'mathjax@3 bootstrap@5 bootswatch@5 sass reveal.js@5'.split()
badge = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='90' height='20'/>"
mathjax = '''<script>MathJax = {tex: {packages: {'[-]': ['noundefined', 'noerrors']}}}</script>
<script src="node_modules/mathjax/es5/tex-mml-chtml.js"></script>'''

shell = '''<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{header}
<link rel="icon" href="{favicon}"><meta property="og:image" content="{card}">
<link id="theme" rel="stylesheet" href="light.css"></head><body class="quarto-light">
<header><nav class="navbar bg-primary" data-bs-theme="dark"><div class="navbar-nav">{navbar}</div></nav></header>
<div class="page-columns"><nav id="quarto-sidebar" aria-label="Pages">{sidebar}</nav>
<main class="content" id="quarto-document-content">
<h1 class="title">{title}</h1><div class="description"><p>{description}</p></div>
{body}{source}</main></div>
<footer class="footer"><div class="nav-footer">{footer}</div></footer>
{mathjax}{after}</body></html>'''

slides = '''<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>
<link rel="icon" href="{favicon}">
<link rel="stylesheet" href="node_modules/reveal.js/dist/reveal.css">
<link rel="stylesheet" href="node_modules/reveal.js/dist/theme/white.css">
<style>{style}</style></head><body><div class="reveal"><div class="slides">
<section id="title-slide"><h1 class="title">{title}</h1><p>{description}</p></section>
{body}</div><div class="footer">{footer}</div></div>
<script src="node_modules/reveal.js/dist/reveal.js"></script>
<script>Reveal.initialize({{width: 1050, height: 700, transition: 'none', slideNumber: '{number}'}})</script>
{mathjax}</body></html>'''

def output_markdown(output, options):
    "An output of a cell as the Markdown that Quarto makes of it"
    if output.output_type == 'stream':
        return f'::: {{.cell-output .cell-output-{output.name}}}\n```\n{output.text}\n```\n:::'
    data = output.data
    if options.get('output') == 'asis': return data['text/markdown']
    if 'text/markdown' in data: shown = data['text/markdown']
    elif 'text/html' in data: shown = f'```{{=html}}\n{data["text/html"]}\n```'
    elif 'image/svg+xml' in data:
        shown = picture('svg+xml', base64.b64encode(data['image/svg+xml'].encode()).decode(), options)
    elif 'image/png' in data: shown = picture('png', data['image/png'].strip(), options)
    else: shown = f'```\n{data.get("text/plain", "")}\n```'
    return f'::: {{.cell-output .cell-output-display}}\n{shown}\n:::'

def picture(kind, coded, options):
    alt, caption = html.escape(options.pop('fig-alt', '')), options.get('fig-cap', '') # for the first
    return (f'<figure class="figure">\n<img class="img-fluid" alt="{alt}" '
            f'src="data:image/{kind};base64,{coded}">\n<figcaption>\n\n{caption}\n\n</figcaption></figure>')

def cell_markdown(cell):
    if cell.cell_type == 'raw': return ''                            # the front matter
    if cell.cell_type == 'markdown': return cell.source
    options = {key: yaml.safe_load(value)
               for key, value in re.findall(r'^#\| *([\w-]+): *(.*)$', cell.source, re.M)}
    if options.get('include') is False: return ''
    code = re.sub(r'^#\|.*\n?', '', cell.source, flags=re.M)
    code = f'```{{.python .cell-code}}\n{code}\n```'
    if 'code-fold' in options:
        is_open = ' open' if options['code-fold'] == 'show' else ''
        summary = options['code-summary']
        code = f'<details class="code-fold"{is_open}><summary>{summary}</summary>\n\n{code}\n\n</details>'
    if options.get('echo') is False: code = ''
    outputs = [] if options.get('output') is False else cell.get('outputs', [])
    if options.get('output') == 'asis': return '\n\n'.join(output_markdown(o, options) for o in outputs)
    return '\n\n'.join(['::: {.cell}', code, *[output_markdown(o, options) for o in outputs], ':::'])

def render(text, to='html5'):
    made = pypandoc.convert_text(text, to, 'markdown', ['--mathjax', '--section-divs', '--wrap=none'])
    made = re.sub(r'(<figure>\s*<img [^>]*?) alt="[^"]*"', r'\1', made)     # as Quarto leaves it
    return re.sub(r'(<img[^>]*) src="https?:[^"]*"', rf'\1 src="{badge}"',
                  made.replace('data-fig-alt=', 'alt='))

def styles(theme, own, grid):
    "Bootstrap with a theme of Bootswatch and our colours, as Quarto puts them together"
    widths = ''.join(f'--{name}: {width};' for name, width in grid.items())
    return '\n'.join([f':root {{ {widths} }}', (root/'_proc'/own).read_text(), f'$web-font-path: false;\n@import "bootswatch/dist/{theme}/variables";',
                      '@import "bootstrap/scss/bootstrap";', f'@import "bootswatch/dist/{theme}/bootswatch";',
                      (here/'quarto.scss').read_text(), (root/'_proc/styles.css').read_text()])

def fetch(out):
    "What Quarto brings and what it copies"
    subprocess.run(['npm', 'install', '--silent', '--prefix', out, *packages], check=True)
    proc = root/'_proc'
    config = yaml.safe_load((proc/'_quarto.yml').read_text())
    for name in config['project']['resources']:
        if (proc/name).is_dir(): copytree(proc/name, out/name, dirs_exist_ok=True)
        elif (proc/name).exists(): copy2(proc/name, out)
    look = config['format']['html']
    for mode, (theme, own) in look['theme'].items():
        (out/f'{mode}.scss').write_text(styles(theme, own, look['grid']))
        subprocess.run([out/'node_modules/.bin/sass', '--quiet', '--load-path', out/'node_modules', '--no-source-map',
                        out/f'{mode}.scss', out/f'{mode}.css'], check=True)
    return config

def read_page(path):
    "Front matter and Markdown"
    if path.suffix == '.ipynb':
        cells = nbformat.read(path, 4).cells
        front, text = cells[0].source, '\n\n'.join(map(cell_markdown, cells))
    else: _, front, text = path.read_text().split('---\n', 2)
    return yaml.safe_load(front.strip().strip('-')), text

def entries(contents, titles):
    "Links of the side bar"
    for item in contents:
        if isinstance(item, str): yield f'<a href="{item}">{titles[item]}</a>'
        elif 'contents' in item:
            yield f'<b>{item["section"]}</b>'
            yield from entries(item['contents'], titles)
        elif 'href' in item: yield f'<a href="{item["href"]}">{item["text"]}</a>'
        else: yield f'<b>{item["text"]}</b>'

def make(out):
    "All pages in `out`"
    from nbdev.quarto import refresh_quarto_yml
    from nbdev.serve import proc_nbs
    os.chdir(root)
    refresh_quarto_yml()
    proc_nbs(force=True, n_workers=0)
    config = fetch(out)
    site, about = config['website'], yaml.safe_load((root/'_proc/nbdev.yml').read_text())['website']
    paths = sorted([*(root/'_proc').glob('*.ipynb'), *(root/'_proc').glob('*.qmd')])
    pages = {p.name: read_page(p) for p in paths}
    names = {name: front.get('output-file', Path(name).stem + '.html') for name, (front, _) in pages.items()}
    titles = {name: front['title'] for name, (front, _) in pages.items()}
    contents = yaml.safe_load((root/'_proc/sidebar.yml').read_text())['website']['sidebar']['contents']
    bar = [dict(text=about['title'], href='index.ipynb'), *site['navbar']['left']]
    whole = dict(lang=config['lang'], mathjax=mathjax, favicon=site['favicon'], card=site['open-graph']['image'],
                 navbar='\n'.join(entries(bar, titles)), sidebar='\n'.join(f'<div>{e}</div>' for e in entries(contents, titles)),
                 footer='\n'.join(f'<div>{render(text)}</div>' for text in site['page-footer'].values()),
                 after=''.join(part['text'] for part in config['format']['html']['include-after-body']))
    for name, (front, text) in pages.items():
        where = [about['repo-url'], 'blob', about['repo-branch'], site.get('repo-subdir'), name]
        source = f'<a href="{"/".join(filter(None, where))}">View source</a>'
        header = ''.join(part['text'] for part in front.get('include-in-header', []))
        page = whole | dict(title=front['title'], description=front.get('description', ''), source=source if front.get('repo-actions', True) else '',
                            header=header)
        deck = front.get('format', {}).get('revealjs')
        if deck:
            page |= dict(number=deck.get('slide-number', ''), footer=render(deck.get('footer', '')),
                         style=(root/'_proc'/deck['css']).read_text() if 'css' in deck else '')
        made = (slides if deck else shell).format(body=render(text, 'revealjs' if deck else 'html5'), **page)
        made = re.sub(r'(?<=href=")\w+\.(ipynb|qmd)', lambda m: names.get(m[0], m[0]), made)
        (out/names[name]).write_text(made)
