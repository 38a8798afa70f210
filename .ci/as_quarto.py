"The pages as Quarto would make them, but by Pandoc, which is inside Quarto, and Bootstrap alone"
import json, os, re, subprocess
from base64 import b64encode
from pathlib import Path
import nbformat, pypandoc, yaml

ci = Path(__file__).resolve().parent
proc = ci.parent/'_proc'
badge = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='90' height='20'/>"

def picture(data, options):
    if 'image/png' in data: image = 'png;base64,' + data['image/png'].strip()
    else: image = 'svg+xml;base64,' + b64encode(data['image/svg+xml'].encode()).decode()
    alt = options.get('fig-alt', '').replace('"', '&quot;')
    return f'![{options.get("fig-cap", "")}](data:image/{image}){{fig-alt="{alt}"}}'

def output_markdown(output, options):
    "An output of a cell as the Markdown that Quarto makes of it"
    data = output.get('data', {'text/plain': output.get('text')})
    if options.get('output') == 'asis': return data['text/markdown']
    if 'text/markdown' in data: shown = data['text/markdown']
    elif 'text/html' in data: shown = f'```{{=html}}\n{data["text/html"]}\n```'
    elif 'image' in str(data.keys()): shown = picture(data, options)
    else: shown = f'```\n{data["text/plain"]}\n```'
    return f'::: {{.cell-output .cell-output-{output.get("name", "display")}}}\n{shown}\n:::'

def cell_markdown(cell):
    if cell.cell_type != 'code': return cell.source
    options = {key: yaml.safe_load(value)
               for key, value in re.findall(r'^#\| *([\w-]+): *(.*)$', cell.source, re.M)}
    code = re.sub(r'^#\|.*\n?', '', cell.source, flags=re.M)
    code = f'```{{.python .cell-code}}\n{code}\n```'
    if options.get('code-fold') is True:
        code = f'<details><summary>Source</summary>\n\n{code}\n\n</details>'
    if options.get('echo') is False: code = ''
    return '\n\n'.join([code, *(output_markdown(o, options) for o in cell.outputs)])

def read_page(path):
    "Front matter and Markdown, as one text"
    if path.suffix == '.qmd': return path.read_text()
    return '\n\n'.join(map(cell_markdown, nbformat.read(path, 4).cells))

def colours(out, mode, theme, own):
    "A theme of Bootswatch with our colours, and without its font, which lies elsewhere"
    css = (out/'node_modules/bootswatch/dist'/theme/'bootstrap.min.css').read_text()
    css = re.sub(r'@import url\(.*?\);', '', css)
    ours = re.findall(r'^\$(.+: .+;)', (proc/own).read_text(), re.M)
    rules = ' '.join(f'--bs-{rule}' for rule in ours)
    (out/f'{mode}.css').write_text(css + ':root { ' + rules + ' }')

def make(out):
    "All pages in `out`, with nothing beside them but what Quarto would copy"
    from nbdev.quarto import refresh_quarto_yml
    from nbdev.serve import proc_nbs
    os.chdir(ci.parent)
    refresh_quarto_yml()
    proc_nbs(force=True, n_workers=0)
    config = yaml.safe_load((proc/'_quarto.yml').read_text())
    beside = [ci/'quarto.css', 'styles.css', 'slides.css', *config['project']['resources']]
    subprocess.run(['cp', '-r', *beside, out], cwd=proc, check=True)
    for mode, (theme, own) in config['format']['html']['theme'].items():
        colours(out, mode, theme, own)
    (out/'site.json').write_text(json.dumps(config))
    site = config['website'] | yaml.safe_load((proc/'nbdev.yml').read_text())['website']
    source = [site['repo-url'], 'blob', site['repo-branch'], site.get('repo-subdir')]
    pages = {path.name: read_page(path) for path in sorted(proc.glob('*.[iq]*'))}
    fronts = {name: yaml.safe_load(text.split('---\n')[1]) for name, text in pages.items()}
    html = {name: front.get('output-file', name.replace('.qmd', '.html'))
            for name, front in fronts.items()}
    for name, text in pages.items():
        to = 'revealjs' if 'format' in fronts[name] else 'html5'
        how = [f'--template={ci/"page.html"}', f'--metadata-file={out/"site.json"}',
               '--standalone', '--mathjax', '--section-divs', '--wrap=none']
        if fronts[name].get('repo-actions', True):
            how.append('--variable=source:' + '/'.join(filter(None, [*source, name])))
        made = pypandoc.convert_text(text, to, 'markdown', how)
        # pictures are described as Quarto does it, and none comes from elsewhere
        made = re.sub(r'(<figure>\s*<img [^>]*) alt="[^"]*"', r'\1', made)
        made = made.replace('data-fig-alt=', 'alt=')
        made = re.sub(r'(<img[^>]*) src="https?:[^"]*"', rf'\1 src="{badge}"', made)
        made = re.sub(r'(?<=href=")\w+\.(ipynb|qmd)', lambda link: html.get(link[0], link[0]), made)
        (out/html[name]).write_text(made)
