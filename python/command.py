#!python
"""The command: hands over to the program in the package, without importing that."""
import importlib.util
import os
import sys

spec = importlib.util.find_spec("dra")
program = os.path.join(list(spec.submodule_search_locations)[0], "bin", "dra")
os.execv(program, ["dra"] + sys.argv[1:])
