"""Write benchmarks/results/gpu.md: computed bounds and measured results.

    python -m benchmarks.gpu.document

PyTorch counts the operations. Bytes are those that each operation reads and writes without fusion.
The program runs on the device `meta`, where tensors have shapes but no values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.common import ROOT
from benchmarks.gpu import lines, sample
from benchmarks.gpu.lines import Bench, Line
from ccs.model.encoder import Encoder

DOCUMENT = ROOT / "benchmarks" / "results" / "gpu.md"
BEGIN, END = "<!-- made by python -m benchmarks.gpu.document -->\n", "<!-- end -->\n"
IMAGES, MANY = 64, 40
GPUS = {
    "T4": (8.1e12, 65e12, 0.32e12),
    "L4": (30.3e12, 121e12, 0.3e12),
    "A100": (19.5e12, 312e12, 2.04e12),
    "H100": (67e12, 989e12, 3.35e12),
}
"""The vendor's peaks: operations a second in float32 without TF32 and in half precision, bytes a second."""

Cost = list[tuple[float, float]]
"""Operations and bytes of each operation."""


class Counting(TorchDispatchMode):
    """Notes the cost of every operation that reads or writes memory."""

    def __init__(self) -> None:
        super().__init__()
        self.cost: Cost = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.allclose.default:  # a check of values, which `meta` lacks
            return True
        out = func(*args, **(kwargs or {}))
        views = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
        if not views:
            count = flop_registry.get(func._overloadpacket)
            flops = 0.0 if count is None else float(count(*args, **(kwargs or {}), out_val=out))
            moved = [leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, torch.Tensor)]
            self.cost.append((flops, float(sum(tensor.nbytes for tensor in moved))))
        return out


def cost(work: Callable[[], object]) -> Cost:
    with torch.no_grad(), Counting() as counting:
        work()
    return counting.cost


def total(operations: Cost) -> float:
    """Operations in all."""
    return sum(flops for flops, _ in operations)


def least_seconds(operations: Cost, peak: float, bandwidth: float) -> float:
    """Compute the least seconds: arithmetic or memory bounds each operation.

    Args:
        operations: Operations and bytes moved, of each.
        peak: Arithmetic operations per second of the device.
        bandwidth: Bytes per second of its memory.
    """
    return sum(max(flops / peak, moved / bandwidth) for flops, moved in operations)


def expected() -> str:
    """The computed table as Markdown."""
    heading = ["model", "GFLOP, plain", "contributions", "one more ablation set"]
    heading += [f"moments, {gpu}" for gpu in GPUS] + [f"{MANY} ablation sets, {gpu}" for gpu in GPUS]
    rows = ["| " + " | ".join(heading) + " |", "|---|" + "---:|" * (len(heading) - 1)]
    rows += [f"| {name} | {' | '.join(_row(name))} |" for name in Bench.models]
    return "\n".join(rows) + "\n"


def _row(name: str) -> list[str]:
    clip = sample.untrained(name, "meta")
    encoder = Encoder(clip.visual)
    x, sets = (
        torch.empty(IMAGES, 3, *encoder.image_size, device="meta"),
        sample.ablations(encoder.heads, MANY),
    )
    plain = cost(lambda: clip.encode_image(x))
    read = cost(lambda: encoder.contributions(encoder.embed_and_read(x)[1]))
    one_set, two_sets = (cost(lambda n=n: encoder.embed(x, sets[1 : 1 + n])) for n in (1, 2))
    moments = cost(lambda: encoder.embed_and_read(x, heads=encoder.heads))
    many = cost(lambda: encoder.embed(x, sets))
    cells = [f"{total(plain) / IMAGES / 1e9:.1f}", f"{total(read) / total(plain):.2f}"]
    cells += [f"{(total(two_sets) - total(one_set)) / total(plain):.3f}"]
    cells += [f"{IMAGES / least_seconds(moments, single, moved):,.0f}" for single, _, moved in GPUS.values()]
    # Under autocast what is read and written has half the bytes.
    halves = [(flops, moved / 2) for flops, moved in many]
    return cells + [f"{IMAGES / least_seconds(halves, half, moved):,.0f}" for _, half, moved in GPUS.values()]


def seen_table(all_lines: Sequence[Line]) -> str:
    return lines.table(all_lines, lines.seen_results())


def write(all_lines: Sequence[Line]) -> None:
    """Put both tables in their place in the document."""
    before, _, after = DOCUMENT.read_text("utf-8").partition(BEGIN)
    tables = f"{expected()}\n{BETWEEN}\n{seen_table(all_lines)}"
    DOCUMENT.write_text(before + BEGIN + tables + END + after.partition(END)[2], "utf-8")


BETWEEN = """Last GPU result of each line of `python -m benchmarks.gpu`:
"""


if __name__ == "__main__":
    from benchmarks.gpu.__main__ import all_lines

    write(all_lines())
