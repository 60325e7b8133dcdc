"""Many cases predicted side by side, those of one anchor together."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context

from calibration.validation.anchors import solved
from calibration.validation.case import Case
from calibration.validation.predict import Outcome, predict
from sim.progress import OnProgress

Group = Callable[[Sequence[Case], bool], list[Outcome]]


def _predict_group(cases: Sequence[Case], band: bool) -> list[Outcome]:
    ready = solved(cases) if cases[0].anchor else cases
    return [outcome for case in ready for outcome in predict(case, band)]


def predict_all(
    cases: Iterable[Case],
    band: bool = False,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
    group: Group = _predict_group,
) -> list[Outcome]:
    """Predict many cases, side by side; the outcomes come in the order of the cases.

    Parameters
    ----------
    cases : iterable of Case
    band : bool
        Also simulate both ends of the band.
    jobs : int, optional
        Processes; default one a core.
    on_progress : callable, optional
        Called with (what, cases done, cases in all).
    group : callable
        What predicts cases of one anchor.
    """
    cases = list(cases)
    done: list[Outcome] = []
    for outcomes in predicted(cases, band, jobs, group):
        done += outcomes
        if on_progress:
            names = {outcome.case.name for outcome in done}
            on_progress(outcomes[0].case.name, len(names), len(cases))
    return in_order(cases, done)


def in_order(cases: Iterable[Case], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes in the order of their cases, whichever was predicted first."""
    place = {case.name: index for index, case in enumerate(cases)}
    return sorted(outcomes, key=lambda outcome: place[outcome.case.name])


def predicted(
    cases: Iterable[Case],
    band: bool = False,
    jobs: int | None = None,
    group: Group = _predict_group,
) -> Generator[list[Outcome], None, None]:
    """Outcomes of the cases of one anchor after another, as they are complete.

    Parameters
    ----------
    cases, band, jobs, group
        As in ``predict_all``. Where the caller stops, what is on the way is given up.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.anchor or case.name, []).append(case)
    jobs = min(jobs or os.cpu_count() or 1, len(groups))
    if jobs <= 1:
        for members in groups.values():
            yield group(members, band)
        return
    before = set(active_children())
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _deaf_to_ctrl_c)
    try:
        waiting = [pool.submit(group, members, band) for members in groups.values()]
        for future in as_completed(waiting):
            yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    finally:
        pool.shutdown()


def _deaf_to_ctrl_c() -> None:
    """A terminal sends Ctrl-C to workers too; only who started them answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
