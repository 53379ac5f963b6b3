"""A guess at what a file is that is no readable MindIR, with a remedy."""

from __future__ import annotations

_ENCRYPTED = {b"\xd8\x5e\x3a\x7f": "AES-GCM", b"\xd9\x5e\x3a\x7f": "AES-CBC", b"\xda\x5e\x3a\x7f": "SM4-CBC"}
"""First bytes that mindspore.export(enc_key=…, enc_mode=…) writes, MindSpore 2.10."""

_MAGIC = (
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive (a .npz or PyTorch file is one too)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program or library"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x89HDF", "an HDF5 file"),
)

EXPORT_HINT = "export the training cell again with mindspore.export(cell, *inputs, file_name=..., file_format='MINDIR')"


def encryption(head: bytes) -> str | None:
    """The mode of an encrypted file, from its first bytes."""
    return _ENCRYPTED.get(head[:4])


def describe(head: bytes) -> str | None:
    """The format that the first bytes (4 kB are enough) belong to, if it is certainly no MindIR."""
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    if len(head) > 10 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100_000_000:
        return "a safetensors file"
    if head[:1] == b"\x08" and b"MindSpore" not in head[:64] and head[2:3] in (b"\x12", b":", b"\x1a"):
        return "an ONNX model"
    if not head.strip(b"\0"):
        return "filled with zeros"
    if head[:1] == b"\n" and b"MindSpore" not in head[:64] and _is_checkpoint(head):
        return "a MindSpore checkpoint (weights without a graph)"
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError:
        return None
    return "a text file" if all(c.isprintable() or c in "\r\n\t" for c in text) else None


def _is_checkpoint(head: bytes) -> bool:
    # message Checkpoint { repeated Value value = 1 }, Value { required string tag = 1; … }
    at = 1
    while at < len(head) and head[at] & 128:
        at += 1
    return head[at + 1 : at + 2] == b"\n" and at + 2 < len(head)
