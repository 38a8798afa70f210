"""Every formula against something independent: loops over plain floats, SciPy, automatic
differentiation, 50-digit arithmetic, brute force"""
import itertools, math
import mpmath as mp, numpy as np, pytest, scipy.stats, torch
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from torch.profiler import ProfilerActivity, profile
from conftest import make_blobs
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC
from dec_tutorial.methods import Method
from dec_tutorial.kl import dec_loss, kl_gradients, kl_loss, kmeans_start
from dec_tutorial.evaluation import cluster_accuracy, purity, scores
from dec_tutorial.soft_assignment import log_soft_assign, soft_assign
from dec_tutorial.sae import reconstruction_loss
from dec_tutorial.target_distribution import one_hot_target, row_entropy, target_distribution

ALPHAS = (.1, 1., 3., 100., math.inf)
few = settings(max_examples=40, deadline=None, derandomize=True, database=None)

def toy(n=12, k=4, d=3, seed=0, spread=2.): # float64 points and centroids
    g = torch.Generator().manual_seed(seed)
    return (spread*torch.randn(m, d, generator=g, dtype=torch.float64) for m in (n, k))

def some_p(n=12, k=4):
    return torch.softmax(3*torch.randn(n, k, generator=torch.Generator().manual_seed(9),
                                       dtype=torch.float64), 1)

z, mu = toy()
q = soft_assign(z, mu)

@pytest.mark.parametrize('dtype', [torch.float64, torch.float32])
@pytest.mark.parametrize('func, given', [
    (soft_assign, (z, mu)), (target_distribution, (q,)), (one_hot_target, (q,)),
    (row_entropy, (q,)), (kl_loss, (some_p(), q)), (kl_gradients, (z, mu, some_p()))])
def test_formulas_take_arrays_and_keep_their_type(func, given, dtype):
    given = [v.to(dtype) for v in given]
    ours, theirs = func(*given), func(*(v.numpy() for v in given))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert {v.dtype for v in (ours if isinstance(ours, tuple) else [ours])} == {dtype}

def test_whole_numbers_are_welcome():
    q = np.eye(2, dtype=int)
    assert (target_distribution(q).numpy() == q).all()
    assert kl_loss(q, q) == 0

# --- equation 1 ---

def kernel(z, mu, alpha): # of one pair of lists
    d2 = sum((a - b)**2 for a, b in zip(z, mu))
    return math.exp(-d2/2) if math.isinf(alpha) else (1 + d2/alpha)**(-(alpha + 1)/2)

def normalised(rows): return [[v/sum(r) for v in r] for r in rows]

@pytest.mark.parametrize('sizes', [(12, 4, 3), (1, 2, 1), (30, 5, 40)], ids=str)
@pytest.mark.parametrize('alpha', ALPHAS)
def test_soft_assign_is_equation_1(alpha, sizes):
    z, mu = toy(*sizes, spread=1.)
    naive = normalised([[kernel(a, b, alpha) for b in mu.tolist()] for a in z.tolist()])
    q = soft_assign(z, mu, alpha)
    torch.testing.assert_close(q, torch.tensor(naive, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(log_soft_assign(z, mu, alpha), q.log(), rtol=1e-10, atol=1e-12)

@pytest.mark.parametrize('alpha', ALPHAS)
def test_soft_assign_gradcheck(alpha):
    z, mu = (t.requires_grad_() for t in toy(n=4, k=3, spread=1.))
    assert torch.autograd.gradcheck(lambda z, mu: soft_assign(z, mu, alpha), (z, mu))

# --- equation 3 ---

def test_target_is_equation_3():
    f = [sum(c) for c in zip(*q.tolist())]
    naive = normalised([[v*v/s for v, s in zip(r, f)] for r in q.tolist()])
    torch.testing.assert_close(target_distribution(q), torch.tensor(naive, dtype=torch.float64),
                               rtol=1e-12, atol=0)

def test_target_is_a_constant():
    z, mu = (t.requires_grad_() for t in toy())
    q = soft_assign(z, mu)
    p = target_distribution(q)
    assert q.requires_grad and not p.requires_grad
    kl_loss(p, q).backward()                             # and the loss still reaches both through q
    assert z.grad.abs().sum() > 0 and mu.grad.abs().sum() > 0

@pytest.mark.parametrize('left', [0., 1e-45, 1e-38, 1e-30]) # 1e-45: float32's smallest number
def test_an_empty_cluster_stays_finite(left):
    q = torch.tensor([[.7, .3, 0], [.2, .8, 0], [1, 0, 0]]) + torch.tensor([0, 0, left])
    p = target_distribution(q)
    assert p.isfinite().all() and p[:, 2].max() <= left
    torch.testing.assert_close(p, target_distribution(q.double()).float(), rtol=1e-5, atol=1e-40)

# --- equations 2, 4, 5 ---

def test_kl_loss_is_scipys_entropy():
    p = some_p()
    p[0] = torch.tensor([0, 1, 0, 0])                                      # 0 log 0 is 0
    assert kl_loss(p, q).item() == pytest.approx(scipy.stats.entropy(p, q, axis=1).mean(),
                                                 rel=1e-12)
    assert kl_loss(q, q).item() == pytest.approx(0, abs=1e-15)

@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kl_loss_where_q_vanished(dtype):
    q = torch.tensor([[1., 0.]], dtype=dtype, requires_grad=True)
    assert kl_loss(torch.tensor([[1., 0.]], dtype=dtype), q).item() == 0
    loss = kl_loss(torch.tensor([[.5, .5]], dtype=dtype), q)
    loss.backward()
    assert 0 < loss.item() < math.inf and q.grad.isfinite().all()

def autograd(z, mu, p, alpha): # of the sum over points, p constant
    z, mu = z.clone().requires_grad_(), mu.clone().requires_grad_()
    return torch.autograd.grad(len(z)*kl_loss(p, soft_assign(z, mu, alpha)), (z, mu))

@pytest.mark.parametrize('alpha', ALPHAS)
def test_equations_4_and_5_are_automatic_differentiation(alpha):
    for ours, theirs in zip(kl_gradients(z, mu, some_p(), alpha), autograd(z, mu, some_p(), alpha)):
        assert theirs.abs().max() > .1
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)

# --- float32 at its worst, against 50 digits ---

def is_distribution(q, tol):
    return bool((q >= 0).all() and (q <= 1 + tol).all()
                and (q.double().sum(1) - 1).abs().max() <= tol)

def cells(lo, hi):
    return st.builds(lambda s, m, e: np.float32(s*m*10.**e), st.sampled_from((-1, 1)),
                     st.floats(1, 9), st.integers(lo, hi))

# every cell its own magnitude between 1e-30 and 1e30, or all the same; zeros; points on their
# centroid, one float32 beside it, or sharing one coordinate
@st.composite
def float32_problem(draw):
    lo, hi = draw(st.sampled_from([(-30, 30), (-4, 12)])
                  | st.sampled_from([(e, e) for e in range(-30, 31, 5)]))
    some = st.just(np.float32(0)) | cells(lo, hi)
    z = draw(arrays(np.float32, (4, 2), elements=some, fill=st.nothing()))
    mu = draw(arrays(np.float32, (3, 2), elements=some, fill=st.nothing()))
    if draw(st.booleans()):
        z[0], z[1], z[2, 0] = mu[0], np.nextafter(mu[0], np.float32(0)), mu[0, 0]
    return torch.from_numpy(z), torch.from_numpy(mu), draw(st.sampled_from([.1, 1., 100.]))

def exactly(z, mu, p, alpha):
    """q and p of equations 1 and 3, then (gradient, what float32 may miss of it) of equations 4
    and 5: in 50 digits, given out as floats"""
    with mp.workdps(50):
        z, mu, p, a = (*(np.vectorize(mp.mpf, otypes='O')(t.double()) for t in (z, mu, p)),
                       mp.mpf(alpha))
        diff = z[:, None] - mu                                             # (n, k, d)
        t = 1 + (diff**2).sum(2)/a
        q = (w := t**(-(a + 1)/2))/w.sum(1, keepdims=True)
        target = (w := q**2/q.sum(0))/w.sum(1, keepdims=True)
        pull = ((a + 1)/a/t)[..., None]*diff
        # p - q cancels, so errors are shares of p + q; and nothing can be asked below float32's
        # smallest normal number
        term = (p - q)[..., None]*pull
        slack = (2.**-20*(p + q) + 1e-37)[..., None]*abs(pull) + 1e-37
        return [v.astype(float)
                for v in (q, target, term.sum(1), slack.sum(1), -term.sum(0), slack.sum(0))]

@few
# ‖z‖² - 2zμ + ‖μ‖² takes 4 for 3 here
@example((torch.tensor([[1e10, 4], [1e10, 3], [0, 0], [-7, 1]]),
          torch.tensor([[1e10, 3], [-3e3, 4e3], [5, 6]]), 1.))
@given(float32_problem())
def test_float32_of_any_magnitude_agrees_with_50_digits(problem):
    z, mu, alpha = problem
    # from 26 points on, cdist would rather subtract squares
    q = soft_assign(z.repeat(7, 1), mu, alpha)[:4]
    p = target_distribution(q)
    q_true, p_true, *_ = exactly(z, mu, p, alpha)
    assert is_distribution(q, 1e-6) and is_distribution(p, 1e-6)
    # Negligible, beside the largest term of a row, which is at least 1/3: q below 1.2e-38, where
    # float32 itself gives up, and p, made of q squared, below 1e-30
    np.testing.assert_allclose(q, q_true, rtol=1e-6, atol=1.2e-38)
    np.testing.assert_allclose(p, p_true, rtol=1e-5, atol=1e-30)

@pytest.mark.parametrize('gradients', [autograd, kl_gradients])
@few
@given(float32_problem())
def test_float32_gradients_of_any_magnitude_agree_with_50_digits(gradients, problem):
    z, mu, alpha = problem
    p = target_distribution(soft_assign(z, mu, alpha))
    *_, gz, gz_slack, gmu, gmu_slack = exactly(z, mu, p, alpha)
    for g, true, slack in zip(gradients(z, mu, p, alpha), (gz, gmu), (gz_slack, gmu_slack)):
        assert g.dtype == torch.float32 and g.isfinite().all()
        assert (np.abs(g.double().numpy() - true) <= slack).all(), (g, true)

@pytest.mark.parametrize('gradients', [autograd, kl_gradients])
def test_a_large_common_shift_costs_nothing_in_float32(gradients):
    # Eighths up to 8, far from the origin: every coordinate is exact, ‖z‖² - 2zμ + ‖μ‖² is noise
    g = torch.Generator().manual_seed(0)
    z, mu = (torch.randint(-64, 65, (m, 3), generator=g).float()/8 for m in (20, 4))
    shift = torch.tensor([2.**20, -2.**20, 2.**19])
    assert torch.equal((z + shift) - shift, z)
    q, p = soft_assign(z, mu), target_distribution(soft_assign(z, mu))
    assert torch.equal(soft_assign(z + shift, mu + shift), q)
    for far, near in zip(gradients(z + shift, mu + shift, p, 1.), gradients(z, mu, p, 1.)):
        torch.testing.assert_close(far, near, rtol=1e-5, atol=1e-5)

# --- memory ---

def allocated(f): # bytes that all operators of f ask for together: no less than the peak
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof: f()
    return sum(max(0, e.self_cpu_memory_usage) for e in prof.events())

def test_soft_assign_never_builds_n_k_d():
    def forward_backward(f, n, k=50, d=200):
        z, mu = torch.randn(n, d, requires_grad=True), torch.randn(k, d, requires_grad=True)
        return allocated(lambda: f(z, mu).square().sum().backward()), n*k*d*8
    got, cube = forward_backward(lambda z, mu: torch.softmax(-(z[:, None] - mu).square().sum(2), 1),
                                 100)
    assert got > cube                                # the meter sees it where someone does build it
    got, cube = forward_backward(soft_assign, 20_000)
    assert got < cube/5, f'{got/2**20:.0f} MiB'

# --- evaluation ---

def brute_force(y, c): # the best of all one-to-one maps; the smaller side is mapped into the larger
    ys, cs = sorted(set(y)), sorted(set(c))
    small, large, pairs = ((cs, ys, list(zip(c, y))) if len(cs) <= len(ys)
                           else (ys, cs, list(zip(y, c))))
    return max(sum(dict(zip(small, m))[a] == b for a, b in pairs)
               for m in itertools.permutations(large, len(small)))/len(y)

labellings = st.integers(1, 25).flatmap(
    lambda n: st.tuples(*(st.lists(st.sampled_from(names), min_size=n, max_size=n)
                          for names in ([0, 2, 3, 7, 9], [-1, 4, 5, 6, 8]))))

# as many clusters as classes, more, or fewer; names with gaps
@few
@given(labellings)
def test_accuracy_is_the_best_of_all_maps(labels):
    y, c = labels
    assert (cluster_accuracy(y, c) == pytest.approx(brute_force(y, c), abs=1e-12)
            and cluster_accuracy(c, y) == pytest.approx(cluster_accuracy(y, c)))
    majority = sum(max(sum(a == l and b == j for a, b in zip(y, c)) for l in y)
                   for j in set(c))/len(y)
    assert (purity(y, c) == pytest.approx(majority)
            and purity(y, c) >= cluster_accuracy(y, c) - 1e-12)

@pytest.mark.parametrize('y, c', [([0, 1], [0]), ([[0, 1]], [[0, 1]]), ([], [])])
def test_metrics_refuse(y, c):
    for f in (cluster_accuracy, purity, scores):
        with pytest.raises(DecError): f(y, c)

# --- one loop, many losses: the parts of a method ---

blobs, _ = make_blobs(200, 8, 3)

def variant(**parts): # a short run
    return DEC(3, method=Method('own', **parts), ae_iter=30, max_iter=30, update_interval=10, tol=0,
               random_state=0, precision='float32').fit(blobs)

@pytest.fixture(scope='module')
def usual(): return variant()

def test_the_loss_is_handed_in(usual):
    tenth, same = variant(loss=lambda b: .1*dec_loss(b)), variant(loss=lambda b: kl_loss(b.p, b.q))
    np.testing.assert_array_equal(same.cluster_centers_, usual.cluster_centers_)
    assert (tenth.cluster_centers_ != usual.cluster_centers_).any()

def test_centroids_can_be_frozen(usual):
    fixed = variant(train_centroids=False)
    start = kmeans_start(torch.from_numpy(fixed.start_codes_), 3, seed=0)['mu'].numpy()
    np.testing.assert_array_equal(fixed.cluster_centers_, start)
    assert (usual.cluster_centers_ != start).any()
    assert np.abs(fixed.transform(blobs) - fixed.start_codes_).max() > 1e-4

def test_the_decoder_can_be_trained(usual):
    def both(b): return dec_loss(b) + reconstruction_loss(b.x, b.x_hat)
    before, after = (d.autoencoder_.decoder[-1].weight
                     for d in (usual, variant(train_decoder=True, loss=both)))
    assert (before != after).any()

def test_target_assignment_and_start_are_handed_in():
    def first(z, k, n_init, seed): return dict(mu=z[:k], labels=torch.zeros(len(z)).long())
    def wide(z, mu, alpha): return soft_assign(z, mu, 5.)
    run = variant(start=first, target=one_hot_target, assign=wide, train_centroids=False)
    assert (run.kmeans_labels_ == 0).all()
    np.testing.assert_allclose(run.cluster_centers_, run.start_codes_[:3], atol=1e-6)
    q = wide(torch.from_numpy(run.transform(blobs)), torch.from_numpy(run.cluster_centers_), 1.)
    np.testing.assert_allclose(run.predict_proba(blobs), q, atol=1e-6)
