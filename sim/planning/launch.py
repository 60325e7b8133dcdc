"""Stand-in."""
from sim.setup import Setup
def launch_line(setup: Setup) -> str:
    return ""
