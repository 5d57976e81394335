"""Plugins of devices in packages of their own, such as dra-cuda13: an entry point of the group
"dra.plugins" is a function that returns the folder of one."""
import os
from importlib import metadata
from typing import Any, Type

_looked = False


def find(error: Type[Exception] = RuntimeError) -> None:
    """Adds the folders of such packages to where the library looks; once. `error` is raised where
    one of them fails: the command has this module without the package."""
    global _looked
    if _looked:
        return
    points = metadata.entry_points()
    ours = (points.select(group="dra.plugins") if hasattr(points, "select")
            else points.get("dra.plugins", ()))  # Python 3.9
    before = os.environ.get("DRA_PLUGIN_PATH")
    folders = ([before] if before else []) + [_folder(point, error) for point in ours]
    if folders:
        os.environ["DRA_PLUGIN_PATH"] = os.pathsep.join(folders)
    _looked = True


def _folder(point: Any, error: Type[Exception]) -> str:
    try:
        return os.fsdecode(point.load()())
    except Exception as e:
        raise error("%s: %s" % (point.value.split(":")[0], str(e) or type(e).__name__)) from e
