"""Wraps calls of our services: finds the caller and request id, maps errors, logs and measures the call."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

import grpc
from google.protobuf.message import DecodeError

from job_tracker.admission.admission import MAX_PARAMETER_BYTES
from job_tracker.common.log_context import request_id
from job_tracker.common.printable import printable, without_secrets
from job_tracker.common.rates import Rate
from job_tracker.domain import rights
from job_tracker.domain.call_kinds import CHANGING, KINDS
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import Forbidden, InvalidField, LimitExceeded, RateExceeded, TrackerError
from training_service.api.caller import Call, Context, Metadata, call_by_report_token, call_of, metadata_of
from training_service.api.errors import status_of
from training_service.api.limits import CallLimits
from training_service.api.retry_info import retry_info
from training_service.auth.authenticator import Authenticator

log = logging.getLogger("training_service.access")

REQUEST_ID_HEADER = "x-request-id"

_SERVICE = "/training."
_LONGEST_REQUEST_ID = 64
# Parsing blocks the event loop, and a map with many small entries is slow to parse. Admission allows only far
# smaller requests.
_LARGEST_REQUEST = 4 * MAX_PARAMETER_BYTES
LARGEST_MESSAGE = 2 * _LARGEST_REQUEST
"""The largest message in bytes. It is larger than _LARGEST_REQUEST, so that a request that is slightly too
large gets a clear error."""
# An error message is a percent-encoded header, and clients accept 8 KiB of headers. If the headers are
# larger, clients get neither the message nor the code.
_LONGEST_MESSAGE = 2048
_LONGEST_NAME = 100
# The number of log lines about one caller's calls beyond its rate: per second, and in a burst.
_REFUSALS_LOGGED, _REFUSALS_AT_ONCE = 0.1, 5

if TYPE_CHECKING:
    _Handler = grpc.RpcMethodHandler[Any, Any]
else:
    _Handler = grpc.RpcMethodHandler  # gRPC's type is generic only in its stubs
# The handlers of a grpc.aio server are asynchronous, although the type of _Handler says otherwise.
_Behaviour = Callable[[Any, Any], Any]


class CallObserver(Protocol):
    """A function that is called after each call of the API; see training_service/metrics."""

    def __call__(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """`method` is the name without its service, such as "Train"."""
        ...


class CallInterceptor:
    """Wraps the calls of our own services, but not those of health and reflection."""

    def __init__(
        self,
        observe: CallObserver,
        authenticator: Authenticator,
        limits: CallLimits | None = None,
        observe_refusal: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`observe_refusal` is called with the name of a limit when a call exceeds it."""
        self._observe = observe
        self._authenticator = authenticator
        self._limits = limits or CallLimits()
        self._observe_refusal = observe_refusal
        self._logged = Rate(_REFUSALS_LOGGED, _REFUSALS_AT_ONCE)

    def on(self, server: grpc.aio.Server) -> grpc.aio.Server:
        """Return a stand-in for `server`. This interceptor wraps services that are added to the stand-in."""
        return cast(grpc.aio.Server, _Wrapping(server, self._wrap))

    def _wrap(self, method: str, handler: _Handler) -> _Handler:
        if not method.startswith(_SERVICE):
            return handler
        # Our wrappers parse requests, since gRPC would not answer malformed bytes with INVALID_ARGUMENT.
        parse = handler.request_deserializer if _is_known(_name_of(method)) else _denied(method)
        assert parse is not None
        if handler.unary_stream is not None:
            stream = self._stream(method, parse, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
        if handler.stream_unary is not None:
            upload = self._upload(method, parse, handler.stream_unary)
            return grpc.stream_unary_rpc_method_handler(upload, None, handler.response_serializer)
        assert handler.unary_unary is not None
        assert handler.response_serializer is not None
        unary = self._unary(method, parse, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(unary, None, _serializer(handler.response_serializer))

    async def _call_of(self, supervision: "_Supervision", context: Context, metadata: Metadata) -> Call:
        name = supervision.name
        if name in rights.BY_REPORT_TOKEN:
            return call_by_report_token(context, metadata)
        call = await call_of(context, metadata, self._authenticator)
        supervision.caller = call.caller
        self._limits.check(name, call.caller)
        return call

    @asynccontextmanager
    async def _identified(self, call: Call) -> AsyncIterator[None]:
        """When the client's certificate expires, cancel the block and raise NotAllowed: the stream ends."""
        if call.identity is None:
            yield
            return
        try:
            async with asyncio.timeout(call.identity.seconds_left()) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            error = call.identity.expired()
            self._authenticator.refused(error, call.caller.address)
            raise error from None

    def _end(self, supervision: "_Supervision") -> None:
        """Count the call. Log it if it failed, or if calls of its kind change something.

        If a caller makes too many calls, the refused ones are logged at a limited rate.
        """
        name, code = supervision.name, supervision.code
        seconds = supervision.seconds
        self._observe(name, code, seconds)
        if supervision.limit:
            self._observe_refusal(supervision.limit)
        is_logged = code is not grpc.StatusCode.OK or name in CHANGING
        if is_logged and not (supervision.is_beyond_rate and self._logged.take(supervision.who)):
            supervision.log(seconds)
        supervision.end()

    def _unary(self, method: str, parse: Callable[[bytes], Any], behaviour: _Behaviour) -> _Behaviour:
        changes = _name_of(method) in CHANGING

        async def answer(data: bytes, context: Context) -> Any:
            metadata = metadata_of(context)
            supervision = _Supervision(method, context, metadata)
            try:
                call = await self._call_of(supervision, context, metadata)
                message = await behaviour(_parsed(parse, data), call)
                supervision.code = grpc.StatusCode.OK
                # Sending the id takes a tenth of the time of an empty call. The id of a successful read is
                # useless, because the log has no line about the call.
                if changes or supervision.has_own_id:
                    supervision.return_id()
                return message
            except Exception as error:
                supervision.explain(error)
            finally:
                self._end(supervision)
            return await supervision.abort()

        return answer

    def _upload(self, method: str, parse: Callable[[bytes], Any], behaviour: _Behaviour) -> _Behaviour:
        async def answer(messages: AsyncIterator[bytes], context: Context) -> Any:
            metadata = metadata_of(context)
            supervision = _Supervision(method, context, metadata)
            supervision.return_id()
            try:
                if not _is_known(supervision.name):
                    # For an unknown method, `parse` was made by `_denied`, and raises Forbidden. It is called
                    # here, since the client may send no message.
                    parse(b"")
                call = await self._call_of(supervision, context, metadata)
                async with self._identified(call), aclosing(_each_parsed(parse, messages)) as requests:
                    message = await behaviour(requests, call)
                supervision.code = grpc.StatusCode.OK
                return message
            except Exception as error:
                supervision.explain(error)
            finally:
                self._end(supervision)
            return await supervision.abort()

        return answer

    def _stream(self, method: str, parse: Callable[[bytes], Any], behaviour: _Behaviour) -> _Behaviour:
        async def answer(data: bytes, context: Context) -> None:
            metadata = metadata_of(context)
            supervision = _Supervision(method, context, metadata)
            supervision.return_id()
            try:
                call = await self._call_of(supervision, context, metadata)
                async with (
                    self._identified(call),
                    aclosing(behaviour(_parsed(parse, data), call)) as messages,
                ):
                    async for message in messages:
                        await _send(context, message)
                        del message  # the next message may be hours away
                supervision.code = grpc.StatusCode.OK
                return
            except Exception as error:
                supervision.explain(error)
            finally:
                self._end(supervision)
            await supervision.abort()

        return answer


class _Wrapping:
    """Adds the wrapped handlers of services to a server.

    This class replaces two features of gRPC that cost time with each call: interceptors, and methods that are
    registered one by one. With interceptors, grpc.aio runs coroutines to find the handler. With registered
    methods, it waits for one task per method. Together, the two take a quarter of the time of an empty call.
    """

    def __init__(self, server: grpc.aio.Server, wrap: Callable[[str, _Handler], _Handler]) -> None:
        self._server = server
        self._wrap = wrap

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Do nothing: the generated code also calls `add_registered_method_handlers` with the same
        handlers.
        """

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, _Handler]) -> None:
        """Wrap the handlers of a service, and add them to the server.

        The keys of `handlers` are the names of the methods.
        """
        wrapped = {name: self._wrap(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, wrapped),))


class _Supervision:
    """The state of one call from its start to its end: its request id, caller, status code and message.

    This code must be fast, since every call uses it.
    """

    __slots__ = (
        *("_context", "_identity", "_message", "_method", "_retry_after", "_started", "_token"),
        *("caller", "code", "has_own_id", "is_beyond_rate", "limit", "name"),
    )

    def __init__(self, method: str, context: Context, metadata: Metadata) -> None:
        self._started = time.perf_counter()
        self._method = method
        self.name = _name_of(method)
        self._context = context
        sent = _request_id(metadata)
        self.has_own_id = bool(sent)
        # Not os.urandom: it releases the GIL, and then waits for other threads.
        self._identity = sent or random.randbytes(16).hex()  # noqa: S311  # not a secret
        self._token = request_id.set(self._identity)
        self._message = ""
        self.code = grpc.StatusCode.CANCELLED
        self.caller: Caller | None = None
        self.limit = ""
        self.is_beyond_rate = False
        self._retry_after: float | None = None

    def return_id(self) -> None:
        """Send the request id at the end of the call, even if it succeeds."""
        self._context.set_trailing_metadata(((REQUEST_ID_HEADER, self._identity),))

    def explain(self, error: Exception) -> None:
        """Keep the code, the message and any exceeded limit of the error that ended the call."""
        self.code, message = _explain(error, self._method, self._identity)
        self._message = _clipped(without_secrets(message))
        if isinstance(error, LimitExceeded):  # the error is not kept: it would keep this frame alive
            self.limit, self._retry_after = error.limit, error.retry_after
            self.is_beyond_rate = isinstance(error, RateExceeded)

    async def abort(self) -> NoReturn:
        """End the call with its error and the request id.

        `CallInterceptor._end` has already logged the call.
        """
        message = self._message
        metadata: tuple[tuple[str, str | bytes], ...] = ((REQUEST_ID_HEADER, self._identity),)
        if self._retry_after is not None:
            metadata += retry_info(self.code, message, self._retry_after)
        await self._context.abort(self.code, message, metadata)

    @property
    def who(self) -> str:
        """The name of the caller, for the log; empty if it is unknown."""
        return printable(self.caller.name[:_LONGEST_NAME]) if self.caller else ""

    def log(self, seconds: float) -> None:
        """Write the call's line in the log."""
        by = f" by {self.who}" if self.who else ""
        reason = f": {self._message}" if self._message else ""
        log.info("%s %s %.1f ms%s%s", self._method, self.code.name, seconds * 1000, by, reason)

    @property
    def seconds(self) -> float:
        """The time since the call began."""
        return time.perf_counter() - self._started

    def end(self) -> None:
        """Remove the call's request id from the log context."""
        with suppress(ValueError):  # a cancelled stream is closed in another context
            request_id.reset(self._token)


async def _send(context: Context, message: Any) -> None:
    """Send a message of a stream. If the client disconnects, the call counts as cancelled.

    Without this, gRPC would log the failed send with a traceback.
    """
    try:
        await context.write(message)
    except grpc.aio.InternalError as error:
        raise asyncio.CancelledError from error


def _name_of(method: str) -> str:
    """Return the name of a method without its service, such as "Train"."""
    return method.rpartition("/")[2]


def _is_known(name: str) -> bool:
    return name in rights.RPCS and name in KINDS


def _denied(method: str) -> Callable[[bytes], NoReturn]:
    """Return a parser that raises Forbidden, for a method that the table of rights or KINDS lacks."""

    def deny(_: bytes) -> NoReturn:
        raise Forbidden(f"{method} is denied: the table of rights has no row for it")

    return deny


def _serializer(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a serializer that uses `serialize`, and that returns bytes unchanged: a handler has already
    serialized them.
    """
    return lambda message: message if isinstance(message, bytes) else serialize(message)


def _parsed(
    parse: Callable[[bytes], Any],
    data: bytes,
    advice: str = f", {MAX_PARAMETER_BYTES} of them for parameters",
) -> Any:
    if len(data) > _LARGEST_REQUEST:
        raise InvalidField(
            "request",
            f"the message has {len(data)} bytes; at most {_LARGEST_REQUEST} are allowed{advice}",
        )
    return parse(data)


async def _each_parsed(
    parse: Callable[[bytes], Any], messages: AsyncIterator[bytes]
) -> AsyncGenerator[Any, None]:
    async for data in messages:
        yield _parsed(parse, data, "; send the content in more messages")


def _clipped(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= _LONGEST_MESSAGE:
        return message
    return encoded[:_LONGEST_MESSAGE].decode(errors="ignore") + " …"


def _explain(error: Exception, method: str, identity: str) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, TrackerError) and (status := status_of(error)):
        return status
    if isinstance(error, DecodeError):
        return grpc.StatusCode.INVALID_ARGUMENT, f"the request is not a valid message for {method}"
    log.exception("%s failed", method)
    return (
        grpc.StatusCode.INTERNAL,
        f"internal error; the service's log has the reason under request id {identity}",
    )


def _request_id(metadata: Metadata) -> str:
    """Return the request id that the client has sent; "" if there is none."""
    for key, value in metadata:
        if key == REQUEST_ID_HEADER and isinstance(value, str):
            given = "".join(c for c in value if " " <= c <= "~")[:_LONGEST_REQUEST_ID]
            if given:
                return given
    return ""
