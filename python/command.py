#!python
"""The command: hands over to the program in the package, without importing that."""
import importlib.util
import os
import sys

spec = importlib.util.find_spec("dra")
package = list(spec.submodule_search_locations)[0]
if any("cuda" in a or a == "devices" for a in [*sys.argv[1:], os.environ.get("DRA_DEVICE", "")]):
    plugins = importlib.util.spec_from_file_location("plugins",
                                                     os.path.join(package, "_plugins.py"))
    module = importlib.util.module_from_spec(plugins)
    plugins.loader.exec_module(module)
    try:
        module.find()  # packages with plugins
    except RuntimeError as e:
        sys.exit("dra: %s" % e)
os.execv(os.path.join(package, "bin", "dra"), ["dra"] + sys.argv[1:])
