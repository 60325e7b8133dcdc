"""Times the CPU at hand for tests/measured: first its kernels, then real forward passes.

Run by ``make cpu-record``, in about six minutes, on a machine that does nothing else meanwhile.
"""

from __future__ import annotations

import subprocess
import sys

import cpu_forwards

from calibration.decoding.weights import load
from calibration.kernels.device import machine as machines
from calibration.validation.forward import forward_times

SUMMARY = "{}: MAPE {:.1%}, worst {:.1%}; with at most 64 tokens {:.1%}, {:.1%}"


def main() -> None:
    sweep = ["calibrate", "device", "--device", "cpu", "--out", str(cpu_forwards.PROFILE)]
    subprocess.run([sys.executable, "-m", "sim", *sweep], check=True)
    import transformers

    machine = machines.find("cpu")
    with machines.held(machine):
        timed = forward_times(load().model)
    about: dict[str, object] = {"machine": machine.name, "torch": machine.torch}
    about |= {"transformers": transformers.__version__, "threads": machine.threads}
    cpu_forwards.write(timed, about)
    for backend in ("roofline", "auto", "table"):
        found = cpu_forwards.errors(cpu_forwards.kernels_of(cpu_forwards.PROFILE, backend), timed)
        few = {p: error for p, error in found.items() if p.batch * p.new_tokens <= 64}
        scores = [score(of) for of in (found, few) for score in SCORES]
        print(SUMMARY.format(backend, *scores))
    print(f"spread: at most {max(one.spread for one in timed):.1%}")


SCORES = (cpu_forwards.mape, cpu_forwards.worst)

if __name__ == "__main__":
    main()
