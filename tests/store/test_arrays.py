import json

import numpy as np
import pytest
import safetensors.numpy

from doublefeature.errors import StoreError
from doublefeature.posterior.arrays import HEADER_LIMIT, check_layout, decode_arrays, encode_arrays, strict_json

ARRAYS = {
    "bytes": np.arange(5, dtype=np.uint8),
    "codes": np.arange(6, dtype=np.uint32).reshape(2, 3),
    "empty": np.zeros((0, 64)),
    "floats": np.array([np.inf, -0.0, np.nan, 1e-310]),
    "none": np.zeros(0, np.uint8),
    "numbers": np.array([[-(2**63)], [2**63 - 1]]),
    "words": np.array([2**64 - 1, 0], np.uint64),
}


def file_of(arrays):
    return b"".join(encode_arrays(arrays))


def read(data: bytes):
    return decode_arrays(np.frombuffer(bytearray(data), np.uint8))


def bits(array):
    return (array.dtype, array.shape, array.tobytes())


def with_header(header, body=b"\0" * 16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype="F64", shape=(2,), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


class TestRoundTrip:
    def test_arrays_come_back_bit_by_bit(self):
        found = read(file_of(ARRAYS))
        assert {name: bits(array) for name, array in found.items()} == {n: bits(a) for n, a in ARRAYS.items()}

    def test_arrays_are_views_ready_for_the_kernels(self):
        data = np.frombuffer(bytearray(file_of(ARRAYS)), np.uint8)
        for array in decode_arrays(data).values():
            assert array.size == 0 or np.shares_memory(array, data)
            assert array.flags.c_contiguous
            assert array.flags.aligned
            assert array.flags.writeable

    def test_the_safetensors_package_reads_our_files(self):
        found = safetensors.numpy.load(file_of(ARRAYS))
        assert {name: bits(array) for name, array in found.items()} == {n: bits(a) for n, a in ARRAYS.items()}

    def test_we_read_the_safetensors_package(self):
        found = read(safetensors.numpy.save(ARRAYS))
        assert {name: bits(array) for name, array in found.items()} == {n: bits(a) for n, a in ARRAYS.items()}

    def test_no_arrays_at_all(self):
        assert read(file_of({})) == {}


BAD = {
    "nothing": b"",
    "no header": b"\1\2\3",
    "header of 2^63": (2**63).to_bytes(8, "little") + b"{}",
    "header longer than the file": (64).to_bytes(8, "little") + b"{}      ",
    "header over the limit": (HEADER_LIMIT + 8).to_bytes(8, "little") + b" " * (HEADER_LIMIT + 16),
    "header not a multiple of eight": (3).to_bytes(8, "little") + b"{} ",
    "not JSON": with_header(b"{not json}"),
    "not UTF-8": with_header(b'{"\xff": 1}'),
    "not an object": with_header([]),
    "deep": with_header(b"[" * 100_000),
    "entry not an object": with_header({"a": 3}),
    "unknown key": with_header({"a": {**entry(), "more": 1}}),
    "missing key": with_header({"a": {"dtype": "F64", "shape": [2]}}),
    "metadata": with_header({"__metadata__": {"a": "b"}, "a": entry()}),
    "unknown type": with_header({"a": entry("F16")}),
    "type that is a list": with_header({"a": entry(["F64"])}),
    "negative shape": with_header({"a": entry(shape=(-2,))}),
    "negative both": with_header({"a": entry(shape=(-1, -2))}),
    "shape of floats": with_header({"a": entry(shape=(2.0,))}),
    "shape of booleans": with_header({"a": entry(shape=(True, 2))}),
    "huge shape": with_header({"a": entry(shape=(2**62, 4))}),
    "huge empty shape": with_header({"a": entry(shape=(2**62, 0), offsets=(0, 0)), "b": entry()}),
    "many dimensions": with_header({"a": entry(shape=(1,) * 70 + (2,))}),
    "too short": with_header({"a": entry()}, b"\0" * 15),
    "too long": with_header({"a": entry()}, b"\0" * 17),
    "overlap": with_header({"a": entry(), "b": entry("U8", (8,), (8, 16))}),
    "same place twice": with_header({"a": entry(), "b": entry()}),
    "hole": with_header({"a": entry("F64", (1,), (0, 8)), "b": entry("U8", (4,), (12, 16))}),
    "backwards": with_header({"a": entry(offsets=(16, 0))}),
    "three offsets": with_header({"a": entry(offsets=(0, 8, 16))}),
    "off its boundary": with_header({"a": entry("U8", (8,), (0, 8)), "b": entry("U8", (1,), (8, 9)), "c": 0}),
    "repeated name": with_header(b'{"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},"a":{}}'),
    "number too long": with_header(b'{"a":' + b"9" * 10_000 + b"}"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused(kind):
    with pytest.raises(StoreError) as problem:
        read(BAD[kind])
    assert str(problem.value).isprintable()


def test_unaligned_arrays_are_refused():
    header = {"a": entry("U8", (4,), (0, 4)), "b": entry("F64", (1,), (4, 12)), "c": entry("U8", (4,), (12, 16))}
    with pytest.raises(StoreError, match="does not fit its place"):
        read(with_header(header))


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a": 1e999}', b'{"a":1,"a":1}', b'"\xff"', b"[" * 10**6])
def test_strict_json_refuses(text):
    with pytest.raises(StoreError):
        strict_json(text)


def test_layouts():
    layout = {"a": ("F64", (2, None))}
    check_layout({"a": np.zeros((2, 5))}, layout)
    wrong = [{}, {"b": np.zeros((2, 5))}, {"a": np.zeros(2)}, {"a": np.zeros((3, 5))}, {"a": np.zeros((2, 5), int)}]
    for arrays in [*wrong, {"a": np.zeros((2, 5)), "b": np.zeros(1)}]:
        with pytest.raises(StoreError, match="array"):
            check_layout(arrays, layout)
