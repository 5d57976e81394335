#!/bin/sh
# The Python package beside the command line $1. DRA_PYTHON: the interpreter, python3 if it is not
# said; it needs NumPy.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tap.sh"
python=${DRA_PYTHON:-python3}
build=$(cd "$(dirname "$1")" && pwd)
export PYTHONDONTWRITEBYTECODE=1

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    skip package "no python3 of 3.9 or later"
elif ! "$python" -c 'import numpy' 2>/dev/null; then
    skip package "$python has no NumPy"
elif [ ! -e "$build/python/dra/_c.py" ]; then
    skip package "the build has no package: python3 was not there when it was configured"
else
    PYTHONPATH=$build/python DRA_COMMAND=$1 exec "$python" -X dev "$here/run.py"
fi
tap_end
