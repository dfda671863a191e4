#!/usr/bin/env python3
"""set_weight.py MODEL OUT NAME INDEX VALUE: copies an ONNX model with one element of a float32
initializer changed. NAME is part of the initializer's name. Needs no package: the element is
changed where it lies in the file."""
import struct
import sys


def fields(data, begin, end):
    """(number, begin, end) of each length-delimited field of a protobuf message, no others."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if byte < 0x80:
                return value, at
    at = begin
    while at < end:
        tag, at = varint(at)
        if tag & 7 == 2:
            size, at = varint(at)
            yield tag >> 3, at, at + size
            at += size
        elif tag & 7 == 0:
            _, at = varint(at)
        else:
            at += 8 if tag & 7 == 1 else 4


def main():
    source, target, name, index, value = sys.argv[1:]
    data = bytearray(open(source, "rb").read())
    for graph, begin, end in fields(data, 0, len(data)):
        if graph != 7:
            continue
        for number, first, last in fields(data, begin, end):
            if number != 5:  # an initializer
                continue
            parts = {n: (b, e) for n, b, e in fields(data, first, last)}
            if name.encode() not in data[slice(*parts.get(8, (0, 0)))]:
                continue
            at, stop = parts[9] if 9 in parts else parts[4]
            at += 4 * int(index)
            assert at + 4 <= stop, "no such element"
            data[at:at + 4] = struct.pack("<f", float(value))
            open(target, "wb").write(data)
            return
    sys.exit("no such initializer")


main()
