"""The fixture tests/data/sunspots: a series for docs/examples/sunspots.md and cli/test_worked.

    sunspots.py FOLDER

The mean number of sunspots of each year from 1700 to 2008, of the National Geophysical Data Center,
in the public domain, as statsmodels distributes it (0.15.0 was used). Numbers n become
sqrt(n) / 10, about 0 to 1.4: the square root because large numbers also vary more.

    numbers.csv          year, number: all of them
    train.safetensors    x (189, 33, 1): every 33 years in a row up to 1920
    test.safetensors     x (88, 33, 1): each year from 1921 to 2008 after the 32 years before it
    last.safetensors     x (1, 32, 1): 1977 to 2008
"""
import importlib.util
import pathlib
import sys

import numpy
from safetensors.numpy import save_file

ROW, LAST_LEARNED = 33, 1920

package = pathlib.Path(importlib.util.find_spec("statsmodels").origin).parent
table = numpy.loadtxt(package / "datasets/sunspots/sunspots.csv", delimiter=",", skiprows=1)
x = (numpy.sqrt(table[:, 1]) / 10).astype(numpy.float32)
windows = numpy.lib.stride_tricks.sliding_window_view(x, ROW)
learned = int(LAST_LEARNED - table[0, 0]) + 1 - ROW + 1  # windows that end in 1920 or before

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "numbers.csv", "w") as file:
    file.write("year,number\n")
    file.writelines(f"{year:.0f},{number:g}\n" for year, number in table)
for name, rows in (("train", windows[:learned]), ("test", windows[learned:]),
                   ("last", x[None, -ROW + 1:])):
    save_file({"x": rows[:, :, None].copy()}, folder / f"{name}.safetensors")
