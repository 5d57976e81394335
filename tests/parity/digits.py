"""The fixture tests/data/digits, for docs/examples/digits.md and cli/test_worked.

    digits.py FOLDER

1797 images of 8 x 8 pixels from 0 to 16, by 13 people: the test set of "Optical Recognition of
Handwritten Digits" (E. Alpaydin, C. Kaynak 1998, UCI Machine Learning Repository, CC BY 4.0), as
scikit-learn distributes it (BSD 3-Clause; 1.9.1 was used). Every fifth image is for testing.
"""
import gzip
import importlib.util
import pathlib
import sys

import numpy
from safetensors.numpy import save_file

package = pathlib.Path(importlib.util.find_spec("sklearn").origin).parent
with gzip.open(package / "datasets/data/digits.csv.gz") as file:
    rows = numpy.loadtxt(file, delimiter=",").astype(numpy.uint8)  # 64 pixels and a label

test = numpy.arange(len(rows)) % 5 == 4
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, part in (("train", rows[~test]), ("test", rows[test])):
    tensors = {"img": part[:, :64].reshape(-1, 1, 8, 8).copy(), "labels": part[:, 64].copy()}
    save_file(tensors, folder / f"{name}.safetensors")
