"The pages as Quarto would make them, but by Pandoc, which is inside Quarto, and Bootstrap alone"
import base64, html, os, re, subprocess
from pathlib import Path
from shutil import copy2, copytree
import nbformat, pypandoc, yaml

root = Path(__file__).resolve().parent.parent
badge = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='90' height='20'/>"
ours = '''<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{header}
<link rel="icon" href="{favicon}"><meta property="og:image" content="{card}">'''
mathjax = '''<script>
MathJax = {{tex: {{packages: {{'[-]': ['noundefined', 'noerrors']}}}}}}</script>
<script src="node_modules/mathjax/es5/tex-mml-chtml.js"></script>'''

page_shell = ours + '''<link id="theme" rel="stylesheet" href="light.css"></head>
<body class="quarto-light"><script>function quartoToggleColorScheme() {{
theme.href = 'dark.css'; document.body.className = 'quarto-dark' }}</script><div class="page-columns"><nav id="quarto-sidebar"></nav>
<main class="content"><h1 class="title">{title}</h1><p class="description">{description}</p>
{body}{source}</main></div><footer>{footer}</footer>''' + mathjax + '{after}</body></html>'

slides_shell = ours + '''
<link rel="stylesheet" href="node_modules/reveal.js/dist/reveal.css">
<link rel="stylesheet" href="node_modules/reveal.js/dist/theme/white.css">
<style>{style}</style></head><body><div class="reveal"><div class="slides"><section id="title-slide"><h1>{title}</h1></section>
{body}</div><div class="footer">{footer}</div></div>
<script src="node_modules/reveal.js/dist/reveal.js"></script><script>
Reveal.initialize({{width: 1050, height: 700, transition: 'none', slideNumber: '{number}'}})
</script>''' + mathjax + '</body></html>'

def picture(kind, coded, options):
    alt = html.escape(options.pop('fig-alt', ''))                  # of the first picture of a cell
    return f'''<figure class="figure">
<img class="img-fluid" alt="{alt}" src="data:image/{kind};base64,{coded}">
<figcaption>\n\n{options.get('fig-cap', '')}\n\n</figcaption></figure>'''

def output_markdown(output, options):
    "An output of a cell as the Markdown that Quarto makes of it"
    if output.output_type == 'stream':
        return f'::: {{.cell-output .cell-output-{output.name}}}\n```\n{output.text}\n```\n:::'
    data = output.data
    if 'text/markdown' in data: shown = data['text/markdown']
    elif 'text/html' in data: shown = f'```{{=html}}\n{data["text/html"]}\n```'
    elif 'image/png' in data: shown = picture('png', data['image/png'].strip(), options)
    elif 'image/svg+xml' in data:
        coded = base64.b64encode(data['image/svg+xml'].encode()).decode()
        shown = picture('svg+xml', coded, options)
    else: shown = f'```\n{data.get("text/plain", "")}\n```'
    return f'::: {{.cell-output .cell-output-display}}\n{shown}\n:::'

def cell_markdown(cell):
    if cell.cell_type == 'raw': return ''                          # the front matter
    if cell.cell_type == 'markdown': return cell.source
    options = {key: yaml.safe_load(value)
               for key, value in re.findall(r'^#\| *([\w-]+): *(.*)$', cell.source, re.M)}
    if options.get('include') is False: return ''
    code = re.sub(r'^#\|.*\n?', '', cell.source, flags=re.M)
    code = f'```{{.python .cell-code}}\n{code}\n```'
    if 'code-fold' in options:
        is_open = 'open' if options['code-fold'] == 'show' else ''
        code = f'<details {is_open}><summary>Exported source</summary>\n\n{code}\n\n</details>'
    if options.get('echo') is False: code = ''
    hidden = options.get('output') is False
    outputs = [output_markdown(o, options) for o in cell.outputs if not hidden]
    asis = [o.data['text/markdown'] for o in cell.outputs if options.get('output') == 'asis']
    if asis: return '\n\n'.join(asis)
    return '\n\n'.join(['::: {.cell}', code, *outputs, ':::'])

def read_page(path):
    "Front matter and Markdown"
    if path.suffix == '.ipynb':
        cells = nbformat.read(path, 4).cells
        front, text = cells[0].source.strip().strip('-'), '\n\n'.join(map(cell_markdown, cells))
    else: _, front, text = path.read_text().split('---\n', 2)
    return yaml.safe_load(front), text

def render(text, to='html5'):
    how = ['--mathjax', '--section-divs', '--wrap=none']
    made = pypandoc.convert_text(text, to, 'markdown', how).replace('data-fig-alt=', 'alt=')
    made = re.sub(r'(<figure>\s*<img [^>]*?) alt="[^"]*"', r'\1', made)             # as Quarto does
    return re.sub(r'(<img[^>]*) src="https?:[^"]*"', rf'\1 src="{badge}"', made)

def style(out, mode, theme, own, grid):
    "Bootstrap with a theme of Bootswatch and our colours, in Quarto's order"
    widths = ''.join(f'--{name}: {width};' for name, width in grid.items())
    rules = [Path(__file__).with_name('quarto.scss'), root/'_proc'/'styles.css']
    parts = [f':root {{ {widths} }}', (root/'_proc'/own).read_text(), '$web-font-path: false;',
             f'@import "bootswatch/dist/{theme}/variables", "bootstrap/scss/bootstrap";',
             f'@import "bootswatch/dist/{theme}/bootswatch";', *(f.read_text() for f in rules)]
    (out/f'{mode}.scss').write_text('\n'.join(parts))
    subprocess.run([out/'node_modules/.bin/sass', '--quiet', '--no-source-map', '--load-path',
                    out/'node_modules', out/f'{mode}.scss', out/f'{mode}.css'], check=True)

def make(out):
    "All pages in `out`, with nothing beside them but what Quarto would copy"
    from nbdev.quarto import refresh_quarto_yml
    from nbdev.serve import proc_nbs
    os.chdir(root)
    refresh_quarto_yml()
    proc_nbs(force=True, n_workers=0)
    subprocess.run(['npm', 'install', '--silent', '--prefix', out, 'mathjax@3', 'bootstrap@5',
                    'bootswatch@5', 'sass', 'reveal.js@5'], check=True)
    config = yaml.safe_load((root/'_proc'/'_quarto.yml').read_text())
    added = yaml.safe_load((root/'_proc'/'nbdev.yml').read_text())
    site, look = config['website'] | added['website'], config['format']['html']
    for name in config['project']['resources']:
        if (root/'_proc'/name).is_dir(): copytree(root/'_proc'/name, out/name, dirs_exist_ok=True)
        elif (root/'_proc'/name).exists(): copy2(root/'_proc'/name, out)
    for mode, (theme, own) in look['theme'].items(): style(out, mode, theme, own, look['grid'])
    pages = {path.name: read_page(path) for path in sorted((root/'_proc').glob('*.[iq]*'))}
    names = {name: front.get('output-file', Path(name).stem + '.html')
             for name, (front, _) in pages.items()}
    for name, (front, text) in pages.items():
        where = [site['repo-url'], 'blob', site['repo-branch'], site.get('repo-subdir', ''), name]
        source = f'<a href="{"/".join(filter(None, where))}">View source</a>'
        page = dict(title=front['title'], description=front.get('description', ''),
                    lang=config['lang'], favicon=site['favicon'], card=site['open-graph']['image'],
                    header=''.join(part['text'] for part in front.get('include-in-header', [])),
                    source=source if front.get('repo-actions', True) else '',
                    after=''.join(part['text'] for part in look['include-after-body']))
        deck = front.get('format', {}).get('revealjs')
        if deck:
            page |= dict(footer=render(deck.get('footer', '')), number=deck.get('slide-number', ''),
                         style=(root/'_proc'/deck['css']).read_text())
            made = slides_shell.format(body=render(text, 'revealjs'), **page)
        else:
            footer = render('\n\n'.join(site['page-footer'].values()))
            made = page_shell.format(body=render(text), footer=footer, **page)
        made = re.sub(r'(?<=href=")\w+\.(ipynb|qmd)', lambda m: names.get(m[0], m[0]), made)
        (out/names[name]).write_text(made)
