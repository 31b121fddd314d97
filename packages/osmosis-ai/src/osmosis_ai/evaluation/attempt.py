"""One attempt at a work item: asks a rollout server for a rollout and waits for its answer, its deadline or its loss.

Every way in which there is no answer becomes a `Judgement` here, where it is caught.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from typing import TYPE_CHECKING, NamedTuple

import httpx

from osmosis_ai.evaluation.judgement import Judgement, broken, infrastructure, refused
from osmosis_ai.evaluation.rollout_server import RolloutServer
from osmosis_ai.evaluation.verdict import WorkItem
from osmosis_ai.evaluation.walk import Limits, Stop, StopSwitch
from osmosis_ai.rollout.client import RolloutAdmissionTimeoutError, RolloutHandle, RolloutProtocolError
from osmosis_ai.rollout.types import RolloutResultResponse, RolloutStatus

if TYPE_CHECKING:
    from osmosis_ai.gateway.server import Session


class Answer(NamedTuple):
    """What came of asking: a terminal result, or a judgement why there is none.

    Attributes:
        phase: The last status before the end.
    """

    result: RolloutResultResponse | None
    phase: RolloutStatus
    judgement: Judgement | None


async def run_rollout(
    server: RolloutServer, item: WorkItem, session: Session, limits: Limits, stop: StopSwitch
) -> Answer:
    """Have the server run one rollout; cancelling this leaves it to its lease."""
    asking = asyncio.create_task(_ask(server, item, session, limits, stop))
    try:
        await asyncio.wait([asking, server.lost], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        return Answer(None, RolloutStatus.QUEUED, infrastructure("server_died", server.lost.result()))
    finally:
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking])


async def _ask(server: RolloutServer, item: WorkItem, session: Session, limits: Limits, stop: StopSwitch) -> Answer:
    handle: RolloutHandle | None = None
    client = server.lend()
    try:
        handle = await client.run_rollout_async(
            initial_messages=[dict(message) for message in item.messages],
            chat_completions_url=session.url,
            rollout_id=session.rollout_id,
            llm_api_key=session.key,
            label=item.label,
            metadata=None if item.metadata is None else dict(item.metadata),
            grade=True,
            agent_timeout_sec=limits.agent_timeout_s,
            grader_timeout_sec=limits.grader_timeout_s,
            extra_fields={"row_index": item.row_index, "run_index": item.run_index},
        )
        if stop.level is not Stop.NO:
            server.cancel_soon(session.rollout_id)  # the walk's own cancellation came before the admission
        async with asyncio.timeout(limits.deadline_s):
            return Answer(await handle, handle.phase, None)
    except RolloutAdmissionTimeoutError as error:
        judgement = infrastructure("admission_timeout", error.message)
    except TimeoutError:
        server.cancel_soon(session.rollout_id)
        judgement = infrastructure(
            "deadline", f"the rollout did not end within its deadline of {limits.deadline_s:g} s"
        )
    except RolloutProtocolError as error:
        forgotten = handle is not None and error.status_code in (403, 404)  # the server no longer knows it
        judgement = refused(500 if forgotten else error.status_code, error.message)
    except (httpx.HTTPError, OSError) as error:
        message = f"the rollout server cannot be reached: {type(error).__name__} {error}".rstrip()
        judgement = infrastructure("transport_error", message)
        # A connection breaks a moment before the server's death is seen, and that would explain more.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(server.lost)
    except Exception as error:  # a fault of ours costs its item, not the run
        judgement = broken(f"{type(error).__name__}: {error}", traceback.format_exc()[-2000:])
    finally:
        if handle is not None and not handle.done():
            handle.close()
        server.give_back(client)
    return Answer(None, handle.phase if handle is not None else RolloutStatus.QUEUED, judgement)
