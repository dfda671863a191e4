#!/usr/bin/env python3
"""pb_to_npz.py OUT.npz NAME=FILE.pb:DESCR:2,96 ...: tensors of ONNX test data as a NumPy archive.
DESCR is NumPy's, as <f2; the elements are the last bytes of a file. Needs no package."""
import math
import struct
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for argument in sys.argv[2:]:
        name, rest = argument.split("=", 1)
        path, descr, dims = rest.rsplit(":", 2)
        shape = tuple(int(d) for d in dims.split(","))
        size = math.prod(shape) * int(descr[2:])
        header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        with open(path, "rb") as file:
            data = file.read()[-size:]
        archive.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) +
                         header + data)
