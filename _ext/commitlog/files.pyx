"""The calls by which the commit log reaches a disk."""

cdef extern from "commitlog/files.h" nogil:
    FileTable *real_files "nsq_real_files"()


cdef class Files:
    """The real ones. All of them may be called by the thread that writes, without the interpreter's lock."""

    def __cinit__(self):
        self.table = real_files()
