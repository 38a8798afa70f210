"What the playground computes inside a page is what the library computes"
import json, math
from types import SimpleNamespace
import numpy as np, pytest, torch
from py_mini_racer import MiniRacer
from sklearn.datasets import make_moons
from conftest import root
from dec_tutorial.evaluation import cluster_accuracy
from dec_tutorial.family.neighbours import averaged, neighbour_walk
from dec_tutorial.kl import kl_loss, kmeans_start
from dec_tutorial.paper.ablations import power_target
from dec_tutorial.paper.mistakes import chasing_loss, squared_kernel
from dec_tutorial.practice.playground import SCENES
from dec_tutorial.soft_assignment import log_soft_assign, soft_assign
from dec_tutorial.target_distribution import one_hot_target, target_distribution

play = '''(x, mu, net, settings) => {
    settings.net = net && stillNetwork(randomNumbers(0))
    const before = JSON.stringify(settings.net, (_, v) => v?.buffer ? [...v] : v)
    const m = makeModel(Float64Array.from(x), 2, Float64Array.from(mu), settings)
    const rows = Array.from({length: 100}, () => step(m))
    return JSON.stringify({rows, net: JSON.parse(before), z: [...m.z], mu: [...m.mu], q: [...m.q],
                           loss: klLoss(m.p, m.q, m.everyone, m.k)})}'''

templates = root/'dec_tutorial'/'templates'

@pytest.fixture(scope='module')
def javascript(): # javascript(function, *arguments): what it returns
    with MiniRacer() as engine:
        engine.eval((templates/'steps.js').read_text(encoding='utf-8'))
        yield lambda f, *args: engine.eval(f'({f})({", ".join(map(json.dumps, args))})')

def double(values): return torch.tensor(values, dtype=torch.float64)

def torch_network(layers):
    net = [torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(),
           torch.nn.Linear(16, 2)]
    for layer, saved in zip(net[::2], layers):
        layer.weight.data = double(saved['w']).view(len(saved['b']), -1)
        layer.bias.data = double(saved['b'])
    return torch.nn.Sequential(*net)

def assignment(s):
    if not s.get('wrongExponent'): return lambda z, mu: soft_assign(z, mu, s['alpha'])
    if s['alpha'] < math.inf: return lambda z, mu: squared_kernel(z, mu, s['alpha'])
    return lambda z, mu: log_soft_assign(z, mu, math.inf).mul(2).softmax(1)          # the limit

def by_the_library(x, mu, made, s):
    "Codes, centroids, q and loss after the same batches, by automatic differentiation"
    walk = double(neighbour_walk(x).toarray())
    mu, x = double(mu).requires_grad_(), double(x)
    net = torch_network(made['net']) if made['net'] else None
    z = x.clone().requires_grad_()
    assign = assignment(s)
    targets = {'one-hot': one_hot_target, 'no f': lambda q: power_target(q, 2., f=False),
               'neighbours': lambda q: target_distribution(averaged(q, walk, steps=10))}
    target = targets.get(s.get('target'), target_distribution)
    opt = torch.optim.SGD([{'params': [mu, *net.parameters()] if net else [mu]},
                           {'params': [] if net else [z], 'lr': .1*len(made['rows'][0])}], lr=.1)
    for t, b in enumerate(made['rows']):
        q = assign(net(x) if net else z, mu)
        if t % s.get('interval', 20) == 0: p = target(q.detach())
        if s.get('fOfBatch') and t and s.get('interval') != math.inf:
            p = target_distribution(q, q[b].detach().sum(0))
        if s.get('target') == 'through p':
            p = target_distribution(q, q[b].detach().sum(0))
            loss = chasing_loss(SimpleNamespace(q=q[b]))
        else: loss = kl_loss(p[b], q[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    z = net(x) if net else z
    q = assign(z, mu)
    return dict(z=z, mu=mu, q=q, loss=kl_loss(p, q))

switches = [*({'alpha': a} for a in (.1, 1., math.inf)), {'wrongExponent': True},
            {'wrongExponent': True, 'alpha': math.inf}, {'interval': math.inf},
            *({'target': t} for t in ('one-hot', 'no f', 'neighbours', 'through p')),
            {'batch': 16}, {'batch': 16, 'fOfBatch': True}, {'batch': 16, 'target': 'through p'}]

@pytest.mark.parametrize('switch', switches, ids=str)
@pytest.mark.parametrize('net', [False, True], ids=['free points', 'network'])
def test_a_hundred_steps(javascript, net, switch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2)) + np.repeat([[0, 0], [3, 0], [1, 2]], 20, 0)
    mu, s = [[.5, 0], [2, .5], [1, 1.5]], dict(alpha=1.) | switch
    made = json.loads(javascript(play, x.ravel().tolist(), np.ravel(mu).tolist(), net, s))
    for name, wanted in by_the_library(x, mu, made, s).items():
        wanted = wanted.detach().numpy().ravel()
        assert wanted == pytest.approx(np.ravel(made[name]), abs=1e-6), name

def test_stored_pages_have_the_scripts_of_today():
    scripts = {name: (templates/name).read_text(encoding='utf-8').strip()
               for name in ('steps.js', 'playground.js', 'digits.js')}
    outputs = [''.join(o['data']['text/html']) for path in (root/'nbs').glob('*.ipynb')
               for c in json.loads(path.read_text(encoding='utf-8'))['cells']
               for o in c.get('outputs', []) if 'dec-touch' in str(o)]
    assert len(outputs) == 7
    for html in outputs:
        kind = 'playground.js' if 'class="dec-touch dec-playground' in html else 'digits.js'
        assert scripts['steps.js'] in html and scripts[kind] in html, 'execute the page again'

def test_network_begins_as_the_identity(javascript):
    x = np.random.default_rng(0).standard_normal(40)*3
    made = json.loads(javascript(play.replace('100', '0'), x.tolist(), [0, 0, 1, 1], True, {}))
    assert made['z'] == pytest.approx(x, abs=1e-12)

def test_k_means_and_accuracy(javascript):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    x = 6*rng.standard_normal((5, 3))[y] + rng.standard_normal((300, 3))
    own = json.loads(javascript('x => JSON.stringify([...kMeans(Float64Array.from(x), 3, 5).own])',
                                x.ravel().tolist()))
    assert cluster_accuracy(kmeans_start(torch.tensor(x), 5)['labels'].numpy(), np.array(own)) == 1
    c = rng.integers(0, 5, 300)
    right = javascript('accuracy', y.tolist(), c.tolist(), 5)
    assert right == pytest.approx(cluster_accuracy(y, c))

told = '''(x, k, net, settings) => {
    settings.net = net && stillNetwork(randomNumbers(1))
    const points = Float64Array.from(x), mu = kMeans(points, 2, k).mu
    const m = makeModel(points, 2, mu, {rate: .2, ...settings})
    const loss = () => klLoss(m.p, m.q, m.everyone, k), first = loss()
    for (let t = 0; t < 600; t++) step(m)
    return JSON.stringify({clusters: clustersOf(m), q: [...m.q], fall: loss()/first})}'''

@pytest.mark.parametrize('scene, net, target, right, fall', [
    ('500 to 100', True, 'dec', (.7, .85), (.5, 1)), ('500 to 100', True, 'no f', (.99, 1), (0, 1)),
    ('500 to 100', True, 'neighbours', (.99, 1), (0, 1)),
    ('stripes', True, 'dec', (.5, .6), (0, 1)),
    ('moons', True, 'dec', (.77, .85), (0, 1)), ('moons', True, 'through p', (.5, .5), (0, .01)),
    ('wide and narrow', False, 'dec', (.94, .96), (0, 1)),
    ('wide and narrow', True, 'dec', (.96, 1), (0, 1))])
def test_pages_say_what_one_sees(javascript, scene, net, target, right, fall):
    s = SCENES[scene]
    group = make_moons(300, noise=.08, random_state=0)[1] if scene == 'moons' else (
        np.arange(len(s.x)) >= (500 if scene == '500 to 100' else 150))
    made = json.loads(javascript(told, s.x.ravel().tolist(), s.k, net, dict(target=target)))
    assert right[0] <= cluster_accuracy(group.astype(int), np.array(made['clusters'])) <= right[1]
    assert fall[0] <= made['fall'] <= fall[1]

def test_the_first_target_leaves_doubts(javascript):
    s = SCENES['stripes']
    made = json.loads(javascript(told, s.x.ravel().tolist(), s.k, False, dict(interval=math.inf)))
    assert made['fall'] < .1 and (np.max(np.reshape(made['q'], (-1, 2)), 1) < .7).sum() > 20
