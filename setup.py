"Everything that pip needs to know, read from settings.ini"
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

here = Path(__file__).parent
cfg = ConfigParser(delimiters=['='])
cfg.read(here/'settings.ini', encoding='utf-8')
c = cfg['DEFAULT']
minor = int(c['min_python'].split('.')[1])

setup(
    name=c['lib_name'], version=c['version'], author=c['author'], author_email=c['author_email'],
    description=c['description'], keywords=c['keywords'], license='Apache-2.0', url=c['git_url'],
    long_description=(here/'README.md').read_text(encoding='utf-8'), long_description_content_type='text/markdown',
    package_dir={'': '.'}, # an editable installation has the whole folder on its path, with nbs/_site.py
    packages=find_packages(include=[c['lib_path'], c['lib_path'] + '.*']), include_package_data=True,
    package_data={c['lib_path']: ['py.typed', '*.pyi', 'results/*.json', 'templates/*']},
    python_requires=f">={c['min_python']}", install_requires=c['requirements'].split(),
    extras_require={'dev': c['dev_requirements'].split(), 'peers': c['peer_requirements'].split(), 'stl10': c['stl10_requirements'].split(),
                    'rivals': c['rivals_requirements'].split()},
    classifiers=['Development Status :: 3 - Alpha', 'Intended Audience :: Developers', 'Intended Audience :: Education', 'Intended Audience :: Science/Research',
                 'Natural Language :: English'] + [f'Programming Language :: Python :: 3.{v}' for v in range(minor, 14)],
    entry_points={'console_scripts': c['console_scripts'].split(), 'nbdev': [f"{c['lib_path']}={c['lib_path']}._modidx:d"]},
    zip_safe=False,
)
