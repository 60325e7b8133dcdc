"""KV blocks of the plain loop: real objects, free ones in a queue, findable by what they hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

Name = tuple[Any, ...]


@dataclass(eq=False)
class Block:
    """One KV block. `name` says whose tokens it holds, if anybody could look for them."""

    name: Name | None = None
    users: int = 0


class Pool:
    """All blocks of a replica. Free ones wait in the order they were freed, oldest first."""

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self.free = OrderedDict((Block(), None) for _ in range(n_blocks))
        self.by_name: dict[Name, Block] = {}

    def take(self, name: Name | None = None) -> Block:
        """Take the block that has been free the longest; its content is gone."""
        block, _ = self.free.popitem(last=False)
        self.forget(block)
        block.users = 1
        if name is not None:
            self.name(block, name)
        return block

    def share(self, block: Block) -> None:
        """Use a block that holds the right content, whether it is in use or only cached."""
        if block.users == 0:
            del self.free[block]
        block.users += 1

    def release(self, block: Block) -> None:
        """Let go of a block; when nobody uses it, it joins the end of the free list."""
        block.users -= 1
        if block.users == 0:
            self.free[block] = None

    def name(self, block: Block, name: Name) -> None:
        """Make a block findable. A copy in use keeps the name; a cached copy loses it."""
        assert block.name is None
        old = self.by_name.get(name)
        if old is not None:
            if old.users:
                return
            self.forget(old)
        block.name = name
        self.by_name[name] = block

    def forget(self, block: Block) -> None:
        if block.name is not None:
            del self.by_name[block.name]
            block.name = None

    def leading(self, names: Iterable[Name]) -> list[Block]:
        """Find the blocks of `names` from the first on, up to the first that is missing."""
        found = []
        for name in names:
            if name not in self.by_name:
                break
            found.append(self.by_name[name])
        return found


class Node(NamedTuple):
    """Blocks that requests share if their key is the same and they count as many blocks in it."""

    key: int
    blocks: int

    def names(self) -> list[Name]:
        return [("node", self.key, self.blocks, i) for i in range(self.blocks)]


def chain(requests: Any, row: int, rules: Any) -> tuple[list[Node], Node | None]:
    """Nodes a request shares, and the one it leaves behind when it finishes.

    Nodes without a block of their own are left out.
    """
    if not rules.prefix_cache:
        return [], None

    def reach(tokens: int) -> int:
        """Blocks somebody who knows these tokens can use."""
        return max(tokens // rules.block_tokens - (1 if rules.drop_matched_block else 0), 0)

    prompt, output = int(requests.prompt_tokens[row]), int(requests.output_tokens[row])
    owned = slice(*(int(x) for x in requests.prefixes.offsets[row : row + 2]))
    nodes: list[Node] = []
    done = 0
    for key, end in zip(requests.prefixes.keys[owned], requests.prefixes.ends[owned], strict=True):
        # The last token of a prompt is always computed.
        blocks = reach(min(int(end), prompt - 1))
        if blocks > done:
            nodes.append(Node(int(key), blocks - done))
            done = blocks
    # The last token emitted was never fed back.
    kept = reach(prompt + output - 1) - done
    key = int(requests.keeps[row])
    return nodes, Node(key, kept) if key and kept > 0 else None
