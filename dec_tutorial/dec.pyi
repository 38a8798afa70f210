# made from dec_tutorial/dec.py by .ci/stubs; do not edit
import dec_tutorial.sae
import dec_tutorial.training
import numpy
import sklearn.base
import typing

__all__ = ['RECIPES', 'METHODS', 'CANDIDATES', 'Recipe', 'get_recipe', 'DEC', 'method_name', 'get_method', 'job_key', 'behind_pca', 'show_changes', 'show_training', 'compare_recipes']

RECIPES: dict
METHODS: dict
CANDIDATES: tuple

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
def show_changes(ax: typing.Any, changes: typing.Any, tol: float) -> typing.Any: ...
def show_training(dec: typing.Any) -> typing.Any: ...
def compare_recipes(candidates: typing.Any, datasets: typing.Any, seeds: typing.Any = ...) -> list: ...
