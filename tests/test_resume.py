"A job that is killed at any moment and started again ends as if nothing had happened"
import itertools, os, random, resource, shutil, signal, socket, time
from dataclasses import replace
from pathlib import Path
import numpy as np, pytest, torch
from scipy import sparse
from conftest import files, make_blobs
from dec_tutorial.checkpoint import Checkpoint, job_key
from dec_tutorial.data import DecError
from dec_tutorial.dec import DEC
from dec_tutorial.methods import METHODS, Recipe
from dec_tutorial.sae import AutoEncoder, Plateau, finetune
from dec_tutorial.training import Callback, Rows, Stage, Trainer

tiny = Recipe('tiny', pretrain=Stage(30, lr=.1, dropout=.2), finetune=Stage(60, lr=.3, average=.8),
              cluster=Stage(60, lr=.05, reset_momentum=True), dims=(24, 6), init='uniform',
              update_interval=15)
# points that overlap, so that equal labels are no accident
points = np.random.default_rng(0).random((304, 20), dtype=np.float32)

def make(**kw): return DEC(4, **(dict(recipe=tiny, tol=0., random_state=0) | kw))

class Stop(Callback):
    "Ends a run after some batches, as Ctrl-C does"
    def __init__(self, at): self.at = at
    def after_batch(self, trainer):
        if trainer.t == self.at: raise KeyboardInterrupt

def assert_same(a, b): # bit for bit
    assert a.history_ == b.history_
    assert (a.cluster_centers_ == b.cluster_centers_).all()
    assert (a.predict_proba(points) == b.predict_proba(points)).all()

@pytest.fixture(scope='module')
def whole(): return make().fit(points)                             # a fit that nobody disturbed

@pytest.fixture(scope='module')
def half(tmp_path_factory): # the checkpoint of a fit that was interrupted in its KL phase
    path = tmp_path_factory.mktemp('half')/'ck'
    with pytest.raises(KeyboardInterrupt): make(checkpoint=path, callbacks=[Stop(20)]).fit(points)
    return path

@pytest.fixture
def left(half, tmp_path): return Path(shutil.copy(half, tmp_path/'ck')) # one that a test may change

class TestCheckpoint:
    @pytest.mark.parametrize('write', [
        lambda f: f.write_bytes(b'PK, cut'), lambda f: torch.save(torch.nn.Linear(2, 2), f),
        lambda f: torch.save(dict(weights=torch.ones(3)), f)], ids=range(3))
    def test_a_foreign_or_damaged_file_is_left_as_it_is(self, tmp_path, write):
        path = tmp_path/'mine'
        write(path)
        before = path.read_bytes()
        with pytest.raises(DecError, match='is not a checkpoint that can be read.* delete it'):
            make(checkpoint=path).fit(points)
        assert path.read_bytes() == before
        assert files(tmp_path) == ['mine']

    def test_a_full_disk_is_told_and_the_run_goes_on(self, tmp_path, start):
        assert start(on_a_full_disk, tmp_path/'ck').finish().returncode == 0
        assert set(Checkpoint(tmp_path/'ck').done) == {'small'}              # of the save before

    def test_a_path_that_cannot_be_written_is_told_at_once(self, tmp_path, monkeypatch):
        (tmp_path/'file').write_text('')
        monkeypatch.setattr(Trainer, 'step', lambda self: 1/0)
        with pytest.raises(DecError, match='cannot write'):
            make(checkpoint=tmp_path/'file'/'ck').fit(points)

def on_a_full_disk(path): # a limit on the size of files does the same
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    ck = Checkpoint(path)
    ck.once('small', lambda: torch.ones(10))
    with pytest.warns(UserWarning, match='goes on from the save before it'):
        ck.once('large', lambda: torch.ones(1_000_000))

class TestPlateau:
    "A run whose end the data choose"
    def train(self, path=None):
        ae = AutoEncoder(20, (24, 6), init='xavier', seed=0)
        stage = Stage(5000, optimizer='adam', lr=.01, decay=.5, patience=1, batch_size=64)
        def resumed(trainer): return Checkpoint(path).run(trainer.name, trainer)
        return finetune(ae, Rows(points), stage, fit=resumed)

    @pytest.mark.parametrize('late', [False, True]) # before and after the rate begins to fall
    def test_goes_on_as_if_nothing_had_happened(self, tmp_path, monkeypatch, late):
        whole, look = self.train(), Plateau.after_batch
        assert whole.callbacks[0].end == whole.n_iter == whole.t < 5000
        def stop(self, trainer):
            look(self, trainer)
            if bool(self.end) == late and trainer.t % 100 == 50: raise KeyboardInterrupt
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Plateau, 'after_batch', stop)
            self.train(tmp_path/'ck')
        again = self.train(tmp_path/'ck')
        assert again.t == whole.t and again.history == whole.history
        assert all(map(torch.equal, again.params, whole.params))

    def test_many_points_are_looked_at_every_three_epochs(self):
        def untrained(trainer): return trainer
        stage = Stage(5, batch_size=10, patience=1)
        for n, every in ((100, 100), (1000, 270)):                       # a tenth is held back
            trainer = finetune(AutoEncoder(2, (3, 1)), Rows(torch.rand(n, 2)), stage, fit=untrained)
            assert trainer.callbacks[0].every == every

class TestJob:
    "What makes two runs the same job"
    @pytest.mark.parametrize('one, two', [
        (Stage(5), Stage(6)), (METHODS['DEC'], METHODS['IDEC']), (np.tanh, np.exp),
        (np.ones((4, 6)), np.ones((6, 4))),
        (sparse.eye(3, format='csr'), 2*sparse.eye(3, format='csr')),
        (AutoEncoder(4, (2,), seed=0), AutoEncoder(4, (2,), seed=1))], ids=range(6))
    def test_settings_are_told_apart(self, one, two):
        assert job_key(v=one) == job_key(v=one) != job_key(v=two)
        assert len(job_key(v=one)) == 16

    @pytest.mark.parametrize('other, says', [
        (dict(random_state=1), 'random_state=0, here 1'), (dict(alpha=2.), 'alpha=1.0, here 2'),
        (dict(n_clusters=5), 'n_clusters=4, here 5'), (dict(n_init=3), 'n_init=20, here 3'),
        (dict(max_iter=61), 'recipe.cluster.n_iter=60, here 61'), (dict(method='IDEC'), 'recipe.'),
        (dict(recipe=replace(tiny, dims=(24, 5))), 'recipe.dims')], ids=str)
    def test_another_job_is_refused(self, left, other, says):
        before = left.read_bytes()
        with pytest.raises(DecError, match=f'is of a run with {says}'):
            make(checkpoint=left).set_params(**other).fit(points)
        assert left.read_bytes() == before

    def test_other_points_are_another_job(self, left):
        with pytest.raises(DecError, match='run with points='):
            make(checkpoint=left).fit(points + np.float32(1e-3))

    def test_another_autoencoder_is_another_job(self, left):
        with pytest.raises(DecError, match='autoencoder'):
            make(checkpoint=left, autoencoder=AutoEncoder(20, (6,))).fit(points)

    def test_other_callbacks_are_refused(self, left):
        with pytest.raises(DecError, match='other callbacks'): make(checkpoint=left).fit(points)

    def test_a_drawn_seed_is_the_jobs(self, tmp_path):
        args = dict(checkpoint=tmp_path/'ck', callbacks=[Stop(20)], random_state=None)
        with pytest.raises(KeyboardInterrupt): make(**args).fit(points)
        resumed = make(**args).fit(points)
        assert_same(resumed, make(random_state=resumed.seed_).fit(points))

class TestResume:
    def test_a_seed_fixes_everything(self, whole):
        assert_same(make().fit(points), whole)
        assert (make(random_state=1).fit(points).cluster_centers_ != whole.cluster_centers_).any()

    @pytest.mark.parametrize('given', [str, Checkpoint])
    def test_a_path_is_gone_at_the_end_and_a_checkpoint_stays(self, left, whole, given):
        # it is at batch 20 already, so that it never stops there
        assert_same(make(checkpoint=given(left), callbacks=[Stop(20)]).fit(points), whole)
        assert left.exists() == (given is Checkpoint)

    # counts, mixtures, random shifts and placed centroids go on where they were
    @pytest.mark.parametrize('method', ['IDEC', 'DCN', 'Aljalbout', 'VaDE', 'ConvDEC-DA',
                                        'DEC+communities'])
    def test_every_method(self, tmp_path, method):
        recipe = replace(tiny, pretrain=None, update_interval=10)
        args = dict(method=method, recipe=recipe, max_iter=30)
        torn = make(checkpoint=tmp_path/'ck', callbacks=[Stop(17)], **args)
        x = points[:, :16]
        with pytest.raises(KeyboardInterrupt): torn.fit(x)
        once = make(**args).fit(x)
        assert (torn.fit(x).predict_proba(x) == once.predict_proba(x)).all()

def life(moment=None, sig=None):
    "A job in a process of its own, which dies at the moment; its batches stand in `log`"
    def may_die(owner, name, at): # at: what this moment is called
        real = getattr(owner, name)
        def func(*args, **kw):
            if at(*args) == moment: signal.raise_signal(sig)
            return real(*args, **kw)
        setattr(owner, name, func)
    def batch(trainer):
        with open('log', 'a') as f: print(trainer.name, trainer.t, file=f)
        return f'{trainer.name} {trainer.t}'
    saves = itertools.count()
    may_die(Trainer, 'step', batch)
    may_die(DEC, '_start', lambda *_: 'k-means')
    may_die(os, 'replace', lambda *_: f'save {next(saves)}')
    make(checkpoint='ck').fit(points).save('model')

class TestKillAndResume:
    def test_at_every_moment_in_turn(self, start, tmp_path, whole):
        moments = ['layer 1 of 2 7', 'layer 2 of 2 0', 'autoencoder 17', 'save 20', 'k-means',
                   'k-means', 'clusters 5', 'clusters 30', 'clusters 44']
        often = dict(DEC_TUTORIAL_SAVE_EVERY='-1')                                # at every batch
        for m, sig in zip(moments, itertools.cycle([signal.SIGKILL, signal.SIGINT])):
            r = start(life, m, sig, env=often).finish()
            assert r.returncode == (-sig if sig == signal.SIGKILL else 1), (m, r.stderr)
        r = start(life, env=often).finish()
        assert r.returncode == 0, r.stderr
        assert_same(DEC.load(tmp_path/'model'), whole)
        batches = (tmp_path/'log').read_text().splitlines()
        assert len(batches) - len(set(batches)) <= len(moments)  # only those that a life died in
        assert files(tmp_path) == ['log', 'model']

    @pytest.mark.parametrize('moment', ['layer 1 of 2 7', 'clusters 30'])
    def test_ctrl_c_waits_for_the_end_of_the_batch(self, start, tmp_path, whole, moment):
        "Half a batch (dropout drawn, target refreshed) is not remembered"
        assert start(life, moment, signal.SIGINT).finish().returncode == 1
        assert Checkpoint(tmp_path/'ck').state['running'][1]['t'] == int(moment.split()[-1]) + 1
        assert start(life).finish().returncode == 0
        assert_same(DEC.load(tmp_path/'model'), whole)

    # at any moment, several times in the life of a job: DEC_TUTORIAL_KILLS=200 before a release
    def test_at_random(self, start, tmp_path, whole):
        left, rng = int(os.environ.get('DEC_TUTORIAL_KILLS', 4)), random.Random(0)
        often, began = dict(DEC_TUTORIAL_SAVE_EVERY='.01'), time.time()
        assert start(life, env=often).finish().returncode == 0
        takes = time.time() - began
        while left > 0:
            for _ in range(rng.randint(1, 6)):
                child = start(life, env=often)
                child.process.join(rng.uniform(0, takes))
                if child.process.exitcode is not None: break
                child.process.kill()
                child.process.join()
                left -= 1
            r = start(life, env=often).finish()
            assert r.returncode == 0, r.stderr
            assert_same(DEC.load(tmp_path/'model'), whole)
            assert not [f for f in files(tmp_path) if 'ck' in f]

# ---- Several workers
even = replace(tiny, finetune=replace(tiny.finetune, batch_size=64),
               cluster=replace(tiny.cluster, batch_size=64), pretrain=None)
shared = dict(recipe=even, precision='float32')

# far from each other, so that it does not matter in which order numbers are summed
apart, _ = make_blobs(304, 20, 4)

def worker_fits(method='DEC', mine=False, times=1): # mine: only every other point
    rank = int(os.environ['RANK'])
    x = apart[rank::2] if mine else apart
    for _ in range(times):
        make(method=method, checkpoint='ck', **shared).fit(x).save(f'model-{rank}')

@pytest.fixture
def two(start): # two(func, *args): the ends of two workers
    def run(func, *args):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            port = str(s.getsockname()[1])
        place = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
        children = [start(func, *args, env=place | dict(RANK=rank)) for rank in '01']
        return [c.finish() for c in children]
    return run

class TestWorkers:
    def test_two_equal_one(self, two, tmp_path): # in a second fit of the same program, too
        assert [r.returncode for r in two(worker_fits, 'DEC', False, 2)] == [0, 0]
        alone = make(**shared).fit(apart)
        for rank in '01':
            model = DEC.load(tmp_path/f'model-{rank}')
            np.testing.assert_allclose(model.cluster_centers_, alone.cluster_centers_, atol=1e-5)
            assert (model.labels_ == alone.labels_).all()
        assert not (tmp_path/'ck').exists()

    @pytest.mark.parametrize('args, says', [
        (('DEC', True), 'every worker must be given the same points'),
        (('DCN',), 'DCN cannot be shared by several workers')], ids=['points', 'method'])
    def test_what_is_refused(self, two, args, says):
        for r in two(worker_fits, *args): assert says in r.stderr

    def test_workers_that_cannot_meet(self, monkeypatch):
        for name in ('MASTER_ADDR', 'MASTER_PORT'): monkeypatch.delenv(name, raising=False)
        for name, v in dict(RANK='0', WORLD_SIZE='2').items(): monkeypatch.setenv(name, v)
        with pytest.raises(DecError, match='start them with torchrun'): make().fit(points)
