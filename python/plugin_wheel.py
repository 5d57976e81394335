"""The wheel dra-cuda13: the CUDA plugin alone, which the package dra finds by an entry point.

    python plugin_wheel.py LIBRARY VERSION FOLDER

LIBRARY is libdra-cuda.so as `make cuda` builds it, with CUDA 13; pip has nothing to compile.
"""
import base64
import hashlib
import os
import sys
import zipfile

NAME = "dra_cuda13"
TAG = "py3-none-manylinux_2_34_x86_64"

MODULE = '''"""The CUDA plugin of dra: a library in this folder."""
import os


def folder() -> str:
    """Where dra looks for it."""
    return os.path.dirname(os.path.abspath(__file__))
'''

METADATA = """Metadata-Version: 2.1
Name: dra-cuda13
Version: %(version)s
Summary: The CUDA plugin of dra, for CUDA 13
License: MIT
Requires-Python: >=3.9
Requires-Dist: dra==%(version)s

`dra.load(..., device="cuda")` and `dra ... --device cuda` find it. It needs a driver and cuBLAS of
CUDA 13.
"""

WHEEL = "Wheel-Version: 1.0\nGenerator: dra\nRoot-Is-Purelib: false\nTag: %s\n" % TAG
ENTRY = "[dra.plugins]\ncuda = %s:folder\n" % NAME


def row(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d\n" % (name, digest, len(data))


def main():
    library, version, folder = sys.argv[1:]
    with open(library, "rb") as f:
        plugin = f.read()
    info = "%s-%s.dist-info/" % (NAME, version)
    files = {NAME + "/__init__.py": MODULE.encode(), NAME + "/libdra-cuda.so": plugin,
             info + "METADATA": (METADATA % {"version": version}).encode(),
             info + "WHEEL": WHEEL.encode(), info + "entry_points.txt": ENTRY.encode()}
    record = "".join(row(*item) for item in files.items()) + info + "RECORD,,\n"
    path = os.path.join(folder, "%s-%s-%s.whl" % (NAME, version, TAG))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in [*files.items(), (info + "RECORD", record.encode())]:
            out.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    print(path)


if __name__ == "__main__":
    main()
