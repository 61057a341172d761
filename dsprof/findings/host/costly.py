"""Settings of which PyTorch, or a trainer for it, says itself that they cost time."""

from __future__ import annotations

from typing import Final, NamedTuple

from dsprof.events import Kind, Severity
from dsprof.findings.evidence import row_evidence
from dsprof.findings.facts import Facts
from dsprof.findings.finding import Advice, Finding
from dsprof.findings.seen.anew import INFINITE
from dsprof.run.table import of_kind


class Costly(NamedTuple):
    title: str
    summary: str
    advice: Advice


#: By what is told of them.
_SETTINGS: Final = {
    "nn_data_parallel": Costly(
        "One process drives several GPUs: nn.DataParallel",
        "It copies the model to each GPU and gathers what they computed on one of them, in each "
        "step, and its one interpreter launches the kernels of all.",
        Advice(
            "launcher",
            "",
            "a process for each GPU: torchrun, accelerate launch or deepspeed",
            "the model stays on each GPU, and only gradients move",
        ),
    ),
    "ddp_finds_no_unused": Costly(
        "DDP looks for unused parameters in each step, and finds none",
        "It walks the whole graph of each forward for that, and does not order its buckets by when "
        "their gradients come.",
        Advice(
            "DDP(find_unused_parameters=...)",
            "True",
            "False, if all parameters are used in every step",
            "spares a walk through the graph in each step",
        ),
    ),
    "ddp_strides_differ": Costly(
        "Gradients lie otherwise in memory than DDP's buckets",
        "Their strides differ, which may slow their reduction, as PyTorch warns.",
        Advice(
            "memory_format, .contiguous()",
            "",
            "the layout of the parameter kept in forward",
            "gradients then get the strides of their buckets",
        ),
    ),
    "loader_sleeps": Costly(
        "mmengine sleeps for two seconds whenever its data loader ends",
        "It does so on each rank before it starts the loader anew, and warns of that once.",
        INFINITE,
    ),
    "float32_without_tensor_cores": Costly(
        "Products of float32 matrices leave the GPU's Tensor Cores idle",
        "They are computed in full precision, at a rate that is several times lower.",
        Advice(
            "torch.set_float32_matmul_precision",
            "",
            '"high", if TF32 is precise enough, or 16-bit numbers',
            "Tensor Cores compute them",
        ),
    ),
}


def costly_setting(facts: Facts) -> list[Finding] | str:
    """A note for each. What it costs nobody has measured, so none is a verdict of its own."""
    told = of_kind(facts.run.told, Kind.CONFIG)
    found = [_note(facts, name) for name in _SETTINGS if _is_told(facts, name)]
    made, most = (facts.run.config.get(f"loader_workers{end}") for end in ("", "_most"))
    if made and most:
        rows = told[told["name"] == "loader_workers"]
        found.append(
            Finding(
                rule="costly-setting",
                severity=Severity.INFO,
                title=f"A data loader has {made:,} workers, on CPUs for {most:,} at most",
                summary="PyTorch says so as it is made. Workers that share CPUs with each other "
                "and with the process that trains make batches no sooner, unless they wait for "
                "storage. What that costs is not told here.",
                evidence=(row_evidence(rows.iloc[-1], f"suggested at most: {most:,}"),),
                advice=(
                    Advice(
                        "DataLoader(num_workers=...)",
                        f"{made:,}",
                        f"{most:,} at most, or more CPUs for the job",
                        "CPUs are left for the process that trains",
                    ),
                ),
                confidence="high",
            )
        )
    return found


def _is_told(facts: Facts, name: str) -> bool:
    if not facts.run.config.get(name):
        return False
    half = facts.layout.element_bytes == 2
    return not (half and name == "float32_without_tensor_cores")


def _note(facts: Facts, name: str) -> Finding:
    rows = of_kind(facts.run.told, Kind.CONFIG, name)
    said = _SETTINGS[name]
    return Finding(
        rule="costly-setting",
        severity=Severity.INFO,
        title=said.title,
        summary=f"{said.summary} What that costs is not told here.",
        evidence=(row_evidence(rows.iloc[-1], "the warning"),),
        advice=(said.advice,),
        confidence="high",
    )
