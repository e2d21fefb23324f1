"""Servers that share GPUs with the learner: during an update they sleep, and their memory is the learner's.

Their weights wait in host memory, so that a server that wakes is the one that it was. One that does not go to sleep is
ended, one that does not wake is replaced, and none is started while the others sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.runtime.threads import in_thread
from recollect.samplers.fleet import members as fleet_members
from recollect.samplers.fleet.members import FleetServer, Members
from recollect.samplers.fleet.vllm_client import RequestRefused, ServerFailed


async def put_to_sleep(members: Members) -> None:
    """Free the GPUs' memory; nothing may be under way."""
    sleepers = [member for member in members.servers if member.sleeps]
    if not sleepers:
        return
    members.awake.clear()
    await _settled(sleepers)
    weights = members.current
    assert weights is not None, "servers have weights only after the first sync"

    async def sleep(member: FleetServer) -> None:
        assert member.client is not None
        try:
            await member.client.sleep(weights)
            member.ready, member.asleep = False, True
        except ServerFailed as error:
            if member.process is not None:
                await in_thread(member.process.kill, {})
            members.take_out(member, str(error))

    await asyncio.gather(*(sleep(member) for member in sleepers if member.ready))


async def wake(members: Members) -> None:
    """Take the memory back, with the weights that were current before."""
    members.awake.set()
    weights = members.current
    assert weights is not None, "servers have weights only after the first sync"

    async def rouse(member: FleetServer) -> None:
        assert member.client is not None
        try:
            await member.client.wake(weights)
            member.ready, member.asleep = True, False
        except (ServerFailed, RequestRefused) as error:
            members.take_out(member, f"it did not wake: {error}")

    await asyncio.gather(*(rouse(member) for member in members.servers if member.asleep))


async def _settled(sleepers: Sequence[FleetServer]) -> None:
    """Servers that are being started hold memory already: wait until each is there or has been given up.

    Every wait of theirs has a deadline, and none is started anew meanwhile.
    """
    while any(m.revival is not None and not m.revival.done() and not m.held for m in sleepers):
        await asyncio.sleep(fleet_members.PAUSE_S / 4)
