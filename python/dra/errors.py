"""What goes wrong, by class. Every exception of the library has its text: one line that names the
place, what was found and what was expected."""


class DraError(Exception):
    """The base of all of them; each is also the built-in exception that fits."""


class ShapeError(DraError, ValueError):
    """Sizes, ranks or axes do not fit."""


class DTypeError(DraError, TypeError):
    """Numbers of another type than is taken; nothing is cast without being asked."""


class InvalidValue(DraError, ValueError):
    """An argument outside its range, or numbers that are not finite."""


class UnknownName(DraError, LookupError):
    """No such name, or a name used twice."""


class OutOfRange(DraError, IndexError):
    """An id or an index outside its range."""


class GradientError(DraError, ValueError):
    """A gradient that does not exist."""


class DeviceError(DraError, RuntimeError):
    """There is no such device, it misses a kernel, or it failed."""


class OutOfMemory(DraError, MemoryError):
    """Out of memory, or a size that overflows."""


class BindError(DraError, RuntimeError):
    """A program was run with inputs unbound."""


class FileError(DraError, OSError):
    """The system does not let us open, read or write a file."""


class FormatError(DraError, ValueError):
    """The bytes of a file break the rules of its format."""


class BusyError(DraError, RuntimeError):
    """There is no room now: to be tried again later."""


class ClosedError(DraError, ValueError):
    """A model, trainer or stream that was closed, or one of another process."""


class LibraryError(DraError, ImportError):
    """There is no libdra, or it is not the one this package was made for."""


#: By dra_status, DRA_OK first.
OF_STATUS = (None, ShapeError, DTypeError, InvalidValue, UnknownName, OutOfRange, GradientError,
             DeviceError, OutOfMemory, BindError, FileError, FormatError, BusyError)
