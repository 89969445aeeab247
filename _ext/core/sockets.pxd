"""Linux calls that the load generator, the sink and `direct` use: sockets, poll and epoll."""

from libc.stdint cimport uint32_t


cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL, SOCK_NONBLOCK, SOCK_CLOEXEC
    ssize_t recv(int fd, void *data, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int accept4(int fd, void *address, void *size, int flags)
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)


cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP


cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY


cdef extern from "<poll.h>" nogil:
    short POLLIN, POLLOUT
    struct pollfd:
        int fd
        short events
    int poll(pollfd *fds, unsigned long count, int timeout_ms)


cdef extern from "<sys/epoll.h>" nogil:
    int EPOLLIN, EPOLLOUT, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CLOEXEC
    ctypedef union epoll_data_t:
        void *ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll_fd, epoll_event *events, int count_max, int timeout_ms)
