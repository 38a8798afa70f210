# made from dec_tutorial/dec.py by .ci/stubs; do not edit
import collections.abc
import dec_tutorial.sae
import dec_tutorial.soft_assignment
import dec_tutorial.training
import functools
import numpy
import sklearn.base
import torch
import torch.nn.modules.module
import typing

__all__ = ['RECIPES', 'METHODS', 'CANDIDATES', 'kl_loss', 'kl_gradients', 'kmeans_start', 'Refresh', 'Batch', 'dec_loss', 'fit_clusters', 'Recipe', 'get_recipe', 'DEC', 'method_name', 'get_method', 'job_key', 'behind_pca', 'compare_recipes', 'show_training']

RECIPES: dict
METHODS: dict
CANDIDATES: tuple
def kl_loss(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor: ...
def kl_gradients(z: torch.Tensor, mu: torch.Tensor, p: torch.Tensor, alpha: float = ...) -> tuple: ...
def kmeans_start(z: torch.Tensor, k: int, n_init: int = ..., seed: int = ...) -> dict: ...

class Refresh(dec_tutorial.training.Callback):
    assign: typing.Any
    changes: typing.Any
    interval: typing.Any
    labels: typing.Any
    p: typing.Any
    target: typing.Any
    tol: typing.Any
    def __init__(self, assign: typing.Any, labels: typing.Any, interval: int, tol: float = ..., target: typing.Any = ...) -> None: ...
    def before_fit(self, trainer: typing.Any) -> typing.Any: ...
    def before_batch(self, trainer: typing.Any) -> typing.Any: ...
    def renew(self) -> typing.Any: ...
    def state_dict(self) -> typing.Any: ...
    def load_state_dict(self, s: typing.Any) -> typing.Any: ...

class Batch:
    def __init__(self, x: torch.Tensor, p: torch.Tensor, encoder: torch.nn.modules.module.Module, layer: dec_tutorial.soft_assignment.ClusterLayer, network: torch.nn.modules.module.Module | None = ..., done: float = ..., augment: collections.abc.Callable | None = ...) -> None: ...
    x: torch.Tensor
    p: torch.Tensor
    encoder: torch.nn.modules.module.Module
    layer: dec_tutorial.soft_assignment.ClusterLayer
    network: torch.nn.modules.module.Module | None
    done: float
    augment: collections.abc.Callable | None
    @functools.cached_property
    def z(self) -> typing.Any: ...
    @functools.cached_property
    def q(self) -> typing.Any: ...
    @property
    def mu(self) -> typing.Any: ...
    @functools.cached_property
    def y(self) -> typing.Any: ...
    @functools.cached_property
    def moved(self) -> typing.Any: ...
def dec_loss(batch: Batch) -> torch.Tensor: ...
def fit_clusters(encoder: torch.nn.modules.module.Module, layer: dec_tutorial.soft_assignment.ClusterLayer, rows: dec_tutorial.training.Rows, stage: dec_tutorial.training.Stage, labels: torch.Tensor, update_interval: int = ..., tol: float = ..., seed: int = ..., ck: dec_tutorial.training.Checkpoint | None = ..., callbacks: typing.Any = ..., target: typing.Any = ..., loss: typing.Any = ..., network: torch.nn.modules.module.Module | None = ..., augment: typing.Any = ...) -> tuple: ...

class Recipe:
    def __init__(self, name: str, finetune: dec_tutorial.training.Stage, cluster: dec_tutorial.training.Stage, pretrain: dec_tutorial.training.Stage | None = ..., scale: str | float = ..., dims: tuple = ..., init: str = ..., factor: float = ..., update_interval: int = ..., update_interval_text: int | None = ..., tol: float = ..., train_part: bool = ..., features: int = ...) -> None: ...
    name: str
    finetune: dec_tutorial.training.Stage
    cluster: dec_tutorial.training.Stage
    pretrain: dec_tutorial.training.Stage | None
    scale: str | float
    dims: tuple
    init: str
    factor: float
    update_interval: int
    update_interval_text: int | None
    tol: float
    train_part: bool
    features: int
def get_recipe(recipe: typing.Any) -> Recipe: ...

class DEC(sklearn.base.ClassNamePrefixFeaturesOutMixin, sklearn.base.ClusterMixin, sklearn.base.TransformerMixin, sklearn.base.BaseEstimator):
    autoencoder_: typing.Any
    callbacks_: typing.Any
    cluster_centers_: typing.Any
    head: typing.Any
    history_: typing.Any
    k_curve_: typing.Any
    kmeans_labels_: typing.Any
    labels_: typing.Any
    layer_: typing.Any
    momentum_: typing.Any
    n_clusters_: typing.Any
    n_iter_: typing.Any
    network: typing.Any
    own_: typing.Any
    recipe_: typing.Any
    reconstruction_: typing.Any
    scale_: typing.Any
    seconds_: typing.Any
    seed_: typing.Any
    soft_sizes_: typing.Any
    start_codes_: typing.Any
    stop_reason_: typing.Any
    train_rows: typing.Any
    def __init__(self, n_clusters: int | str = ..., *, method: str = ..., recipe: str | Recipe = ..., update_interval: int | None = ..., tol: float | None = ..., ae_iter: int | None = ..., max_iter: int | None = ..., backprop: bool = ..., train_centroids: bool | None = ..., keep_decoder: bool | None = ..., loss: typing.Any = ..., target: typing.Any = ..., assign: typing.Any = ..., start: typing.Any = ..., cluster: dec_tutorial.training.Stage | None = ..., network: typing.Any = ..., head: typing.Any = ..., augment: typing.Any = ..., alpha: float = ..., n_init: int = ..., random_state: typing.Any = ..., device: str = ..., precision: str = ..., train_rows: int | None = ..., autoencoder: dec_tutorial.sae.AutoEncoder | None = ..., callbacks: typing.Any = ..., checkpoint: typing.Any = ...) -> None: ...
    def transform(self, X: typing.Any) -> typing.Any: ...
    def fit_autoencoder(self, X: typing.Any, y: typing.Any = ..., more: typing.Any = ...) -> DEC: ...
    def fit(self, X: typing.Any, y: typing.Any = ..., more: typing.Any = ...) -> DEC: ...
    def partial_fit(self, X: typing.Any, y: typing.Any = ...) -> DEC: ...
    def predict_proba(self, X: typing.Any) -> numpy.ndarray: ...
    def predict(self, X: typing.Any) -> numpy.ndarray: ...
    def save(self, path: typing.Any) -> typing.Any: ...
def method_name(name: str) -> str: ...
def get_method(name: str) -> dict: ...
def job_key(x: typing.Any, **what: typing.Any) -> str: ...
def behind_pca(ae: typing.Any, rows: dec_tutorial.training.Rows, most: int | None = ...) -> float: ...
def compare_recipes(candidates: typing.Any, datasets: typing.Any, seeds: typing.Any = ...) -> list: ...
def show_training(dec: typing.Any) -> typing.Any: ...
