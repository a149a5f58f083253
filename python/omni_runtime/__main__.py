import os
import sys

# `python -m` puts the working directory first: a model's queue.py must not be taken for the
# standard library's while the runtime imports what it needs.
if sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from omni_runtime.server import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv)
