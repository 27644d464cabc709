"""Calls librdkafka's functions through ctypes, with whole Arrow batches.

``confluent_kafka.Producer`` takes one Python object after another and reports the success of each. librdkafka's public
functions take pointers, such as those of Arrow's buffers, return a number of the caller's with each failed record, and
report failures only (bench/write_stages.py compares the two). The library is the one that confluent-kafka has loaded;
nothing else is installed. Structures and constants are those of its public header, whose ABI is stable.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, cimpl

from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.errors import KdslError

PRODUCER, CONSUMER = 0, 1  # rd_kafka_type_t
LIST_GROUP_OFFSETS = 14  # rd_kafka_admin_op_t
ANY_PARTITION = -1
COPY = 0x2  # message flag: librdkafka copies the bytes, so the batch may be freed
TO_PARTITION = 0x8  # message flag: each message has its own partition
PURGE = 0x1 | 0x2  # messages that are queued or in flight
EVENT_DELIVERY = 0x1
EVENT_LOG = 0x4
EVENT_ERROR = 0x8
EVENT_STATS = 0x40

# Codes of the client's own errors have names with an underscore.
QUEUE_FULL: int = KafkaError._QUEUE_FULL  # noqa: SLF001
FATAL: int = KafkaError._FATAL  # noqa: SLF001
INVALID_ARGUMENT: int = KafkaError._INVALID_ARG  # noqa: SLF001
MESSAGE_TIMED_OUT: int = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
TIMED_OUT: int = KafkaError._TIMED_OUT  # noqa: SLF001
TRANSPORT: int = KafkaError._TRANSPORT  # noqa: SLF001
UNKNOWN_TOPIC: int = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
UNKNOWN_PARTITION: int = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001


class Message(c.Structure):
    """``rd_kafka_message_t``."""

    _fields_ = (
        ("err", c.c_int),
        ("rkt", c.c_void_p),
        ("partition", c.c_int32),
        ("payload", c.c_void_p),
        ("len", c.c_size_t),
        ("key", c.c_void_p),
        ("key_len", c.c_size_t),
        ("offset", c.c_int64),
        ("private", c.c_void_p),
    )


class MetadataPartition(c.Structure):
    """``rd_kafka_metadata_partition_t``."""

    _fields_ = (
        ("id", c.c_int32),
        ("err", c.c_int),
        ("leader", c.c_int32),
        ("replica_cnt", c.c_int),
        ("replicas", c.c_void_p),
        ("isr_cnt", c.c_int),
        ("isrs", c.c_void_p),
    )


class MetadataTopic(c.Structure):
    """``rd_kafka_metadata_topic_t``."""

    _fields_ = (
        ("topic", c.c_char_p),
        ("partition_cnt", c.c_int),
        ("partitions", c.POINTER(MetadataPartition)),
        ("err", c.c_int),
    )


class Metadata(c.Structure):
    """The beginning of ``rd_kafka_metadata_t``."""

    _fields_ = (
        ("broker_cnt", c.c_int),
        ("brokers", c.c_void_p),
        ("topic_cnt", c.c_int),
        ("topics", c.POINTER(MetadataTopic)),
    )


class TopicPartition(c.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c.c_char_p),
        ("partition", c.c_int32),
        ("offset", c.c_int64),
        ("metadata", c.c_void_p),
        ("metadata_size", c.c_size_t),
        ("opaque", c.c_void_p),
        ("err", c.c_int),
        ("private", c.c_void_p),
    )


class TopicPartitions(c.Structure):
    """``rd_kafka_topic_partition_list_t``."""

    _fields_ = (("count", c.c_int), ("size", c.c_int), ("elements", c.POINTER(TopicPartition)))


_NAMES = [field[0] for field in Message._fields_]
MESSAGE = np.dtype(
    {
        "names": _NAMES,
        "formats": [
            "i4",
            "i8",
            "i4",
            "i8",
            "i8",
            "i8",
            "i8",
            "i8",
            "i8",
        ],  # addresses and sizes as signed integers for NumPy
        "offsets": [getattr(Message, name).offset for name in _NAMES],
        "itemsize": c.sizeof(Message),
    }
)
"""`Message` as the element type of NumPy arrays."""

# A field of one message, ``rd_kafka_vu_t``: its kind, then a union of 64 bytes; up to three words of it are used.
ITEM = np.dtype(
    {
        "names": ["kind", "first", "second", "third"],
        "formats": ["i4", "i8", "i8", "i8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 72,
    }
)
ITEM_TOPIC, ITEM_PARTITION, ITEM_VALUE, ITEM_KEY, ITEM_PRIVATE, ITEM_FLAGS, ITEM_TIMESTAMP, ITEM_HEADER = range(2, 10)

_HANDLE, _TEXT = c.c_void_p, c.c_char_p
_TOKEN_CALLBACK = c.CFUNCTYPE(None, _HANDLE, _TEXT, _HANDLE)
ERROR_CALLBACK = c.CFUNCTYPE(None, _HANDLE, c.c_int, _TEXT, _HANDLE)
"""The type of functions that librdkafka calls with errors: the client, the code, the text, and 0."""
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_HANDLE, []),
    "rd_kafka_conf_set": (c.c_int, [_HANDLE, _TEXT, _TEXT, _TEXT, c.c_size_t]),
    "rd_kafka_conf_set_events": (None, [_HANDLE, c.c_int]),
    "rd_kafka_conf_destroy": (None, [_HANDLE]),
    "rd_kafka_conf_set_error_cb": (None, [_HANDLE, ERROR_CALLBACK]),
    "rd_kafka_conf_set_oauthbearer_token_refresh_cb": (None, [_HANDLE, _TOKEN_CALLBACK]),
    "rd_kafka_conf_enable_sasl_queue": (None, [_HANDLE, c.c_int]),
    "rd_kafka_sasl_background_callbacks_enable": (_HANDLE, [_HANDLE]),
    "rd_kafka_oauthbearer_set_token": (
        c.c_int,
        [_HANDLE, _TEXT, c.c_int64, _TEXT, c.POINTER(_TEXT), c.c_size_t, _TEXT, c.c_size_t],
    ),
    "rd_kafka_oauthbearer_set_token_failure": (c.c_int, [_HANDLE, _TEXT]),
    "rd_kafka_new": (_HANDLE, [c.c_int, _HANDLE, _TEXT, c.c_size_t]),
    "rd_kafka_destroy": (None, [_HANDLE]),
    "rd_kafka_set_log_queue": (c.c_int, [_HANDLE, _HANDLE]),
    "rd_kafka_queue_get_main": (_HANDLE, [_HANDLE]),
    "rd_kafka_queue_destroy": (None, [_HANDLE]),
    "rd_kafka_queue_poll": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_event_type": (c.c_int, [_HANDLE]),
    "rd_kafka_event_stats": (_TEXT, [_HANDLE]),
    "rd_kafka_event_error": (c.c_int, [_HANDLE]),
    "rd_kafka_event_error_string": (_TEXT, [_HANDLE]),
    "rd_kafka_event_log": (c.c_int, [_HANDLE, c.POINTER(_TEXT), c.POINTER(_TEXT), c.POINTER(c.c_int)]),
    "rd_kafka_event_message_array": (c.c_size_t, [_HANDLE, c.POINTER(c.POINTER(Message)), c.c_size_t]),
    "rd_kafka_event_message_count": (c.c_size_t, [_HANDLE]),
    "rd_kafka_event_message_next": (c.POINTER(Message), [_HANDLE]),
    "rd_kafka_event_destroy": (None, [_HANDLE]),
    "rd_kafka_topic_new": (_HANDLE, [_HANDLE, _TEXT, _HANDLE]),
    "rd_kafka_topic_name": (_TEXT, [_HANDLE]),
    "rd_kafka_topic_destroy": (None, [_HANDLE]),
    "rd_kafka_metadata": (c.c_int, [_HANDLE, c.c_int, _HANDLE, c.POINTER(c.POINTER(Metadata)), c.c_int]),
    "rd_kafka_metadata_destroy": (None, [c.POINTER(Metadata)]),
    "rd_kafka_produce_batch": (c.c_int, [_HANDLE, c.c_int32, c.c_int, _HANDLE, c.c_int]),
    "rd_kafka_produceva": (_HANDLE, [_HANDLE, _HANDLE, c.c_size_t]),
    "rd_kafka_error_code": (c.c_int, [_HANDLE]),
    "rd_kafka_error_string": (_TEXT, [_HANDLE]),
    "rd_kafka_error_destroy": (None, [_HANDLE]),
    "rd_kafka_error_is_retriable": (c.c_int, [_HANDLE]),
    "rd_kafka_error_txn_requires_abort": (c.c_int, [_HANDLE]),
    "rd_kafka_err2str": (_TEXT, [c.c_int]),
    "rd_kafka_fatal_error": (c.c_int, [_HANDLE, _TEXT, c.c_size_t]),
    "rd_kafka_flush": (c.c_int, [_HANDLE, c.c_int]),
    "rd_kafka_outq_len": (c.c_int, [_HANDLE]),
    "rd_kafka_purge": (c.c_int, [_HANDLE, c.c_int]),
    "rd_kafka_init_transactions": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_begin_transaction": (_HANDLE, [_HANDLE]),
    "rd_kafka_send_offsets_to_transaction": (_HANDLE, [_HANDLE, _HANDLE, _HANDLE, c.c_int]),
    "rd_kafka_commit_transaction": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_abort_transaction": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_consumer_group_metadata_new": (_HANDLE, [_TEXT]),
    "rd_kafka_consumer_group_metadata_destroy": (None, [_HANDLE]),
    "rd_kafka_topic_partition_list_new": (c.POINTER(TopicPartitions), [c.c_int]),
    "rd_kafka_topic_partition_list_add": (c.POINTER(TopicPartition), [_HANDLE, _TEXT, c.c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [_HANDLE]),
    "rd_kafka_queue_new": (_HANDLE, [_HANDLE]),
    "rd_kafka_AdminOptions_new": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_AdminOptions_destroy": (None, [_HANDLE]),
    "rd_kafka_AdminOptions_set_request_timeout": (c.c_int, [_HANDLE, c.c_int, _TEXT, c.c_size_t]),
    "rd_kafka_AdminOptions_set_require_stable_offsets": (_HANDLE, [_HANDLE, c.c_int]),
    "rd_kafka_ListConsumerGroupOffsets_new": (_HANDLE, [_TEXT, _HANDLE]),
    "rd_kafka_ListConsumerGroupOffsets_destroy": (None, [_HANDLE]),
    "rd_kafka_ListConsumerGroupOffsets": (None, [_HANDLE, c.POINTER(_HANDLE), c.c_size_t, _HANDLE, _HANDLE]),
    "rd_kafka_event_ListConsumerGroupOffsets_result": (_HANDLE, [_HANDLE]),
    "rd_kafka_ListConsumerGroupOffsets_result_groups": (c.POINTER(_HANDLE), [_HANDLE, c.POINTER(c.c_size_t)]),
    "rd_kafka_group_result_error": (_HANDLE, [_HANDLE]),
    "rd_kafka_queue_get_consumer": (_HANDLE, [_HANDLE]),
    "rd_kafka_consume_batch_queue": (c.c_ssize_t, [_HANDLE, c.c_int, _HANDLE, c.c_size_t]),
    "rd_kafka_assign": (c.c_int, [_HANDLE, _HANDLE]),
    "rd_kafka_incremental_unassign": (_HANDLE, [_HANDLE, _HANDLE]),
    "rd_kafka_offsets_for_times": (c.c_int, [_HANDLE, c.POINTER(TopicPartitions), c.c_int]),
    "rd_kafka_last_error": (c.c_int, []),
    "rd_kafka_group_result_partitions": (c.POINTER(TopicPartitions), [_HANDLE]),
}
_MESSAGE_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_message_destroy": (None, [_HANDLE]),
    "rd_kafka_message_errstr": (_TEXT, [_HANDLE]),
    "rd_kafka_message_timestamp": (c.c_int64, [_HANDLE, _HANDLE]),
    "rd_kafka_message_leader_epoch": (c.c_int32, [_HANDLE]),
    "rd_kafka_message_headers": (c.c_int, [_HANDLE, _HANDLE]),
    "rd_kafka_header_cnt": (c.c_size_t, [_HANDLE]),
    "rd_kafka_header_get_all": (c.c_int, [_HANDLE, c.c_size_t, _HANDLE, _HANDLE, _HANDLE]),
}


@cache
def library() -> Any:
    """Load librdkafka's functions, declare their types, and return the library; further calls return the same one.

    Other threads of Python run while a function does.
    """
    return _declare(c.CDLL, _FUNCTIONS)


@cache
def message_functions() -> Any:
    """Load the functions that are called for each message, as `library` loads the others.

    No other thread of Python runs meanwhile: they are so short that letting others run would cost more than they do.
    """
    return _declare(c.PyDLL, _MESSAGE_FUNCTIONS)


def _declare(load: Callable[[str], Any], functions: Mapping[str, tuple[Any, list[Any]]]) -> Any:
    """Load librdkafka with a class of ctypes, and declare the types of functions; a missing one is an error."""
    # Symbols are also looked up in the libraries that a library is linked to, so librdkafka's file need not be found.
    loaded = load(cimpl.__file__)
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise KdslError(
                f"the installed confluent-kafka ({cimpl.__file__}) does not export librdkafka's function {name}; "
                "install confluent-kafka's own wheel (pip install --force-reinstall confluent-kafka)"
            ) from None
        function.restype, function.argtypes = result, arguments
    return loaded


_token_callbacks: dict[TokenCallback, Any] = {}
"""librdkafka keeps pointers to these as long as the clients live, so they are never freed."""


def _create_refresh(create: TokenCallback) -> Any:
    """Return the function that librdkafka calls for tokens; it is kept until the process ends, as librdkafka needs it.

    Nothing may be raised into librdkafka.
    """
    lib = library()

    def refresh(handle: int, _: bytes, __: int) -> None:
        text = c.create_string_buffer(512)
        try:
            token, expires, principal, extensions = create(None)
        except Exception as e:  # noqa: BLE001  # the callback has logged it
            lib.rd_kafka_oauthbearer_set_token_failure(handle, str(e).encode())
            return
        pairs = [part.encode() for pair in extensions.items() for part in pair]
        arguments = token.encode(), int(expires * 1000), principal.encode(), (_TEXT * len(pairs))(*pairs), len(pairs)
        if lib.rd_kafka_oauthbearer_set_token(handle, *arguments, text, len(text)):
            lib.rd_kafka_oauthbearer_set_token_failure(handle, text.value)

    return _token_callbacks.setdefault(create, _TOKEN_CALLBACK(refresh))


def new_client(
    kind: int,
    settings: Mapping[str, Any],
    *,
    events: int = 0,
    on_error: Any = None,
    error: type[KdslError] = KdslError,
) -> int:
    """Create a client of librdkafka; `rd_kafka_destroy` closes it.

    librdkafka's background thread calls the callback for tokens.

    Args:
        kind: `PRODUCER` or `CONSUMER`.
        settings: librdkafka's settings, and a callback for tokens (`TOKEN_CALLBACK`).
        events: The events that its queue gets, as a sum of their numbers.
        on_error: What is called with the errors of partitions while messages are taken from a consumer
            (`ERROR_CALLBACK`); it must live as long as the client. None logs them.
        error: What is raised if librdkafka refuses a setting or cannot create the client.
    """
    lib, text = library(), c.create_string_buffer(512)
    conf = lib.rd_kafka_conf_new()
    values = dict(settings)
    callback: TokenCallback | None = values.pop(TOKEN_CALLBACK, None)
    if callback is not None:
        lib.rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, _create_refresh(callback))
        lib.rd_kafka_conf_enable_sasl_queue(conf, 1)
    for key, value in values.items():
        if lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), text, len(text)):
            lib.rd_kafka_conf_destroy(conf)
            # librdkafka's reason is not shown, because it quotes the value, which may be a secret.
            raise error(f"librdkafka refuses the setting {key!r} or its value; correct the client property")
    if events:
        lib.rd_kafka_conf_set_events(conf, events)
    if on_error is not None:
        lib.rd_kafka_conf_set_error_cb(conf, on_error)
    handle: int | None = lib.rd_kafka_new(kind, conf, text, len(text))
    if handle is None:
        lib.rd_kafka_conf_destroy(conf)
        raise error(
            f"librdkafka cannot create a client: {text.value.decode(errors='replace')}; correct the client properties"
        )
    if callback is not None:
        lib.rd_kafka_error_destroy(lib.rd_kafka_sasl_background_callbacks_enable(handle))
    return handle
