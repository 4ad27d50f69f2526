"""Callers can ask who they are."""

from types import SimpleNamespace
from typing import Any, cast

from job_tracker.domain.caller import Caller, Means, Role
from training_service._generated import access_service_pb2 as pb
from training_service.api.access import AccessServicer


async def answer(roles: dict[str, Role]) -> pb.WhoAmIResponse:
    caller = Caller(name="ada", means=Means.TOKEN, roles=roles, default_project="p0000")
    servicer = AccessServicer(cast(Any, None), cast(Any, None))
    return await servicer.WhoAmI(pb.WhoAmIRequest(), cast(Any, SimpleNamespace(caller=caller)))


async def test_the_answer_to_whoami_is_bounded_and_says_so() -> None:
    names = [f"p{number:04}" + "x" * 58 for number in range(1500)]
    who = await answer(dict.fromkeys(reversed(names), Role.VIEWER))
    assert (sorted(who.roles), who.roles_left_out) == (names[:1000], 500)
    assert who.ByteSize() < 100_000


async def test_few_roles_are_all_there() -> None:
    who = await answer({"p0000": Role.VIEWER, "a": Role.ADMIN})
    assert (dict(who.roles), who.roles_left_out) == ({"p0000": pb.viewer, "a": pb.admin}, 0)
