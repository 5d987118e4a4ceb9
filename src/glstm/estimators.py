"""`SequenceClassifier` and `SequenceRegressor`: sequence networks with scikit-learn's convention.

X is an array (n, channels, time), a list of arrays (channels, time) of different lengths, or, for sequences of one
channel, an array (n, time) or a list of arrays (time,); `layout="channels_last"` puts time before channels. All of them
may have missing values, as NaN, if `missing` says what they become.
"""

import warnings
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from glstm import series
from glstm.data import ArrayTask, Sequences
from glstm.data.collect import as_sequences
from glstm.describe import build, describe
from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.models import READS, SequenceModel
from glstm.predictions import answers, as_trained
from glstm.pretrained import serialized
from glstm.recipes import OWN_DATA, Recipe, model_maker
from glstm.scaling import MISSING
from glstm.training import in_memory
from glstm.training.in_memory import EpochScore

with needed_by("scikit-learn's convention"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
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
        lr=2e-3,
        gate_lr=None,
        optimizer="adam",
        epochs=300,
        patience=50,
        validation=0.2,
        batch=32,
        standardize=True,
        missing="refuse",
        from_start=None,
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
        self.from_start = from_start
        self.layout = layout
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing in MISSING and self.missing != "refuse"
        return tags

    def _fit(self, sequences: Sequences) -> Self:
        """Train a new network on sequences with targets."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        recipe = self._recipe(seed)
        task = ArrayTask(
            sequences,
            validation=_plain(self.validation),
            test=0,
            missing=self.missing,
            standardize=self.standardize,
            from_start=self.from_start,
            seed=seed,
            name="X",
            device=self.device,
        )
        done = in_memory.fit(task, model_maker(recipe, task), recipe, _say if self.verbose else lambda row: None)
        if done.diverged:
            what = f"the loss became nan or infinite in epoch {len(done.history)}: lower lr or gate_lr"
            if not done.found:
                raise UserError(what)
            warnings.warn(f"{what}; the best epoch before that is kept", ConvergenceWarning, stacklevel=3)
        self.history_ = [_known(row) for row in done.history]
        self._reading_ = task.reading()
        self.model_ = done.model
        return self

    def _recipe(self, seed: int) -> Recipe:
        if self.reads not in READS or self.reads == "every":
            found = ", ".join(one for one in READS if one != "every")
            raise UserError(f"an estimator gives one answer for each sequence, so reads must be one of {found}")
        return Recipe("arrays", **OWN_DATA).changed(
            cell=self.cell,
            units=_plain(self.units),
            layers=_plain(self.layers),
            reads=self.reads,
            gate={"mu": _values(self.mu), "sigma": _values(self.sigma)},
            options={"threshold": _plain(self.threshold) or None},
            optimizer=self.optimizer,
            lr=_plain(self.lr),
            gate_lr=_plain(self.gate_lr),
            budget=_plain(self.budget),
            batch=_plain(self.batch),
            epochs=_plain(self.epochs),
            patience=_plain(self.patience) or 0,
            seed=seed,
        )

    def _check_options(self) -> None:
        """Those that nothing below checks; scikit-learn wants this in fit."""
        series.check_layout(self.layout)
        validation = _plain(self.validation)  # a task would also take data, but not in this layout
        if isinstance(validation, bool) or not isinstance(validation, int | float) or not 0 <= validation < 1:
            raise UserError(f"validation must be a share, at least 0 and below 1, not {self.validation!r:.50}")
        patience = _plain(self.patience)
        if patience is not None and (type(patience) is not int or patience < 1):
            raise UserError(f"patience must be a number of epochs of at least 1, or None, not {self.patience!r:.50}")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            raise UserError(f"device {self.device!r} cannot be used here: {str(error).splitlines()[0]}") from None

    def _read(self, X: Any, times: Any, fitting: bool) -> Sequences:
        """X without targets; sets or checks the numbers of channels and, of tables (n, time), of columns."""
        pieces = series.pieces_of(X)
        table = pieces is None and _is_table(X)
        if fitting:
            self._table_ = table
        least = 2 if fitting and self.validation else 1
        if pieces is not None:
            own = CHECKS | {"ensure_2d": False, "ensure_min_samples": 0, "ensure_min_features": 0}
            each = series.from_pieces([check_array(piece, **own) for piece in pieces], self.layout)
        elif table and self._table_:
            X = validate_data(self, X, reset=fitting, ensure_min_samples=least, **CHECKS)
            each = series.from_array(X, self.layout)
        else:
            each = series.from_array(check_array(X, allow_nd=True, ensure_min_samples=least, **CHECKS), self.layout)
        self._check_channels(each[0].shape[1], fitting)
        if fitting and (sentence := series.doubt(each, self.layout)):
            warnings.warn(sentence, stacklevel=3)
        return as_sequences(each, times=times)

    def _check_channels(self, channels: int, fitting: bool) -> None:
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

    def _predict(self, X: Any, times: Any) -> np.ndarray:
        """(n, outputs): probabilities of classes, or values."""
        check_is_fitted(self)
        sequences = as_trained(self._read(X, times, fitting=False), self._reading_, "X")
        return np.stack(answers(self.model_, sequences).outputs)

    def __getstate__(self):
        """The network as its description and its values, so that a pickle does not depend on a class's attributes."""
        state: dict[str, Any] = {**super().__getstate__()}  # pyright: ignore[reportGeneralTypeIssues]
        if "model_" in state:
            state["model_"] = {"description": describe(self.model_), "values": serialized(self.model_.state_dict())}
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

    The share `validation` of the sequences is held out, of each class its share. The epoch with the lowest error there
    is kept (of equal ones that with the lowest loss; with a budget, that with the lowest loss and charge together), and
    training ends `patience` epochs after it. What is held out is at least one sequence, and each class keeps one to
    train on: fit says so if there are too few for that.

    Args:
        cell: A name from the table `CELLS`, such as "glstm", "plstm" (which has one period in the span of the times),
            "lstm" or "gru".
        units: H.
        layers: How many.
        reads: What the head reads: "last", "mean" or "max".
        mu: Where a GLSTM's gates begin; None: spread over the whole time.
        sigma: How wide they begin; None: 0.32 of the span of the times.
        threshold: Units at k <= threshold are closed.
        budget: The charge for mean openness.
        lr: The learning rate of the weights.
        gate_lr: The gates' own rate, in the unit of the times; None: lr x the span of the times.
        optimizer: "adam", "rmsprop" or "sgd".
        epochs: How many at most.
        patience: Stop so many epochs after the best.
        validation: The share that is held out; 0: all sequences train, for all epochs.
        batch: Sequences in a batch.
        standardize: Inputs are standardised inside the network, so it takes X as it is.
        missing: What a NaN in X means: "refuse", "carry" or "mask".
        from_start: Whether times are counted from each sequence's first step; None: if they start at very different
            times, as dates do.
        layout: Of X: "channels_first" (n, D, T), as in aeon and sktime, or "channels_last" (n, T, D).
        random_state: The seed.
        device: Where training runs.
        verbose: Print a line for each epoch.

    Attributes:
        classes_: After fit: the classes.
        model_: After fit: the network, a `SequenceModel`.
        history_: After fit: a dictionary for each epoch.
    """

    classes_: np.ndarray

    def fit(self, X, y, *, times=None) -> Self:
        """Train a network on these sequences.

        Args:
            X: (n, D, T) or (n, T), or a list of n arrays, as `layout` says.
            y: A class for each sequence (n,).
            times: Of the steps: (T,) for all sequences, (n, T), or a list with those of each; None: 1, 2, and so on. A
                network that was fitted with times needs them for every prediction. Cross-validation cuts what has n
                rows, so there they are given for each sequence.
        """
        self._check_options()
        sequences = self._read(X, times, fitting=True)
        y = _check_y(y, len(sequences))
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        names = tuple(map(str, self.classes_))
        return self._fit(replace(sequences, y=np.array(names)[codes], classes=names))

    def predict_proba(self, X, *, times=None) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: (n, classes)."""
        return self._predict(X, times)

    def predict(self, X, *, times=None) -> np.ndarray:
        """The class of each sequence (n,)."""
        likely = self._predict(X, times).argmax(1)
        return self.classes_[likely]

    def score(self, X, y, sample_weight=None, *, times=None) -> float:
        """The share of sequences whose class is found."""
        return float(accuracy_score(y, self.predict(X, times=times), sample_weight=sample_weight))


class SequenceRegressor(RegressorMixin, _SequenceEstimator):
    """A recurrent network that gives one or more values for a sequence; parameters as `SequenceClassifier` has.

    The error on the sequences that are held out is the mean absolute error. With several values the best epoch is that
    with the lowest loss, the squared error in standard deviations: else the value with the largest unit would decide.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y, *, times=None) -> Self:
        """y (n,) or (n, values). `times` as a classifier takes them."""
        self._check_options()
        sequences = self._read(X, times, fitting=True)
        y = _check_y(y, len(sequences))
        y = check_array(y, ensure_2d=False, dtype="float64", input_name="y")
        if y.ndim > 2:
            raise UserError(f"y must be (n,) or (n, values), not of {y.ndim} dimensions")
        self._flat_ = y.ndim == 1
        return self._fit(replace(sequences, y=y.reshape(len(sequences), -1)))

    def predict(self, X, *, times=None) -> np.ndarray:
        """The value of each sequence (n,), or its values (n, values)."""
        found = self._predict(X, times)
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


def _known(row: EpochScore) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value is not None}


def _say(row: EpochScore) -> None:
    print(", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in _known(row).items()))


def _plain(value: Any) -> Any:
    """numpy's numbers, as a search over parameters gives them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _values(value: Any) -> Any:
    """A value of the gates: a number, a range, or an array with one for each unit."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else _plain(value)
