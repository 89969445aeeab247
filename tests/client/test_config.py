"""Every key of go-nsq, its default and its bounds; texts as Go writes them."""

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqfast.client import Config, OptionsError
from nsqfast.client.config import milliseconds
from nsqfast.wire.gotext import format_duration

# key, default, least, most in milliseconds; None = no bound (spec client §1)
DURATIONS = [
    ("dial_timeout", 1000, None, None),
    ("read_timeout", 60_000, 100, 300_000),
    ("write_timeout", 1000, 100, 300_000),
    ("lookupd_poll_interval", 60_000, 10, 300_000),
    ("lookupd_poll_timeout", 60_000, None, None),
    ("max_requeue_delay", 900_000, 0, 3_600_000),
    ("default_requeue_delay", 90_000, 0, 3_600_000),
    ("max_backoff_duration", 120_000, 0, 3_600_000),
    ("backoff_multiplier", 1000, 0, 3_600_000),
    ("low_rdy_idle_timeout", 10_000, 1000, 300_000),
    ("low_rdy_timeout", 30_000, 1000, 300_000),
    ("rdy_redistribute_interval", 5000, 1, 5000),
    ("msg_timeout", 0, 0, None),
    ("output_buffer_timeout", 250, None, None),
]
NUMBERS = [
    ("max_attempts", 5, 0, 65535),
    ("sample_rate", 0, 0, 99),
    ("deflate_level", 6, 1, 9),
    ("max_in_flight", 1, 0, None),
    ("output_buffer_size", 16384, None, None),
]
SWITCHES = {
    "tls_v1": False,
    "tls_insecure_skip_verify": False,
    "deflate": False,
    "snappy": False,
    "skip_lookupd_authorization": True,
}
OTHERS = (
    "local_addr lookupd_poll_jitter backoff_strategy client_id hostname user_agent heartbeat_interval "
    "tls_root_ca_file tls_cert tls_key tls_min_version auth_secret"
).split()


def test_every_key_and_no_other():
    named = [*[row[0] for row in DURATIONS + NUMBERS], *SWITCHES, *OTHERS]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(Config))


def test_defaults():
    config = Config()
    for key, default, *_ in DURATIONS:
        assert getattr(config, key) == timedelta(milliseconds=default), key
    for key, default, *_ in NUMBERS:
        assert getattr(config, key) == default, key
    for key, default in SWITCHES.items():
        assert getattr(config, key) is default, key
    assert config.backoff_strategy == "exponential"
    assert config.lookupd_poll_jitter == 0.3
    assert config.heartbeat_interval == timedelta(seconds=30)
    assert config.hostname.startswith(config.client_id)


@settings(deadline=None)
@given(
    st.sampled_from(DURATIONS),
    st.integers(0, 10_000_000),
    st.sampled_from("text seconds delta".split()),
)
def test_durations(row, value_ms, form):
    key, _, low, high = row
    forms = {
        "text": format_duration(value_ms * 1_000_000),
        "seconds": value_ms / 1000,
        "delta": timedelta(milliseconds=value_ms),
    }
    # The heartbeat must stay below the read timeout, whatever is tried here.
    suffix = "_s" if form == "seconds" else ""
    given_values = {key + suffix: forms[form], "heartbeat_interval": "100ms"}
    if (low is None or value_ms >= low) and (high is None or value_ms <= high):
        assert milliseconds(getattr(Config(**given_values), key)) == value_ms
    else:
        with pytest.raises(OptionsError, match=f"^{key}: .* is out of bounds"):
            Config(**given_values)


@settings(deadline=None)
@given(st.sampled_from(NUMBERS), st.integers(-2, 100_000), st.booleans())
def test_numbers(row, value, as_text):
    key, _, low, high = row
    given_value = str(value) if as_text else value
    if (low is None or value >= low) and (high is None or value <= high) and value >= -1:
        assert getattr(Config(**{key: given_value}), key) == value
    elif low is not None or value < -1:
        with pytest.raises(OptionsError, match=f"^{key}: "):
            Config(**{key: given_value})


@settings(deadline=None)
@given(
    st.sampled_from(sorted(SWITCHES)),
    st.sampled_from("1 t T TRUE true True 0 f F FALSE false False".split()),
)
def test_switches(key, text):
    assert getattr(Config(**{key: text}), key) is (text[0] in "1tT")
    assert getattr(Config.parse([f"{key.replace('_', '-')},{text}"]), key) is (text[0] in "1tT")


@settings(deadline=None)
@given(st.sampled_from([f.name for f in dataclasses.fields(Config)]))
def test_nothing_takes_an_object(key):
    with pytest.raises(OptionsError, match=f"^{key}: invalid"):
        Config(**{key: object()})


def test_parse():
    config = Config.parse(["max-in-flight,250", "msg_timeout,90s", "snappy", "user_agent,a,b"])
    assert config.max_in_flight == 250
    assert config.msg_timeout == timedelta(seconds=90)
    assert config.snappy
    assert config.user_agent == "a,b"
    assert Config.parse(["max_attempts,0"], base=config).max_in_flight == 250


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ("max_inflight,3", "max_inflight: unknown option"),
        ("max_in_flight,x", "max_in_flight: parse error"),
        ("msg_timeout,90", "msg_timeout: invalid duration '90'"),
        ("read_timeout,6m", "read_timeout: '6m' is out of bounds, from 0:00:00.100000 to 0:05:00"),
        ("lookupd_poll_jitter,1.5", "lookupd_poll_jitter: '1.5' is out of bounds"),
        ("lookupd_poll_jitter,nan", "lookupd_poll_jitter: 'nan' is out of bounds"),
        (
            "backoff_strategy,linear",
            "backoff_strategy: 'linear' is none of exponential, full_jitter",
        ),
        ("tls_min_version,tls9", "tls_min_version: 'tls9' is none of"),
        ("snappy,maybe", "snappy: invalid boolean"),
        ("heartbeat_interval,61s", "heartbeat_interval: .* more than read_timeout"),
        ("tls_cert,a.pem", "tls_cert: a certificate and its tls_key go together"),
    ],
)
def test_what_does_not_fit(item, error):
    with pytest.raises(OptionsError, match=f"^{error}"):
        Config.parse([item])


@settings(deadline=None)
@given(st.sampled_from(DURATIONS), st.integers(-1, 1000) | st.floats(0, 1000))
def test_a_duration_without_a_unit(row, value):
    """It would be milliseconds for those who know go-nsq, and seconds for those who know pynsq."""
    key = row[0]
    with pytest.raises(OptionsError) as refused:
        Config(**{key: value})
    assert str(refused.value) == (
        f'{key}: {value!r} has no unit; say {key}="{value}s", {key}_s={value} or {key}=timedelta(seconds={value})'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e99, True, "x", object()])
def test_no_number_of_seconds(value):
    with pytest.raises(OptionsError, match="^msg_timeout_s: "):
        Config(msg_timeout_s=value)


def test_seconds():
    config = Config(lookupd_poll_interval_s=60, msg_timeout_s=0.25)
    assert config.lookupd_poll_interval == timedelta(seconds=60)
    assert config.msg_timeout == timedelta(milliseconds=250)
    assert dataclasses.replace(config, msg_timeout_s=2).msg_timeout == timedelta(seconds=2)
    assert dataclasses.replace(config, max_attempts=2).msg_timeout == config.msg_timeout
    assert Config.parse(["msg-timeout-s,1.5"]).msg_timeout == timedelta(milliseconds=1500)


def test_whether_max_in_flight_was_given():
    assert not Config().is_max_in_flight_given
    assert not dataclasses.replace(Config(), snappy=True).is_max_in_flight_given
    for config in (Config(max_in_flight=1), Config.parse(["max_in_flight,1"])):
        assert config.is_max_in_flight_given
        assert config.max_in_flight == Config().max_in_flight


def test_off():
    assert milliseconds(Config(heartbeat_interval_s=-1).heartbeat_interval) == -1
    assert milliseconds(Config.parse(["output_buffer_timeout,-1"]).output_buffer_timeout) == -1
    assert milliseconds(Config(heartbeat_interval="-5s").heartbeat_interval) == -1


def test_equal_to_the_read_timeout_is_allowed():
    assert Config(heartbeat_interval="60s")


def test_both_compressions():
    with pytest.raises(OptionsError, match="deflate: not together with snappy"):
        Config(deflate=True, snappy=True)


def test_unchangeable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().max_in_flight = 3
    assert dataclasses.replace(Config(msg_timeout="3s"), max_in_flight=3).msg_timeout == timedelta(
        seconds=3
    )
