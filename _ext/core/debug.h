/* NSQFAST_DEBUG is 1 in builds made with NSQFAST_DEBUG=1 or NSQFAST_SANITIZE=1; the compiler drops what it guards elsewhere. */
#ifndef NSQFAST_DEBUG
#define NSQFAST_DEBUG 0
#endif
