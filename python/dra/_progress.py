"""Progress bars, by tqdm where that is installed."""
import sys
from typing import Any, Iterator, Optional, Sequence


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


def each(things: Sequence[Any], what: str, wanted: Optional[bool]) -> Iterator[Any]:
    """These, one after the other, with a bar."""
    shown = bar(len(things), what, wanted)
    for thing in things:
        yield thing
        shown.update()
    shown.close()
