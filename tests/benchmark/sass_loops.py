"""Machine code of device kernels, as cuobjdump prints it, and the loops in it."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(
    r"^\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<predicate>!?U?P\w+)\s+)?"
    r"(?P<name>[A-Z][A-Z0-9_.]*)(?P<operands>[^;]*);"
)
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
BARRIER = re.compile(r"\b(B\d+)\b")


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str  # "FADD", "LDG.E.128"
    operands: str
    predicated: bool

    @property
    def base(self) -> str:
        return self.name.split(".")[0]

    @property
    def target(self) -> int | None:
        found = TARGET.search(self.operands)
        return int(found[1], 16) if found else None


@dataclass
class Loop:
    """A natural loop: everything that can return to its head."""

    head: int
    blocks: set[int]
    # Loops in it, which run an unknown number of times in each round.
    inner: int = 0
    instructions: list[Instruction] = field(default_factory=list)


def parse(text: str) -> dict[str, list[Instruction]]:
    """Instructions of each function, by its mangled name."""
    functions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        if found := FUNCTION.match(line):
            current = functions.setdefault(found[1], [])
        elif found := INSTRUCTION.match(line):
            current.append(
                Instruction(
                    int(found["address"], 16),
                    found["name"],
                    found["operands"].strip(),
                    found["predicate"] is not None,
                )
            )
    return functions


class Graph:
    """Basic blocks by the address they begin at, and where control goes from each."""

    def __init__(self, code: list[Instruction]) -> None:
        self.code = code
        addresses = [i.address for i in code]
        leaders = {addresses[0]}
        for at, i in enumerate(code):
            leaders.update(t for t in self._jumps(at) if t is not None)
            if self._jumps(at) or i.base in ("EXIT", "RET", "BRX"):
                leaders.update(addresses[at + 1 : at + 2])
        self.heads = sorted(leaders & set(addresses))
        self.blocks: dict[int, list[Instruction]] = {}
        self.successors: dict[int, list[int]] = {}
        for n, head in enumerate(self.heads):
            begin = bisect.bisect_left(addresses, head)
            end = len(code)
            if n + 1 < len(self.heads):
                end = bisect.bisect_left(addresses, self.heads[n + 1])
            self.blocks[head] = code[begin:end]
            last = code[end - 1]
            following = [t for t in self._jumps(end - 1) if t in leaders]
            if end < len(code) and not (
                last.base in ("BRA", "EXIT", "RET", "BRX", "BSYNC") and not last.predicated
            ):
                following.append(addresses[end])
            self.successors[head] = following

    def _jumps(self, at: int) -> list[int]:
        i = self.code[at]
        if i.name.startswith("BRA.DIV"):
            return []  # where diverged warps shuffle; ours do not
        if i.base == "BRA":
            return [i.target] if i.target is not None else []
        if i.base != "BSYNC":
            return []
        # Threads meet at the barrier of the last BSSY before.
        name = BARRIER.search(i.operands)
        for before in reversed(self.code[:at]):
            if before.base == "BSSY" and name and name[1] in before.operands:
                return [before.target] if before.target is not None else []
        return []

    def loops(self) -> list[Loop]:
        """Loops with one head are one loop; the largest is first."""
        order = self._order()
        dominator = self._dominators(order)
        predecessors: dict[int, list[int]] = {head: [] for head in order}
        for head in order:
            for to in self.successors[head]:
                predecessors[to].append(head)
        found: dict[int, Loop] = {}
        for head in order:
            for to in self.successors[head]:
                if not self._dominates(dominator, to, head):
                    continue
                loop = found.setdefault(to, Loop(to, {to}))
                stack = [head]
                while stack:
                    block = stack.pop()
                    if block not in loop.blocks:
                        loop.blocks.add(block)
                        stack += predecessors[block]
        for loop in found.values():
            loop.inner = sum(o.head in loop.blocks for o in found.values()) - 1
            loop.instructions = [i for b in sorted(loop.blocks) for i in self.blocks[b]]
        return sorted(found.values(), key=lambda loop: -len(loop.instructions))

    def _order(self) -> list[int]:
        """Reverse postorder from the entry."""
        seen, order = {self.heads[0]}, []
        stack = [(self.heads[0], iter(self.successors[self.heads[0]]))]
        while stack:
            head, rest = stack[-1]
            for to in rest:
                if to not in seen:
                    seen.add(to)
                    stack.append((to, iter(self.successors[to])))
                    break
            else:
                order.append(head)
                stack.pop()
        return order[::-1]

    def _dominators(self, order: list[int]) -> dict[int, int]:
        """K. D. Cooper, T. J. Harvey, K. Kennedy, A Simple, Fast Dominance Algorithm, 2001."""
        number = {head: n for n, head in enumerate(order)}
        predecessors: dict[int, list[int]] = {head: [] for head in order}
        for head in order:
            for to in self.successors[head]:
                predecessors[to].append(head)
        dominator = {order[0]: order[0]}
        changed = True
        while changed:
            changed = False
            for head in order[1:]:
                known = [p for p in predecessors[head] if p in dominator]
                new = known[0]
                for other in known[1:]:
                    while new != other:
                        if number[new] > number[other]:
                            new = dominator[new]
                        else:
                            other = dominator[other]
                if dominator.get(head) != new:
                    dominator[head] = new
                    changed = True
        return dominator

    @staticmethod
    def _dominates(dominator: dict[int, int], head: int, block: int) -> bool:
        while block != head and dominator[block] != block:
            block = dominator[block]
        return block == head
