"""First in PYTHONPATH: a Python without the packages in $GPT2C_WITHOUT, wherever they are."""
import os
import sys
from importlib.machinery import PathFinder

absent = os.environ["GPT2C_WITHOUT"].split(",")


class Without:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in absent:
            return None
        return PathFinder.find_spec(name, path, target)


sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
