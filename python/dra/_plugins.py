"""Plugins of devices in packages of their own, such as dra-cuda13: an entry point of the group
"dra.plugins" is a function that returns the folder of one."""
import os
from importlib import metadata
from typing import List

_found: List[str] = []


def find() -> None:
    """Adds the folders of such packages to where the library looks; once."""
    if _found:
        return
    points = metadata.entry_points()
    ours = (points.select(group="dra.plugins") if hasattr(points, "select")
            else points.get("dra.plugins", ()))  # Python 3.9
    before = os.environ.get("DRA_PLUGIN_PATH")
    _found.extend([before] if before else [])
    _found.extend(point.load()() for point in ours)
    if _found:
        os.environ["DRA_PLUGIN_PATH"] = os.pathsep.join(_found)
