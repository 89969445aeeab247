"""A database knows it, which a thread reads: the command is blocked until then, so that a client has one question."""

import logging

cimport cython
from libc.stdint cimport uint64_t

from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.limits cimport MESSAGE_ID_SIZE
from nsqfast._ext.core.message cimport id_from_hex
from nsqfast._ext.server.answers cimport invalid

log = logging.getLogger("nsqd")


@cython.final
cdef class DeathLookup:
    """The one of a client."""

    def __init__(self, Registry registry not None, Client client not None):
        self.registry, self.client = registry, client

    cdef bytes find(self, str topic_name, bytes ids):
        """Return what is known of those of the topic's messages, one object of JSON by id; None = blocked."""
        cdef bytes answer
        if self.answer is None and self.question is None:
            self.ask(topic_name, ids)
        answer, self.answer = self.answer, None
        return answer

    cdef int ask(self, str topic_name, bytes ids) except -1:
        cdef const char *text = ids
        cdef Py_ssize_t place
        cdef uint64_t id = 0
        cdef list numbers = []
        cdef Topic topic = self.registry.topics.find(topic_name)
        if len(ids) % MESSAGE_ID_SIZE:
            raise invalid("DEATHS invalid message ID")
        for place in range(0, len(ids), MESSAGE_ID_SIZE):
            if not id_from_hex(text + place, &id):
                raise invalid("DEATHS invalid message ID")
            numbers.append(id)
        if self.registry.find_deaths is None or topic is None or topic.deaths is None:
            self.answer = b"{}"
            return 0
        self.question = self.registry.find_deaths(topic_name, numbers)
        self.question.add_done_callback(self.on_answer)
        return 0

    def on_answer(self, question):
        """Take what was found."""
        if self.question is not question:
            return
        self.question = None
        error = question.exception()
        if error is not None:
            log.error("DEATHS: they cannot be read", exc_info=error)
        self.answer = b"{}" if error is not None else question.result()
        self.client.go_on()

    cdef int cancel(self) except -1:
        """The client is gone: nobody waits for an answer any more."""
        question, self.question = self.question, None
        if question is not None:
            question.cancel()
        return 0
