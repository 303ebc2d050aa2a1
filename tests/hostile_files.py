"""Files of small data sets and networks, and seeded changes that make them hostile."""

import gzip
import io
import json
import os
import pickle
import socket
import stat
import struct
import subprocess
import zlib
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import torch
from PIL import Image
from torch import nn

TINY = "tiny-imagenet-200"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 moveto 8 8 lineto stroke\nshowpage\n%%EOF\n"
BOMB = (1 << 30) + (1 << 27)  # bytes that a bomb says it has


class Runs:
    """What is run when a pickle of it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads(path):
    """Calls that write the file `path`, or reach out of the process."""
    return [
        Runs(os.system, f"touch {path}"),
        Runs(exec, f"open({str(path)!r}, 'w').close()"),
        Runs(eval, f"open({str(path)!r}, 'w').close()"),
        Runs(open, str(path), "w"),
        Runs(subprocess.Popen, ["touch", str(path)]),
        Runs(socket.create_connection, ("127.0.0.1", 9)),
        Runs(os.mkdir, str(path)),
    ]


def spoilt(chance, content):
    """Change bytes: flip, overwrite, cut, drop, double or empty them. Returns them, and what was changed."""
    kind = chance.choice(["flip", "flip", "overwrite", "cut", "cut", "drop", "double", "empty", "zero"])
    held, n = bytearray(content), max(1, len(content))
    at, length = chance.randrange(n), chance.choice([1, 4, 16, 64])
    if kind == "flip":
        for _ in range(length):
            held[chance.randrange(n)] ^= 1 << chance.randrange(8)
    elif kind == "overwrite":
        held[at : at + length] = chance.choice([b"\xff", b"\0", b"\x7f"]) * length
    elif kind == "cut":
        del held[at:]
    elif kind == "drop":
        del held[at : at + length]
    elif kind == "double":
        held[at:at] = held[at : at + length]
    elif kind == "zero":
        held[:] = bytes(n)
    else:
        held.clear()
    return bytes(held), f"{kind} {length} bytes at {at} of {n}"


def picture(side=8, kind="PNG", value=0):
    """A picture of `side` x `side` pixels, as bytes."""
    pixels = (np.arange(3 * side * side) * 7 + value).astype(np.uint8).reshape(side, side, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def png_of(width, height, rows=b""):
    """A PNG whose header says `width` x `height`, with few pixels."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def jpeg_of(width, height):
    """A JPEG whose header says `width` x `height`."""
    content = picture(kind="JPEG")
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def changed_picture(chance):
    """The bytes of a hostile picture, its ending, and what was changed."""
    ending, kind = chance.choice(
        [(".png", "PNG"), (".jpg", "JPEG"), (".tif", "TIFF"), (".webp", "WEBP"), (".bmp", "BMP")]
    )
    whole = picture(kind=kind)
    sides = [(100_000, 100_000), (13_000, 13_000), (65_535, 65_535), (2**31 - 1, 1), (0, 0), (1, 2**31 - 1)]
    width, height = chance.choice(sides)
    made = {
        "header of PNG": lambda: (png_of(width, height), ".png", f"{width} x {height}"),
        "header of JPEG": lambda: (jpeg_of(width % 65_536, height % 65_536), ".jpg", f"{width} x {height} mod 2**16"),
        "EPS": lambda: (EPS, ending, f"PostScript as {ending}"),
        "another ending": lambda: (whole, chance.choice([".txt", ".png", ".jpg", ".tif", ".gif", ""]), kind),
        "a chunk of PNG": lambda: (png_of(8, 8, bytes(chance.choice([10, 200, 1 << 24]))), ".png", "other rows"),
        "executable": lambda: (b"#!/bin/sh\ntouch canary\n", ending, "a script"),
        "pickle": lambda: (pickle.dumps(Runs(os.system, "true")), ending, "a pickle"),
    }
    if chance.random() < 0.55:
        content, said = spoilt(chance, whole)
        return content, ending, f"{kind}: {said}"
    name = chance.choice(list(made))
    content, ending, said = made[name]()
    return content, ending, f"{name}: {said}"


def idx(values):
    """An IDX file, as bytes."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def changed_idx(chance, whole):
    """The bytes of a hostile IDX file, whether they are compressed, and what was changed."""
    axes, packed = whole[3], chance.random() < 0.3
    sizes = [0, 1, 2, 27, 28, 29, 2**16, 2**31, 2**32 - 1, 2**20]
    claimed = [chance.choice(sizes) for _ in range(axes)]
    kind = chance.choice(["sizes", "sizes", "magic", "bytes", "axes", "wrap", "bytes"])
    kind = "bomb" if chance.random() < 0.04 else kind
    if kind == "sizes":
        content, said = whole[:4] + np.array(claimed, ">u4").tobytes() + whole[4 + 4 * axes :], f"sizes {claimed}"
    elif kind == "magic":
        content = bytes(chance.choice([0, 8, 13, 255]) for _ in range(4)) + whole[4:]
        said = f"magic {content[:4]!r}"
    elif kind == "axes":
        axes = chance.choice([0, 1, 2, 4, 255])
        content, said = whole[:3] + bytes([axes]) + whole[4:], f"{axes} axes"
    elif kind == "wrap":  # the product of the sizes is 0 in 64 bits
        content, said = whole[:4] + np.array([2**31, 2**31, 4][:axes], ">u4").tobytes(), "sizes whose product wraps"
    elif kind == "bomb":
        return whole[:4] + np.array([2**31] * axes, ">u4").tobytes(), "bomb", "a bomb"
    else:
        content, said = spoilt(chance, whole)
    if not packed:
        return content, "", said
    content = gzip.compress(content)
    if chance.random() < 0.5:
        content, more = spoilt(chance, content)
        said = f"{said}; gzip: {more}"
    return content, ".gz", said


def gzip_bomb(path, header):
    """Write a gzip file of `header` and BOMB zeros, in about 4 MB."""
    zeros = zlib.compressobj(1, wbits=-15)
    block = zeros.compress(bytes(1 << 24)) + zeros.flush(zlib.Z_FULL_FLUSH)
    first = zlib.compressobj(1, wbits=-15)
    with path.open("wb") as file:
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + first.compress(header) + first.flush(zlib.Z_FULL_FLUSH))
        for _ in range(BOMB >> 24):
            file.write(block)


def tiny_imagenet():
    """The files of a small data set in the layout of Tiny ImageNet, by name."""
    wnids = ("n01", "n02")
    files = {f"train/{w}/images/{w}_{i}.JPEG": picture(64, "JPEG", 40 * i) for w in wnids for i in range(2)}
    files |= {f"val/images/val_{i}.JPEG": picture(64, "JPEG", 9 * i) for i in range(2)}
    files["val/val_annotations.txt"] = b"val_0.JPEG\tn01\t0\nval_1.JPEG\tn02\t0\n"
    files |= {"wnids.txt": b"n02\nn01\n", "words.txt": b"n01\tgoldfish\nn02\tbullfrog\n"}
    return {f"{TINY}/{name}": content for name, content in files.items()}


ELSEWHERE = [
    "../canary",
    "/canary",
    "..\\canary",
    "C:\\canary",
    f"{TINY}/../../canary",
    "~/canary",
    "\\\\h\\canary",
]


def changed_archive(chance, path):
    """Write a hostile archive, and return what was changed."""
    files = tiny_imagenet()
    kind = chance.choice(["place", "link", "device", "double", "file and folder", "bytes", "inner", "inner", "names"])
    kind = "bomb" if chance.random() < 0.03 else kind
    name = chance.choice(sorted(files))
    with ZipFile(path, "w", chance.choice([ZIP_STORED, ZIP_DEFLATED])) as packed:
        if kind == "inner":
            files[name], said = spoilt(chance, files[name])
            said = f"{name}: {said}"
        for each, content in files.items():
            packed.writestr(each, content)
        if kind == "place":
            said = chance.choice(ELSEWHERE)
            packed.writestr(ZipInfo(said), b"canary")
        elif kind in ("link", "device"):
            info, mode = ZipInfo(f"{TINY}/more"), stat.S_IFLNK if kind == "link" else stat.S_IFIFO
            info.external_attr = (mode | 0o777) << 16
            packed.writestr(info, said := chance.choice(["/etc", "..", "../../.."]))
        elif kind == "double":
            packed.writestr(name, b"other")
            said = name
        elif kind == "file and folder":
            said = chance.choice([f"{name}/below", f"{TINY}", f"{TINY}/train"])
            packed.writestr(said, b"canary")
        elif kind == "names":
            said = f"{TINY}/" + chance.choice(
                ["x" * 5000, "a/" * 2000 + "b", "\u202e.JPEG", "a\nb", "train/n03/images/x"]
            )
            packed.writestr(said, b"canary")
        elif kind == "bomb":
            said = bomb(packed, f"{TINY}/train/n01/images/n01_2.JPEG")
    if kind == "bytes":
        content, said = spoilt(chance, path.read_bytes())
        path.write_bytes(content)
    return f"{kind}: {said[:200]}"


def bomb(packed, name):
    """Add a member of BOMB zeros."""
    info = ZipInfo(name)
    info.compress_type, info._compresslevel = ZIP_DEFLATED, 1
    with packed.open(info, "w", force_zip64=True) as file:
        zeros = bytes(1 << 24)
        for _ in range(BOMB >> 24):
            file.write(zeros)
    return f"{name} of {BOMB} bytes"


def network():
    """A small network, whose weights a checkpoint has."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 3))


def changed_checkpoint(chance, folder):
    """Write a hostile checkpoint, and return its path and what was changed."""
    kind = chance.choice(["zip", "zip", "old", "pickle", "safetensors", "header", "weights", "weights"])
    state, path = dict(network().state_dict()), folder / f"x{chance.choice(['.pt', '.ckpt'])}"
    if kind in ("zip", "old"):
        torch.save({"state_dict": state, "epoch": 1}, path, _use_new_zipfile_serialization=kind == "zip")
        content, said = spoilt(chance, path.read_bytes())
        path.write_bytes(content)
    elif kind == "pickle":
        run = chance.choice(payloads(folder.parent / "canary"))
        held = chance.choice([run, {"state_dict": state, "extra": run}, state | {"0.weight": run}])
        said = f"{run.call}, in {type(held).__name__}"
        if chance.random() < 0.5:
            torch.save(held, path, _use_new_zipfile_serialization=chance.random() < 0.5)
        else:
            path.write_bytes(pickle.dumps(held))
    elif kind == "weights":
        said = changed_weights(chance, state)
        torch.save(state, path)
    else:
        path = folder / "x.safetensors"
        said = changed_safetensors(chance, state, path, of_header=kind == "header")
    return path, f"{kind}: {said}"


def changed_weights(chance, state):
    """Put another value into a state dict, and return what it is."""
    name = chance.choice(list(state))
    value = state[name]
    others = {
        "float64": value.double(),
        "complex": value.to(torch.complex64),
        "int8": value.to(torch.int8),
        "bool": value.bool(),
        "8 bits": value.float().to(torch.float8_e4m3fn),
        "sparse": value[None].to_sparse(),
        "another shape": torch.zeros(3, 1, 2),
        "empty": torch.zeros(0),
        "expanded": torch.zeros(()).expand(10**6, 10**6),
        "meta": torch.empty(2**40, device="meta"),
        "a number": 1.0,
        "a text": "weights",
        "nothing": None,
        "a list": [value],
        "NaN": value.double() * float("nan"),
    }
    said = chance.choice(list(others))
    state[name] = others[said]
    return f"{name}: {said}"


def changed_safetensors(chance, state, path, of_header):
    """Write a hostile file of safetensors, and return what was changed."""
    from safetensors.torch import save

    whole = save(state)
    if not of_header:
        content, said = spoilt(chance, whole)
        path.write_bytes(content)
        return said
    length = struct.unpack("<Q", whole[:8])[0]
    header, rest = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    entry = header[chance.choice([key for key in header if key != "__metadata__"])]
    changes = {
        "dtype": lambda: chance.choice(["F4", "F8_E8M0", "C64", "BOOL", "I64", "X", 7, None]),
        "shape": lambda: chance.choice([[2**40, 2**40], [-1], [0], [], "2", [1.5], [2**64]]),
        "data_offsets": lambda: chance.choice([[0, 0], [0, 2**62], [4, 0], [-4, 0], [0], "0", [0, 4]]),
    }
    key = chance.choice([*changes, "length"])
    if key == "length":
        claimed = chance.choice([0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1, 99_999_999])
        path.write_bytes(struct.pack("<Q", claimed) + whole[8:])
        return f"length {claimed} for {length}"
    entry[key] = changes[key]()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)
    return f"{key} {entry[key]}"
