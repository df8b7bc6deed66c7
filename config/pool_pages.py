"""The page for whom Django can't answer: no template, no translation, nothing that may hang."""

from html import escape

BUSY = "The site is busy. Please try again in a moment."
_IN_CHINESE = {BUSY: "现在人太多，请稍后再试。"}


def page(detail: str, *, again: bool) -> bytes:
    """The text in both languages; `again`: the browser asks once more by itself."""
    refresh = '<meta http-equiv="refresh" content="2">' if again else ""
    chinese = f'<p lang="zh-Hans">{_IN_CHINESE[detail]}</p>' if detail in _IN_CHINESE else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{refresh}<title>{escape(detail)}</title>'
        f'</head><body><main role="alert"><h1>{escape(detail)}</h1>{chinese}</main></body></html>'
    ).encode()
