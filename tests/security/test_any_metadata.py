"""Any metadata is answered or refused cleanly, and makes no caller another one."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from job_tracker.access import tokens
from tests.support.access import Entry, bearer, failure
from tests.support.api_service import Serve, Service
from tests.support.fuzzing import fuzzed
from tests.support.http2 import call_with
from training_service._generated import access_service_pb2 as apb
from training_service._generated import training_reporter_pb2 as rpb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub

CODE = grpc.StatusCode
ALLOWED = {
    *(CODE.OK, CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED, CODE.INVALID_ARGUMENT, CODE.NOT_FOUND),
    CODE.RESOURCE_EXHAUSTED,  # metadata that is too large
}
UNKNOWN = tokens.new_token().text

PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
TEXTS = st.one_of(
    st.text(PRINTABLE, max_size=60),
    st.sampled_from(["", " ", "vision", "speech", "VISION", "*", "../x", "default,vision", UNKNOWN, "x" * 5000]),
    st.sampled_from(["Bearer", "Bearer ", "Bearer *", f"Bearer {UNKNOWN}", "Basic eDp5", "Bearer 1.1." + "x" * 43]),
)
NAMES = st.sampled_from([
    *("authorization", "x-project", "x-request-id", "x-forwarded-for", "x-submitted-by", "x-role", "host"),
    *("cookie", "x-forwarded-client-cert", "x-spiffe-id", "proxy-authorization"),
])
BINARY_NAMES = st.sampled_from(["authorization-bin", "x-project-bin", "x-request-id-bin", "x-bin"])
PAIRS = st.lists(st.tuples(NAMES, TEXTS) | st.tuples(BINARY_NAMES, st.binary(max_size=200)), max_size=6)
METHODS = ("WhoAmI", "ListProjects", "GetTrainingStatus", "WatchTraining", "ListTrainingJobs", "Train", "Report")

RAW_NAMES = NAMES.map(str.encode) | st.sampled_from([b"authorization-bin", b"grpc-encoding", b"content-type"])
RAW_PAIRS = st.lists(
    st.tuples(RAW_NAMES, st.binary(max_size=100) | st.just(b"Bearer \xff\xfe") | st.text(max_size=40).map(encoded)),
    min_size=1,
    max_size=4,
) if False else None
