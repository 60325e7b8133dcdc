"""Where points are simulated: processes of this machine, or a Dask cluster.

Both are executors of ``concurrent.futures``. A worker that dies takes its point with it; the point
is tried again, by Dask itself on another worker, here in new processes.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import resource_tracker
from typing import Any, Protocol

from models.strict_yaml import InputError
from sim.planning.jobs import end_with_parent
from sim.planning.sweep.point import Done, Failed, Task, simulate_point, versions

START = "spawn"
"""How processes start: nothing of this one is copied, whatever threads it has."""
CONNECT_S = 10
WORKERS_S = 60
"""How long a scheduler may take to answer, and to have a first worker."""
DASK_AHEAD = 1000
"""Points handed to a cluster at once: enough for some hundred workers."""


class Workers(Protocol):
    """Simulates points elsewhere.

    Attributes
    ----------
    ahead : int
        How many points to hand over at once.
    retries : bool
        Whether a point is tried again here when its worker dies; else whoever runs it has done
        so already.
    """

    ahead: int
    retries: bool

    def submit(self, task: Task) -> Future[Done | Failed]:
        """Hand a point over; BrokenExecutor where a worker has died since."""
        ...

    def renew(self) -> None:
        """Start anew after a worker has died."""
        ...

    def lost(self) -> str | None:
        """Why nothing more will come, if so."""
        ...

    def close(self) -> None:
        """Stop at once, whatever still runs."""
        ...


class Processes:
    """Processes of this machine; they end with this one, however it ends.

    Parameters
    ----------
    jobs : int
        How many.
    """

    retries = True

    def __init__(self, jobs: int) -> None:
        self._jobs, self.ahead = jobs, 2 * jobs + 1
        # Its start would lift the block of SIGINT below.
        resource_tracker.ensure_running()
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context(START)
        return ProcessPoolExecutor(self._jobs, mp_context=context, initializer=end_with_parent)

    def submit(self, task: Task) -> Future[Done | Failed]:
        """Hand a point over; processes start as they are needed."""
        with _undisturbed():
            return self._pool.submit(simulate_point, task)

    def renew(self) -> None:
        """Replace all processes."""
        self.close()
        self._pool = self._new()

    def lost(self) -> str | None:
        """None: processes can always be started anew."""
        return None

    def close(self) -> None:
        """Kill them."""
        running = list((getattr(self._pool, "_processes", None) or {}).values())
        for process in running:
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: this one ends them in order."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_dask() -> Any:
    """The package ``distributed``; InputError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        what = "needs the extra dask: pip install 'speccast[dask]'"
        raise InputError("", None, "--dask", what) from None


class Cluster:
    """Workers of a Dask scheduler; more may come and go while it runs.

    Parameters
    ----------
    address : str
        Of the scheduler: ``tcp://HOST:8786``.

    Raises
    ------
    InputError
        If ``distributed`` is not installed, no scheduler answers, it has no workers, or they run
        other versions.
    """

    retries = False
    ahead = DASK_AHEAD

    def __init__(self, address: str) -> None:
        distributed = require_dask()
        self._address = address
        for name in [name for name in logging.root.manager.loggerDict if "distributed" in name]:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            what = f"no scheduler answers at {address}: {str(error) or type(error).__name__}"
            raise InputError("", None, "--dask", what) from None
        try:
            self._require_same(address)
        except InputError:
            self._client.close()
            raise
        self._executor: Executor = self._client.get_executor()

    def _require_same(self, address: str) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_S)
            found = self._client.run(versions)
        except TimeoutError:
            what = f"the scheduler at {address} has no workers"
            raise InputError("", None, "--dask", what) from None
        except Exception as error:
            what = f"the workers cannot load speccast: {type(error).__name__}: {error}"
            raise InputError("", None, "--dask", what) from None
        for worker, there in found.items():
            if tuple(there) != tuple(versions()):
                what = f"worker {worker} runs {there}; the sweep needs {versions()}"
                raise InputError("", None, "--dask", what)

    def submit(self, task: Task) -> Future[Done | Failed]:
        """Hand a point over."""
        return self._executor.submit(simulate_point, task)

    def renew(self) -> None:
        """Nothing: the scheduler replaces its workers."""

    def lost(self) -> str | None:
        """Whether the scheduler has not come back in the time its client waits for it."""
        gone = self._client.status in ("closing", "closed")
        return f"the scheduler at {self._address} is gone" if gone else None

    def close(self) -> None:
        """Withdraw what is not done, and disconnect."""
        self._executor.shutdown(wait=False)
        self._client.close()
