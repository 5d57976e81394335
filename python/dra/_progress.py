"""Progress bars, by tqdm where that is installed."""
import sys
from contextlib import closing
from typing import Any, Callable, List, Optional, Sequence


class _Silent:
    """What a bar does where there is none."""

    def update(self, n: int = 1) -> None:
        pass

    def set_postfix_str(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def bar(total: int, what: str, wanted: Optional[bool] = None, unit: str = "it") -> Any:
    """A bar of tqdm. None: where a person looks, at a terminal or in a notebook."""
    if wanted is None:
        wanted = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if not wanted:
        return _Silent()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Silent()
    return tqdm(total=total, desc=what, unit=unit, leave=False)


def each(function: Callable[[Any], Any], things: Sequence[Any], what: str,
         wanted: Optional[bool]) -> List[Any]:
    """What a function makes of each of these, with a bar."""
    out = []
    with closing(bar(len(things), what, wanted)) as shown:
        for thing in things:
            out.append(function(thing))
            shown.update()
    return out
