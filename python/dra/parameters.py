"""The parameters of a model as arrays."""
from typing import TYPE_CHECKING, Any, Iterator, MutableMapping, Tuple

import numpy as np

from ._library import REAL, lib, reals_of, view
from .errors import ShapeError, UnknownName

if TYPE_CHECKING:
    from .model import Model


class Parameters(MutableMapping[str, np.ndarray]):
    """The parameters of a model by name: arrays that are its memory, to be looked at. Setting one
    copies an array into it."""

    def __init__(self, model: "Model") -> None:
        self._of = model

    def _specs(self) -> int:
        return lib.dra_model_params(self._of._open().at)

    def __iter__(self) -> Iterator[str]:
        specs = self._specs()
        return iter([lib.dra_specs_at(specs, i).contents.name.decode()
                     for i in range(lib.dra_specs_count(specs))])

    def __len__(self) -> int:
        return lib.dra_specs_count(self._specs())

    def _find(self, name: str) -> Tuple[int, Tuple[int, ...]]:
        i = lib.dra_specs_find(self._specs(), name.encode())
        if i < 0:
            raise UnknownParameter("parameters: there is no %r" % name)
        shape = lib.dra_specs_at(self._specs(), i).contents.shape
        return i, tuple(shape.dim[:shape.rank])

    def __getitem__(self, name: str) -> np.ndarray:
        i, shape = self._find(name)
        at = lib.dra_weights_at(self._of._weights.at, i)
        if not at:
            raise MemoryError("parameters: no memory for " + name)
        return view(at, shape, REAL, self._of._weights)

    def __setitem__(self, name: str, value: Any) -> None:
        i, shape = self._find(name)
        array = reals_of(value, "parameters: " + name)
        if array.shape != shape:
            raise ShapeError("parameters: %s has shape %s, found %s" % (name, shape, array.shape))
        with self._of._lock:
            at = lib.dra_weights_edit(self._of._weights.at, i)
            if not at:
                raise MemoryError("parameters: no memory for " + name)
            view(at, shape, REAL, self._of._weights, True)[...] = array
            self._of._edited = True
            self._of._forget()

    def __delitem__(self, name: str) -> None:
        raise TypeError("parameters: a model keeps all of its parameters")


class UnknownParameter(UnknownName, KeyError):
    """No parameter of this name."""

    def __str__(self) -> str:
        return str(self.args[0])
