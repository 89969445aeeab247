"""Objects instead of bodies: what a producer makes of them, and what handlers are called with.

    Producer("127.0.0.1:4150", encoder=encode_json)
    await Consumer("orders", "billing", nsqd="127.0.0.1:4150").run(bill, type=Order)

A body that does not decode is a failed message: PayloadError says what is wrong with it, and it comes again, or is
given up, as after any other exception of a handler. Only `run` decodes; iterators, batches and arrays have bodies.
"""

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import orjson

from nsqfast._ext.client.consume_connection import Message
from nsqfast.client.callbacks import check_call, find_call_fault
from nsqfast.client.middleware import Middleware
from nsqfast.errors import OptionsError, PayloadError
from nsqfast.program.extras import find_missing, needs

T = TypeVar("T")
M = TypeVar("M")

if TYPE_CHECKING:
    import typing_extensions

    # Without an encoder a producer takes bytes, and without a decoder a handler gets messages.
    Body_contra = typing_extensions.TypeVar("Body_contra", contravariant=True, default=bytes)
    Value = typing_extensions.TypeVar("Value", default=Message)
else:
    Body_contra, Value = TypeVar("Body_contra"), TypeVar("Value")

Encoder = Callable[[T], bytes]
Decoder = Callable[[bytes], T]
Result = Awaitable[object] | object
ValueHandler = Callable[[T], Result] | Callable[[T, Message], Result]

REASON_LENGTH_MAX = 300
FAULTS_NAMED_MAX = 3
# What JSON has by itself, so that nothing but orjson is needed.
PLAIN_OBJECTS = (dict, dict[str, Any], dict[str, object])
PLAIN_LISTS = (list, list[Any], list[object])


def encode_json(value: object) -> bytes:
    """JSON of what orjson knows (dict, list, dataclasses, datetime, Enum, UUID), of msgspec's Structs and of pydantic's
    models. TypeError: of anything else.
    """
    return orjson.dumps(value, default=_make_plain)


def encode_value(value: object) -> bytes:
    """What `decoder_of` reads: bytes as they are, a str as UTF-8, anything else as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else encode_json(value)


def _make_plain(value: Any) -> object:
    # Neither package is imported: whoever made the object has done it.
    if hasattr(value, "__pydantic_serializer__"):
        return value.model_dump(mode="json")
    if hasattr(value, "__struct_fields__"):
        return sys.modules["msgspec"].to_builtins(value, enc_hook=_make_plain)
    raise TypeError(type(value).__name__)


def decoder_of(type: type[T]) -> Decoder[T]:
    """A function from a body to this type; it raises PayloadError if the body is none.

    bytes is the body itself, str is UTF-8, all others are JSON: dict, list and object whatever it holds, pydantic's
    models by pydantic, msgspec's Structs, dataclasses, TypedDict, list[int] and the like by msgspec, or by pydantic if
    msgspec is not installed. PackageMissingError: neither is. OptionsError: it is no type of JSON.
    """
    name = _name(type)
    try:
        decode = _choose_decoder(type, name)
    except OptionsError:
        raise
    except Exception as error:
        raise OptionsError(f"type={name} cannot be decoded: {_describe(error)}") from None

    def decode_or_say_why(body: bytes) -> T:
        try:
            return cast("T", decode(body))
        except Exception as error:
            raise PayloadError(f"the body is no {name}: {_describe(error)}") from None

    return decode_or_say_why


def _choose_decoder(kind: Any, name: str) -> Decoder[Any]:
    if kind is bytes:
        return bytes
    if kind is str:
        return bytes.decode
    if kind is object or kind is Any:
        return orjson.loads
    if kind in PLAIN_OBJECTS:
        return functools.partial(_load, dict, "an object")
    if kind in PLAIN_LISTS:
        return functools.partial(_load, list, "an array")
    if _is_of_pydantic(kind) or (find_missing("msgspec") and not find_missing("pydantic")):
        with needs(f"type={name}", "pydantic"):
            from pydantic import TypeAdapter
        return TypeAdapter(kind).validate_json
    with needs(f"type={name}", "msgspec"):
        import msgspec
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
        raise TypeError("it is no dataclass, Struct, TypedDict or type of JSON")
    return msgspec.json.Decoder(kind).decode


def _load(kind: type, what: str, body: bytes) -> object:
    found = orjson.loads(body)
    if not isinstance(found, kind):
        raise ValueError(f"it is not {what}")  # noqa: TRY004 - of the body, not of an argument
    return found


def _is_of_pydantic(kind: Any) -> bool:
    """Whether it is a model or a dataclass of pydantic, or a list of them and the like."""
    return hasattr(kind, "__pydantic_validator__") or any(map(_is_of_pydantic, get_args(kind)))


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _describe(error: Exception) -> str:
    """One line without the body: of what it may contain, it has no more than a few words."""
    from nsqfast.program.logs import escape_controls

    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        texts = [_describe_fault(each) for each in faults[:FAULTS_NAMED_MAX]]
        more = len(faults) - len(texts)
        text = "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
    else:
        text = str(error).partition("\n")[0]
    if not isinstance(error, ValueError):
        text = f"{type(error).__name__}: {text}"
    is_long = len(text) > REASON_LENGTH_MAX
    return escape_controls(text[:REASON_LENGTH_MAX]) + ("…" if is_long else "")


def _describe_fault(fault: Any) -> str:
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


class Encoding(Middleware):
    """The outermost of a producer with an encoder, so that all others have bytes."""

    def __init__(self, encoder: Encoder[Any]) -> None:
        if not callable(encoder):
            raise OptionsError(f"an encoder is a function that returns bytes, not {encoder!r}")
        self._encoder = encoder

    def publish(self, topic: str, bodies: Sequence[Any]) -> AbstractContextManager[Sequence[bytes]]:
        del topic
        return nullcontext([self._encoder(body) for body in bodies])


def add_encoder(
    encoder: Encoder[Any] | None, middleware: Sequence[Middleware]
) -> Sequence[Middleware]:
    """The middleware of a producer that encodes, if it does."""
    return middleware if encoder is None else [Encoding(encoder), *middleware]


def choose_call(
    handler: Callable[..., T],
    type: Any,
    decoder: Decoder[Any] | None,
) -> Callable[..., T]:
    """What `run` calls with a message: the handler itself, or a function that decodes the body for it.

    The handler is called with the value, or with the value and the message if it needs two arguments.
    """
    decode = decoder if type is None else decoder_of(type)
    if decode is None:
        return handler
    if not callable(decode):
        raise OptionsError(f"a decoder is a function that takes bytes, not {decode!r}")
    wants_message = bool(find_call_fault(handler, 1)) and not find_call_fault(handler, 2)
    check_call(handler, *(["a value", "a message"] if wants_message else ["a value"]))

    def handle(message: Any) -> T:
        value = decode_body(decode, message.body)
        return handler(value, message) if wants_message else handler(value)

    functools.update_wrapper(handle, handler)
    return handle


def decode_body(decode: Decoder[T], body: bytes) -> T:
    """The value; whatever a decoder raises is a PayloadError."""
    try:
        return decode(body)
    except PayloadError:
        raise
    except Exception as error:
        raise PayloadError(f"{_name_function(decode)}: {_describe(error)}") from error


def _name_function(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
