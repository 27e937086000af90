"""A small part of Markdown to HTML, for the runbooks of this repository: everything is escaped first. Pure.

Headings, paragraphs, lists (one level, continued lines), fenced code, tables are shown as they are written; inside a
line: `code`, **strong** and [words](address) with relative, http and https addresses only.
"""

import html
import re
from collections.abc import Iterator
from itertools import groupby

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"(?:[-*]|\d+[.)])\s+(.*)")
_HEADINGS = (("# ", "title"), ("## ", "h2"), ("### ", "h3"))
_ADDRESS = re.compile(r"(?!//)(?:https?://|/|[\w./-]+$)")


def render_markdown(text: str) -> str:
    """HTML of the text; the first heading is left out, for the page has its own."""
    return "\n".join(_block(kind, lines) for kind, lines in _blocks(text))


def title_of(text: str) -> str:
    """The first heading, or nothing."""
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    kinds = list(_kinds(text.splitlines()))
    for (kind, _), group in groupby(kinds, key=lambda one: (one[0], one[1])):
        lines = [line for _, _, line in group]
        if kind not in {"blank", "title"}:
            yield kind, lines


def _kinds(lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """(kind, number of the block, text) of each line."""
    kind, number, fenced = "blank", 0, False
    for line in lines:
        before = kind
        if line.startswith("```"):
            fenced = not fenced
            kind, number = "blank", number + 1
            continue
        kind = "code" if fenced else _kind(line, before)
        if kind != before or kind.startswith("h"):
            number += 1
        yield kind, number, line


def _kind(line: str, before: str) -> str:
    if not line.strip():
        return "blank"
    heading = next((kind for mark, kind in _HEADINGS if line.startswith(mark)), "")
    if heading:
        return heading
    if _ITEM.match(line):
        return "ol" if line[0].isdigit() else "ul"
    if line.startswith("  ") and before in {"ul", "ol"}:
        return before
    return "code" if line.startswith("|") else "p"


def _block(kind: str, lines: list[str]) -> str:
    if kind == "code":
        return f'<pre class="code">{html.escape(chr(10).join(lines))}</pre>'
    if kind in {"h2", "h3"}:
        return f"<{kind}>{_inline(lines[0].lstrip('# '))}</{kind}>"
    if kind in {"ul", "ol"}:
        items = "".join(f"<li>{_inline(item)}</li>" for item in _items(lines))
        return f"<{kind}>{items}</{kind}>"
    return f"<p>{_inline(' '.join(line.strip() for line in lines))}</p>"


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        found = _ITEM.match(line)
        if found:
            items.append(found[1])
        else:
            items[-1] += f" {line.strip()}"
    return items


def _inline(text: str) -> str:
    out, at = [], 0
    for found in _INLINE.finditer(text):
        out.append(html.escape(text[at : found.start()]))
        out.append(_span(*found.groups()))
        at = found.end()
    out.append(html.escape(text[at:]))
    return "".join(out)


def _span(code: str | None, strong: str | None, words: str | None, address: str | None) -> str:
    if code is not None:
        return f"<code>{html.escape(code)}</code>"
    if strong is not None:
        return f"<strong>{html.escape(strong)}</strong>"
    safe = html.escape(words or "")
    if not address or not _ADDRESS.match(address):
        return safe
    return f'<a href="{html.escape(address.removesuffix(".md"))}">{safe}</a>'
