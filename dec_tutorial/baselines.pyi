# made from dec_tutorial/baselines.py by .ci/stubs; do not edit
import scipy.sparse._csr
import sklearn.cluster._kmeans
import typing

__all__ = ['SWEEP', 'neighbours', 'laplacian', 'discretise', 'centred_products', 'sec_operator', 'SEC', 'ldmgi_matrix', 'LDMGI', 'sweep']

SWEEP: tuple
def neighbours(x: typing.Any, m: int = ...) -> tuple: ...
def laplacian(dist: typing.Any, idx: typing.Any) -> scipy.sparse._csr.csr_matrix: ...
def discretise(F: typing.Any, k: int, n_init: int = ..., seed: typing.Any = ...) -> sklearn.cluster._kmeans.KMeans: ...
def centred_products(x: typing.Any) -> tuple: ...
def sec_operator(x: typing.Any, L: typing.Any, mu: float, gamma: float) -> tuple: ...

class SEC:
    coef_: typing.Any
    gamma: typing.Any
    intercept_: typing.Any
    mu: typing.Any
    n_clusters: typing.Any
    n_init: typing.Any
    n_neighbors: typing.Any
    random_state: typing.Any
    def __init__(self, n_clusters: int = ..., mu: float = ..., gamma: float = ..., n_neighbors: int = ..., n_init: int = ..., random_state: typing.Any = ...) -> None: ...
    def predict(self, X: typing.Any) -> typing.Any: ...
def ldmgi_matrix(x: typing.Any, idx: typing.Any, lam: float, size: int = ...) -> scipy.sparse._csr.csr_matrix: ...

class LDMGI:
    lam: typing.Any
    n_clusters: typing.Any
    n_init: typing.Any
    n_neighbors: typing.Any
    random_state: typing.Any
    def __init__(self, n_clusters: int = ..., lam: float = ..., n_neighbors: int = ..., n_init: int = ..., random_state: typing.Any = ...) -> None: ...
def sweep(est: typing.Any, x: typing.Any, values: typing.Any = ...) -> dict: ...
