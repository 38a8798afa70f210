"""---
title: All public names
description: The library by module, in the order of the pages that explain it
repo-actions: false
include-in-header:
  - text: <meta property="og:url" content="https://dec-tutorial.github.io/dec-tutorial/api.html">
---"""
# nbdev runs this file when it builds the site, and what it prints is the page api.qmd
import ast, re
from pathlib import Path
from nbdev.config import get_config

lib = get_config().lib_path
modules = []
for path in lib.rglob('[!_]*.py'):
    name = '.'.join(path.relative_to(lib.parent).with_suffix('').parts)
    # every part begins with the path of its notebook
    parts = path.read_text(encoding='utf-8').split('\n# %% ')[1:]
    modules.append((Path(parts[1].split()[0]).name, name, parts))

for page, module, (names, *parts) in sorted(modules):
    print(f'\n## {module}\n\n| | |\n|---|-------|')
    for part in parts:
        where = Path(part.split()[0]).name
        for d in ast.parse('# ' + part).body:
            if not isinstance(d, (ast.FunctionDef, ast.ClassDef)): continue
            if f"'{d.name}'" not in names: continue
            says = ast.get_docstring(d).splitlines()[0].replace('|', r'\|')
            kind = 'class ' if isinstance(d, ast.ClassDef) else ''
            print(f'| {kind}[`{d.name}`]({where}#{d.name.lower()}) | {says} |')
