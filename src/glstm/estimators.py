"""`SequenceClassifier` and `SequenceRegressor`: sequence networks with scikit-learn's convention.

X is an array (n, channels, time), a list of arrays (channels, time) of different lengths, or, for sequences of one
channel, an array (n, time) or a list of arrays (time,); `layout="channels_last"` puts time before channels. All of them
may have missing values, as NaN, if `missing` says what they become.
"""

from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor, nn

from glstm import init, registry, series
from glstm.cells import CELLS
from glstm.describe import build, describe
from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.gated import GatedLSTM
from glstm.layers import GLSTM, PLSTM
from glstm.models import READS, SequenceModel, width_of
from glstm.pretrained import serialized
from glstm.scaling import MISSING, Rescale, Standardize
from glstm.series import Series
from glstm.training.fitting import evaluate, fit_network
from glstm.training.settings import Settings

with needed_by("scikit-learn's convention"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        assert_all_finite,
        check_array,
        check_consistent_length,
        check_is_fitted,
        check_random_state,
        column_or_1d,
        validate_data,
    )

WIDE = 0.32  # sigma as a share of the time that the sequences take; the paper's 250 of 784
PREDICTED_AT_ONCE = 1000
CHECKS: dict[str, Any] = {"ensure_all_finite": "allow-nan", "dtype": "numeric"}  # by scikit-learn, of every array


class _SequenceEstimator(BaseEstimator):
    """What both estimators share: their parameters, how X is read, and how the network is made."""

    model_: SequenceModel

    def __init__(
        self,
        cell="glstm",
        units=64,
        layers=1,
        *,
        reads="last",
        mu=None,
        sigma=None,
        threshold=0.0,
        budget=0.0,
        lr=1e-3,
        gate_lr=None,
        optimizer="adam",
        epochs=200,
        patience=20,
        validation=0.2,
        batch=16,
        standardize=True,
        missing="refuse",
        layout="channels_first",
        random_state=None,
        device="cpu",
        verbose=False,
    ):
        self.cell = cell
        self.units = units
        self.layers = layers
        self.reads = reads
        self.mu = mu
        self.sigma = sigma
        self.threshold = threshold
        self.budget = budget
        self.lr = lr
        self.gate_lr = gate_lr
        self.optimizer = optimizer
        self.epochs = epochs
        self.patience = patience
        self.validation = validation
        self.batch = batch
        self.standardize = standardize
        self.missing = missing
        self.layout = layout
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing in MISSING and self.missing != "refuse"
        return tags

    def _fit(self, data: Series, y: Tensor, outputs: int, kind: str, rescale: Rescale | None) -> Self:
        """Train a new network on targets y (n,) that are classes, or (n, outputs) that are values."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        settings = Settings(
            optimizer=self.optimizer,
            lr=_plain(self.lr),
            budget=_plain(self.budget),
            batch=_plain(self.batch),
            epochs=_plain(self.epochs),
            seed=seed,
        )
        low, high = data.span
        gate_lr = settings.lr * (high - low) / 8 if self.gate_lr is None else _plain(self.gate_lr)
        settings = settings.changed(gate_lr=gate_lr)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._network(data, outputs, rescale)
            self.history_ = fit_network(
                model.to(self.device),
                data.to(self.device),
                y.to(self.device),
                kind,
                settings,
                validation=_plain(self.validation),
                patience=_plain(self.patience),
                say=print if self.verbose else None,
            )
        self.model_ = model.eval()
        return self

    def _network(self, data: Series, outputs: int, rescale: Rescale | None) -> SequenceModel:
        if self.reads not in READS or self.reads == "every":
            found = ", ".join(one for one in READS if one != "every")
            raise UserError(f"an estimator gives one answer for each sequence, so reads must be one of {found}")
        inputs = None
        if self.standardize or self.missing != "refuse":
            inputs = Standardize(data.x.shape[2], self.missing)
        if inputs is not None and self.standardize:
            _set_scale(inputs, data.x[data.counts])
        layer = self._layer(data.x.shape[2] if inputs is None else inputs.outputs, *data.span)
        return SequenceModel(
            layer, nn.Linear(width_of(layer), outputs), reads=self.reads, inputs=inputs, outputs=rescale
        )

    def _layer(self, inputs: int, low: float, high: float) -> nn.Module:
        """The recurrent layer for sequences whose times go from `low` to `high`, with the paper's initial weights."""
        cell = registry.find(self.cell, CELLS, "cell")
        shape = {"input_size": inputs, "hidden_size": _plain(self.units), "num_layers": _plain(self.layers)}
        given = {"mu": _values(self.mu), "sigma": _values(self.sigma), "threshold": _plain(self.threshold) or None}
        options = {name: value for name, value in given.items() if value is not None}
        takes = high - low or 1.0
        if cell is GLSTM:
            options = {"mu": (low, high), "sigma": WIDE * takes} | options
        elif cell is PLSTM:
            options = {"tau": takes, "s": (low, high)} | options
        layer = registry.call(cell, f"the cell {self.cell}", **shape, **options)
        if isinstance(layer, GatedLSTM):
            init.orthogonal_(layer)
            init.forget_bias_(layer)
        return layer

    def _check_options(self) -> None:
        """Those that nothing below checks; scikit-learn wants this in fit."""
        series.check_layout(self.layout)
        if self.missing not in MISSING:
            raise UserError(f"missing must be one of {', '.join(MISSING)}, not {self.missing!r:.50}")
        validation = _plain(self.validation)
        if isinstance(validation, bool) or not isinstance(validation, int | float) or not 0 <= validation < 1:
            raise UserError(f"validation must be a share, at least 0 and below 1, not {self.validation!r:.50}")
        patience = _plain(self.patience)
        if patience is not None and (type(patience) is not int or patience < 1):
            raise UserError(f"patience must be a number of epochs of at least 1, or None, not {self.patience!r:.50}")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            raise UserError(f"device {self.device!r} cannot be used here: {str(error).splitlines()[0]}") from None

    def _read(self, X: Any, times: Any, fitting: bool) -> Series:
        """X as tensors; sets or checks the numbers of channels and, of tables (n, time), of columns."""
        pieces = series.pieces_of(X)
        table = pieces is None and _is_table(X)
        if fitting:
            self._table_ = table
        least = 2 if fitting and self.validation else 1
        if pieces is not None:
            own = CHECKS | {"ensure_2d": False, "ensure_min_samples": 0, "ensure_min_features": 0}
            data = series.from_pieces([check_array(piece, **own) for piece in pieces], self.layout)
        elif table and self._table_:
            X = validate_data(self, X, reset=fitting, ensure_min_samples=least, **CHECKS)
            data = series.from_array(X, self.layout)
        else:
            data = series.from_array(check_array(X, allow_nd=True, ensure_min_samples=least, **CHECKS), self.layout)
        self._check_channels(data, fitting)
        if data.x.isinf().any():
            raise UserError("Input X contains a value too large for float32: scale X before")
        if self.missing == "refuse" and data.x.isnan().any():
            raise UserError(
                "Input X contains NaN: with missing='carry' the last value is taken where one is missing, and with "
                "missing='mask' the network is also told where"
            )
        return series.with_times(data, times)

    def _check_channels(self, data: Series, fitting: bool) -> None:
        channels = data.x.shape[2]
        if not fitting:
            if channels != self._channels_:
                raise UserError(
                    f"X has {channels} channels, but {type(self).__name__} was fitted with {self._channels_}: the "
                    f"layout is {self.layout!r}"
                )
            return
        self._channels_ = channels
        if not self._table_:
            self.n_features_in_ = channels
            vars(self).pop("feature_names_in_", None)  # of a table in an earlier fit

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _predict(self, X: Any, times: Any) -> Tensor:
        check_is_fitted(self)
        data = self._read(X, times, fitting=False)
        return evaluate(self.model_, data, PREDICTED_AT_ONCE)

    def __getstate__(self):
        """The network as its description and its values, so that a pickle does not depend on a class's attributes."""
        state: dict[str, Any] = {**super().__getstate__()}  # pyright: ignore[reportGeneralTypeIssues]
        if "model_" in state:
            state["model_"] = {"description": describe(self.model_), "values": serialized(self.model_)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "model_" in state:
            model: Any = build(state["model_"]["description"])
            model.load_state_dict(load(state["model_"]["values"]))
            on_cuda = str(state["device"]).startswith("cuda") and torch.cuda.is_available()
            state["model_"] = model.to(state["device"] if on_cuda else "cpu").eval()
        super().__setstate__(state)


class SequenceClassifier(ClassifierMixin, _SequenceEstimator):
    """A recurrent network that says of which class a sequence is.

    `cell`, `units` and `layers` make the network; `mu` and `sigma` are where a GLSTM's gates begin, by default spread
    over the whole time; `budget` is the price of openness. The share `validation` of the sequences is held out: the
    network with the smallest loss on it is kept, and training ends after `patience` epochs without a smaller one.
    `gate_lr` is the gates' own learning rate; None takes one that suits the time that the sequences take. A phased
    LSTM (`cell="plstm"`) has one period in that time.

    After fit: `classes_`, `model_` (the network, which takes X as it is), `history_` (a row for each epoch).
    """

    classes_: np.ndarray

    def fit(self, X, y, *, times=None) -> Self:
        """`times` of the steps: (time,) for all sequences, (n, time), or a list with those of each; by default 1, 2,
        and so on. Cross-validation cuts what has n rows, so there they are given for each sequence."""
        self._check_options()
        data = self._read(X, times, fitting=True)
        y = _check_y(y, len(data))
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._fit(data, torch.from_numpy(codes), len(self.classes_), "classes", None)
        self.model_.classes = tuple(map(str, self.classes_))
        return self

    def predict_proba(self, X, *, times=None) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: (n, classes)."""
        return self._predict(X, times).double().softmax(1).numpy()

    def predict(self, X, *, times=None) -> np.ndarray:
        likely = self._predict(X, times).argmax(1).numpy()
        return self.classes_[likely]

    def score(self, X, y, sample_weight=None, *, times=None) -> float:
        """The share of sequences whose class is found."""
        return float(accuracy_score(y, self.predict(X, times=times), sample_weight=sample_weight))


class SequenceRegressor(RegressorMixin, _SequenceEstimator):
    """A recurrent network that gives one or more values for a sequence; parameters as `SequenceClassifier` has."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, *, times=None) -> Self:
        """y (n,) or (n, values). `times` as a classifier takes them."""
        self._check_options()
        data = self._read(X, times, fitting=True)
        y = _check_y(y, len(data))
        y = check_array(y, ensure_2d=False, dtype="float64", input_name="y")
        if y.ndim > 2:
            raise UserError(f"y must be (n,) or (n, values), not of {y.ndim} dimensions")
        self._flat_ = y.ndim == 1
        targets = torch.from_numpy(np.array(y.reshape(len(data), -1), np.float32))
        rescale = None
        if self.standardize:
            rescale = Rescale(targets.shape[1])
            _set_scale(rescale, targets)
        return self._fit(data, targets, targets.shape[1], "values", rescale)

    def predict(self, X, *, times=None) -> np.ndarray:
        found = self._predict(X, times).double().numpy()
        return found[:, 0] if self._flat_ else found

    def score(self, X, y, sample_weight=None, *, times=None) -> float:
        """R squared, the share of the variance of y that is explained."""
        return float(r2_score(y, self.predict(X, times=times), sample_weight=sample_weight))


def _is_table(X: Any) -> bool:
    """Whether X is read as an array (n, time), or as something that scikit-learn will refuse."""
    return np.ndim(X) < 3 if isinstance(X, list | tuple | np.ndarray | Tensor) else True


def _check_y(y: Any, count: int) -> np.ndarray:
    if y is None:
        raise UserError("fit requires y to be passed, but the target y is None: give one target for each sequence")
    y = np.asarray(y)
    check_consistent_length(range(count), y)
    assert_all_finite(y, input_name="y")
    return y


def _set_scale(part: Standardize | Rescale, values: Tensor) -> None:
    """Mean and standard deviation of each column of (n, D), of what is not missing; a constant keeps the scale 1."""
    wide = values.double()
    mean = wide.nanmean(0).nan_to_num(0.0)
    scale = (wide - mean).square().nanmean(0).sqrt().nan_to_num(0.0)
    part.mean.copy_(mean)
    part.scale.copy_(torch.where(scale > 1e-7 * mean.abs(), scale, 1.0))


def _plain(value: Any) -> Any:
    """numpy's numbers, as a search over parameters gives them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _values(value: Any) -> Any:
    """A value of the gates: a number, a range, or an array with one for each unit."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else _plain(value)
