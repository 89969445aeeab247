"""Other bodies for the file calls of the commit ring."""

from nsqfast._ext.commitlog.files cimport Files, FileTable


ctypedef struct Body:
    FileTable table          # first: the calls get its address
    void *owner              # borrowed, of the class whose calls these are


cdef class SimulatedFiles(Files):
    cdef Body body
    cdef object disk         # answers the calls in Python; an OSError becomes errno
    cdef public list errors  # what else it raised: the ring sees EIO
    cdef object ask(self, str name, tuple arguments)


cdef class RecordingFiles(Files):
    cdef Body body
    cdef readonly list calls # a tuple each: the name, the arguments, the result (-1: failed)
