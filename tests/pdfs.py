"""Small PDFs, written byte by byte."""

from __future__ import annotations

import zlib

__all__ = ["pdf_bytes", "pdf_of"]


def pdf_of(*pages: str, deflate: bool = False) -> bytes:
    """A PDF with a line of text on each page; an empty one draws a box."""
    contents = (
        f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET" if text else "0 0 9 9 re f" for text in pages
    )
    return pdf_bytes([content.encode("latin-1") for content in contents], deflate=deflate)


def pdf_bytes(contents: list[bytes], *, deflate: bool = False) -> bytes:
    """A PDF with a page for each stream of drawing operators."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, content in enumerate(contents):
        stream = zlib.compress(content, 9) if deflate else content
        how = " /Filter /FlateDecode" if deflate else ""
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] "
            b"/Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>" % (5 + 2 * n)
        )
        objects.append(
            f"<< /Length {len(stream)}{how} >>\nstream\n".encode() + stream + b"\nendstream"
        )
    made = b"%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return made + (
        b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
        + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, len(made))
    )
