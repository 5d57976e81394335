"""dra: sequence models with recurrent memories, by a library in C.

    >>> import dra
    >>> m = dra.load("dra-delta-tiny")              # or a folder, or a .gguf file
    >>> s = m.read("Once upon a time", m.state())   # a state is a value
    >>> a = m.generate(tokens=20, state=s.fork())   # two continuations of one reading
    >>> b = m.generate(tokens=20, state=s.fork(), temperature=0.5)

What a model has read is in a state: reading a text whole, in parts, token by token or from a file
gives the same outputs, the same state and the same gradients.
"""
from . import errors, tokenizer
from ._library import LIBRARY_PATH, library_version
from .errors import (BindError, BusyError, ClosedError, DTypeError, DeviceError, DraError,
                    FileError, FormatError, GradientError, InvalidValue, LibraryError,
                    OutOfMemory, OutOfRange, ShapeError, UnknownName)
from .generation import SamplerOption, Stream, sampler_options
from ._report import Decay, Report
from .forward import Outputs
from .model import Model, load
from .opening import presets
from .parameters import Parameters
from .questions import Gradients, Score
from .reading import Output
from .state import State
from .tokenizer import Tokenizer
from .training import Event, Trainer, TuneEvent, report

__version__ = library_version()

__all__ = [
    "BindError", "BusyError", "ClosedError", "DTypeError", "Decay", "DeviceError", "DraError",
    "Event", "FileError", "FormatError", "GradientError", "Gradients", "InvalidValue",
    "LIBRARY_PATH", "LibraryError", "Model", "OutOfMemory", "OutOfRange", "Output", "Outputs",
    "Parameters", "Report", "SamplerOption", "Score", "ShapeError", "State", "Stream", "Tokenizer",
    "Trainer", "TuneEvent", "UnknownName", "errors", "library_version", "load", "presets", "report",
    "sampler_options", "tokenizer",
]
