"""A picture as a part of the page: its colours follow the theme, its ids are its own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from sim.analysis.palette import variables

NAMESPACE = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
DROPPED = {f"{NAMESPACE}metadata", f"{NAMESPACE}style"}
_REFERENCE = re.compile(r"url\(#(\w+)\)")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")


def inline(picture: bytes, prefix: str, label: str) -> str:
    """Turn an SVG file of matplotlib into an element of an HTML page.

    Colours of the palette become CSS variables. Ids that nothing refers to go; the others get a
    prefix, so that several pictures share a page.

    Parameters
    ----------
    picture : bytes
        The file.
    prefix : str
        Begins every id.
    label : str
        What the picture shows, for those who cannot see it.
    """
    root = ElementTree.fromstring(picture)
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in DROPPED]:
            parent.remove(child)
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        _adapt(element, prefix, used)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.attrib.update({"role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode")


def _references(element: ElementTree.Element) -> list[str]:
    found = [name for value in element.attrib.values() for name in _REFERENCE.findall(value)]
    return [*found, element.attrib[LINK][1:]] if LINK in element.attrib else found


def _adapt(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    attributes = element.attrib
    element.tag = element.tag.removeprefix(NAMESPACE)
    if element.tag != "text":
        element.text = None
    element.tail = None
    if attributes.get("id") in used:
        attributes["id"] = f"{prefix}-{attributes['id']}"
    else:
        attributes.pop("id", None)
    if LINK in attributes:
        attributes["href"] = f"#{prefix}-{attributes.pop(LINK)[1:]}"
    # Moved into the style: as an attribute, not every browser reads a variable.
    for name in ("fill", "stroke"):
        if name in attributes:
            attributes["style"] = f"{name}: {attributes.pop(name)}; {attributes.get('style', '')}"
    for name in ("style", "clip-path"):
        if name in attributes:
            attributes[name] = _restyled(attributes[name], prefix)
    for name in ("d", "x", "y", "transform"):
        if name in attributes:
            rounded = _DECIMALS.sub(lambda match: f"{float(match[0]):.2f}", attributes[name])
            attributes[name] = " ".join(rounded.split())


def _restyled(value: str, prefix: str) -> str:
    names = variables()
    value = _REFERENCE.sub(lambda match: f"url(#{prefix}-{match[1]})", value)
    return _COLOUR.sub(lambda match: names.get(match[0], match[0]), value)
