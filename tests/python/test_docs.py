"""The Python blocks of docs/python.md and README.md, one page after the other, as they stand."""
import contextlib
import io
import os
import re
import unittest

import dra
from common import TEXT, Case

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Pages(Case):
    def run_page(self, name):
        with open(os.path.join(ROOT, name)) as f:
            blocks = re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
        before, room = os.getcwd(), self.folder()
        os.chdir(room)
        self.addCleanup(os.chdir, before)
        dra.load("dra-delta-tiny", set={"dim": 48, "depth": 2}).save("my-model")
        with open("my.txt", "w") as f:
            f.write(TEXT * 5)
        names = {}
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, name, "exec"), names)
        return len(blocks)

    def test_python(self):
        self.assertGreater(self.run_page("docs/python.md"), 3)

    def test_readme(self):
        self.assertEqual(self.run_page("README.md"), 1)


if __name__ == "__main__":
    unittest.main()
