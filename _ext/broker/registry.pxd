"""One broker: its topics, its turns, its durability, and what its connections read of it."""

from nsqfast._ext.broker.checkpoints cimport Checkpoints
from nsqfast._ext.broker.durability cimport Durability
from nsqfast._ext.broker.topics cimport Topics
from nsqfast._ext.broker.turn cimport Turn
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.settings cimport Settings


cdef class Registry:
    cdef readonly Settings settings
    cdef readonly Memory memory
    cdef readonly Timers timers
    cdef readonly Durability durability
    cdef readonly Topics topics
    cdef readonly Turn turn
    cdef readonly Checkpoints checkpoints
    cdef public bint is_draining     # new messages are refused, as nsqfast.nsqd.drain wants
    cdef public object tls_context   # for later upgrades to TLS; None = there are none
    cdef public object find_deaths   # (topic, ids): a future of what is known of them, as JSON; None = nothing died
    cdef public object authorizer    # (client, secret, callback): asks for its permissions; None = nobody needs any
