"""Runs the tests of this folder, and the examples in docstrings, and prints TAP."""
import doctest
import importlib
import os
import pkgutil
import sys
import unittest

import dra

HERE = os.path.dirname(os.path.abspath(__file__))


class Tap(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.parts = []  # of the running test that failed

    def line(self, ok, test, more=""):
        print("%s %d - %s%s" % ("ok" if ok else "not ok", self.testsRun, test.id(), more),
              flush=True)

    def fail(self, test, error):
        text = self._exc_info_to_string(error, test)
        for line in text.rstrip().split("\n"):
            print("# " + line)

    def startTest(self, test):
        super().startTest(test)
        self.parts = []

    def addSuccess(self, test):
        self.line(True, test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.line(False, test)
        self.fail(test, error)

    addError = addFailure

    def addSubTest(self, test, part, error):
        if error is not None:
            super().addSubTest(test, part, error)
            if not self.parts:
                self.line(False, test)
            self.parts.append(part)
            self.fail(part, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(True, test, " # SKIP " + reason)


def main():
    loader = unittest.TestLoader()
    suite = unittest.TestSuite()
    only = sys.argv[1:]
    for name in sorted(os.listdir(HERE)):
        if name.startswith("test_") and name.endswith(".py") and (not only or name[5:-3] in only):
            suite.addTests(loader.loadTestsFromName(name[:-3]))
    if not only or "docstrings" in only:
        for module in pkgutil.iter_modules(dra.__path__):
            if module.name not in ("_c", "libdra", "torch", "_torch_ops", "hf", "eval", "xt",
                                   "__main__"):
                suite.addTests(doctest.DocTestSuite(importlib.import_module("dra." + module.name)))
        suite.addTests(doctest.DocTestSuite(dra))
    print("1..%d" % suite.countTestCases(), flush=True)
    result = Tap()
    suite.run(result)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    main()
